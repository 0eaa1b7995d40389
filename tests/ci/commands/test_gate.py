"""``gate`` on stored runs: each rule with a go and a no-go, waivers, and runs that are files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ci.errors import ExitCode
from ci.facts.sentences import on_rows
from ci.model.decision import Decision, OutcomeKind, parse_decision
from ci.model.outcomes import Outcome
from ci.model.release import ReleaseRule
from ci.model.results import (
    BenchmarkResult,
    Direction,
    Distribution,
    PlatformResult,
    RunResult,
    StageResult,
)
from ci.model.verdicts import Harness, Product
from ci.store.folder import default_url
from ci.store.store import Store
from tests.ci.foreign_runs import RUN_ID, write_run
from tests.ci.kept_wheels import kept, library
from tests.ci.made_results import made_verdict
from tests.ci.stored_history import ENVIRONMENT, TESTS, Project, git, result

CONFIG = """\
project: tiny
platforms: {cpu: {}, accelerators: {}}
stages:
- {name: install, command: make}
- {name: generate, command: make}
- {name: pytest, kind: pytest, command: pytest}
release:
  waivers: waivers.yaml
"""
POLICY: Mapping[str, Any] = {"required": ["cpu"]}
ALONE: Mapping[str, Any] = {"baseline": "optional", "tags": "no-such-tag"}
WHEEL = "tiny-1.2-py3-none-any.whl"
OPERATORS = {
    "t.py::test_op[add.out-float32-cpu-slot8]": Outcome.PASSED,
    "t.py::test_op[add.out-float16-cpu-slot8]": Outcome.SKIPPED,
}


def wheel(name: str = WHEEL, digit: str = "0", **changes: Any) -> Distribution:
    return Distribution(
        **{"name": name, "sha256": digit * 64, "size_bytes": 3, "installed": True, **changes}
    )


def sdist(digit: str, name: str = "tiny-1.2.tar.gz") -> Distribution:
    return wheel(name, digit, installed=False)


def row(install: float = 100.0, **changes: Any) -> PlatformResult:
    return result(install, **{"distributions": (wheel(),), **changes})


BENCH = StageResult(name="bench", seconds=1.0, exit_code=0, in_total=False)


def benchmark(value: float | None, direction: Direction = Direction.LOWER) -> PlatformResult:
    """A row with a benchmark; without one, if there is no value."""
    found = (
        ()
        if value is None
        else (
            BenchmarkResult(stage="bench", name="sum", value=value, unit="s", direction=direction),
        )
    )
    return row(benchmarks=found, stages=(*row().stages, BENCH))


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A release with a tag and a run, and a commit after it."""
    project = Project(folder=tmp_path_factory.mktemp("template"))
    project.run(project.commit(), row())
    git(project.source, "tag", "v1.0")
    project.commit()
    return project


@dataclass
class Release:
    """A project whose newest commit may be released."""

    project: Project
    waivers: list[dict[str, str]] = field(default_factory=list)

    def run(self, *rows: PlatformResult, **changes: Any) -> str:
        commit = changes.pop("commit", self.project.main)
        return self.project.run(commit, *(rows or (row(),)), **changes)

    def waive(self, rule: str, platform: str | None = "cpu", until: str = "2999-12-31") -> None:
        waiver = {"rule": rule, "reason": "a known defect", "owner": "@lab", "until": until}
        self.waivers.append(waiver | ({"platform": platform} if platform else {}))

    def configure(self, policy: Mapping[str, Any]) -> None:
        # JSON is YAML.
        lines = [f"  {key}: {json.dumps(value)}\n" for key, value in {**POLICY, **policy}.items()]
        source = self.project.source
        (source / "ci.yaml").write_text(CONFIG + "".join(lines), encoding="utf-8")
        waivers = {"project": "tiny", "waivers": self.waivers}
        (source / "waivers.yaml").write_text(json.dumps(waivers), encoding="utf-8")

    def ci(self, *words: object, **policy: Any) -> tuple[int, str]:
        self.configure(policy)
        return self.project.ci("gate", "--source", str(self.project.source), *map(str, words))

    def decide(self, *words: object, **policy: Any) -> Decision:
        """The decision that was written, which is also the one that was shown."""
        output = self.project.folder / "decision.json"
        code, text = self.ci(*words, "--output", output, "--format", "json", **policy)
        assert text.startswith("{"), text
        decision = parse_decision(output.read_bytes())
        assert parse_decision(text.encode()) == decision
        assert decision.exit_code == code
        return decision


@pytest.fixture
def release(template: Project, tmp_path: Path) -> Release:
    return Release(project=template.copy(tmp_path))


def kinds(decision: Decision, rule: str, platform: str | None = "cpu") -> list[OutcomeKind]:
    return [
        it.outcome for it in decision.rules if it.rule.value == rule and it.platform == platform
    ]


def broken(decision: Decision) -> set[str]:
    return {it.rule.value for it in decision.failed}


def evidence(decision: Decision, rule: str, platform: str | None = "cpu") -> str:
    [found] = [it for it in decision.rules if it.rule.value == rule and it.platform == platform]
    return found.evidence


ALL = {
    "least_executed": 0.5,
    "skips": ["no *"],
    "oldest_days": 3650.0,
    "build_cost_percent": 10.0,
    "benchmark_percent": 10.0,
    "unexecuted_pairs": 1,
    "removed_symbols": 0,
}


def times(moment: datetime) -> dict[str, Any]:
    return {"started_at": moment, "finished_at": moment}


def now() -> dict[str, Any]:
    return times(datetime.now(UTC))


def base(release: Release, *rows: PlatformResult, **changes: Any) -> None:
    """A newer run of the last release."""
    release.project.run(git(release.project.source, "rev-parse", "v1.0"), *rows, **changes)


def test_a_go_has_every_rule(release: Release) -> None:
    outcomes = TESTS | OPERATORS
    base(release, benchmark(1.0), outcomes=outcomes)
    run_id = release.run(benchmark(1.05), outcomes=outcomes, **now())
    decision = release.decide("HEAD", "--tag", "v1.1", **ALL)
    assert decision.verdict == "go", decision.failed
    assert decision.exit_code == ExitCode.PASSED
    assert {it.rule for it in decision.rules} == {*ReleaseRule} - {ReleaseRule.WAIVERS}
    assert {it.outcome for it in decision.rules} == {OutcomeKind.PASSED}
    assert decision.commit == release.project.main
    assert decision.tag == "v1.1"
    assert evidence(decision, "commit").endswith("; tag v1.1 does not exist yet")
    [run] = decision.runs
    assert (run.run_id, run.platforms) == (run_id, ("cpu",))


SELECTED = {**ENVIRONMENT, "selection": {"operators": "add"}}
FAILED = made_verdict(Product.FAILED, "1 test failed")
LOST = made_verdict(Product.INCOMPLETE, "the agent was lost", harness=Harness.LOST)
OLD = {
    "started_at": datetime(2026, 1, 1, tzinfo=UTC),
    "finished_at": datetime(2026, 1, 2, tzinfo=UTC),
}
FUTURE = {
    "started_at": datetime(2900, 1, 1, tzinfo=UTC),
    "finished_at": datetime(2900, 1, 2, tzinfo=UTC),
}


@pytest.mark.parametrize(
    ("rule", "platform", "run", "policy", "text"),
    [
        ("result", row(verdict=FAILED), {}, {}, "failed in run run-001: 1 test failed"),
        ("result", row(verdict=LOST), {}, {}, "incomplete in run run-001: the agent was lost"),
        ("real-device", row(simulated=True), {}, {}, "simulated, expected the real device"),
        ("whole", row(environment=SELECTED), {}, {}, "only add, expected all operators"),
        ("commit", row(), {"commit": None}, {}, "unknown: the sources of the run were no git"),
        ("clean", row(), {"commit": None}, {}, "unknown: the sources of the run were no git"),
        ("clean", row(), {"dirty": True}, {}, "uncommitted changes, expected none"),
        ("age", row(), OLD, {"oldest_days": 0.01}, "days, at most 0.01"),
        ("age", row(), FUTURE, {}, "hours in the future"),
        ("executed", row(), {}, {"least_executed": 0.51}, "50.0 % of the tests ran, at least 51 %"),
        ("executed", row(pytest=None), {}, {}, "no test is recorded"),
        ("skips", row(), {}, {"skips": ["no device*"]}, "1 test skipped for other reasons: 'no re"),
        ("skips", row(), {"outcomes": {}}, {"skips": ["*"]}, "the per-test log is missing"),
        ("installed", row(distributions=()), {}, {}, "no installed wheel is recorded"),
        ("installed", row(distributions=(wheel(installed=False),)), {}, {}, "no installed wheel"),
        ("installed", row(distributions=(sdist("0"),)), {}, {}, "no installed wheel"),
        ("regression", row(), {"outcomes": {}}, {}, "run run-001 has no per-test log"),
    ],
)
def test_a_broken_rule_is_no_go(
    release: Release,
    rule: str,
    platform: PlatformResult,
    run: Mapping[str, Any],
    policy: Mapping[str, Any],
    text: str,
) -> None:
    release.run(platform, **run)
    decision = release.decide("run-001", **policy)
    assert rule in broken(decision)
    assert text in evidence(decision, rule)
    assert decision.exit_code == ExitCode.PRODUCT_FAILURE
    # Without the change of the run or the limit, it is met.
    again = release.run(**now())
    met = release.decide(again, skips=["no *"], least_executed=0.5, oldest_days=1.0)
    assert met.verdict == "go", met.failed
    assert kinds(met, rule) == [OutcomeKind.PASSED]


def test_quarantined_tests_have_a_limit(release: Release) -> None:
    finding = on_rows.quarantined(2, ["vendor 17"])
    run_id = release.run(row(findings=(finding,)))
    assert broken(release.decide(run_id)) == {"quarantines"}
    assert release.decide(run_id, quarantined=2).verdict == "go"


def test_all_platforms_are_of_one_commit(release: Release) -> None:
    cpu = release.run()
    nvidia = release.run(row(platform="nvidia"), commit="f" * 40)
    policy = {"required": ["cpu", "nvidia"], "baseline": "optional"}
    decision = release.decide(cpu, nvidia, **policy)
    assert broken(decision) == {"commit"}
    assert evidence(decision, "commit", "nvidia") == (
        f"ffffffffffff, expected {release.project.main[:12]}"
    )
    assert decision.commit is None
    nvidia = release.run(row(platform="nvidia"))
    assert release.decide(cpu, nvidia, **policy).commit == release.project.main


def test_an_informational_platform_does_not_name_the_commit(release: Release) -> None:
    """Also if its name comes first."""
    other = release.run(row(platform="ascend"), commit="f" * 40)
    decision = release.decide(release.run(), other, informational=["ascend"])
    assert decision.verdict == "go"
    assert decision.commit == release.project.main
    assert kinds(decision, "commit", "ascend") == [OutcomeKind.INFORMATIONAL]


def test_a_commit_that_is_none(release: Release) -> None:
    decision = release.decide(release.run(commit="x" * 64))
    assert {"commit", "clean", "baseline"} == broken(decision)
    assert decision.commit is None


def test_a_tag_that_exists_names_the_commit(release: Release) -> None:
    run_id = release.run()
    git(release.project.source, "tag", "v1.1")
    assert release.decide(run_id, "--tag", "v1.1").verdict == "go"
    decision = release.decide("v1.0", "--tag", "v1.1", baseline="optional")
    assert broken(decision) == {"commit"}
    assert evidence(decision, "commit").endswith(f"{release.project.main[:12]} of tag v1.1")


def test_a_required_platform_without_a_run(release: Release) -> None:
    run_id = release.run()
    decision = release.decide(run_id, required=["cpu", "nvidia"], informational=["ascend"])
    assert broken(decision) == {"result"}
    assert evidence(decision, "result", "nvidia") == "no run of it is among the named runs"
    assert kinds(decision, "result", "ascend") == [OutcomeKind.INFORMATIONAL]
    assert decision.exit_code == ExitCode.PRODUCT_FAILURE


def test_an_informational_platform_decides_nothing(release: Release) -> None:
    ascend = row(platform="ascend", verdict=FAILED, simulated=True)
    decision = release.decide(release.run(row(), ascend), informational=["plugins"])
    assert decision.verdict == "go"
    for rule in ("result", "real-device", "baseline"):
        assert kinds(decision, rule, "ascend") == [OutcomeKind.INFORMATIONAL]


def test_a_simulated_run_does_not_replace_a_real_one(release: Release) -> None:
    real = release.run()
    simulated = release.run(row(simulated=True))
    assert release.decide(real, simulated).verdict == "go"


def test_selected_operators_that_fail_later(release: Release) -> None:
    whole = release.run()
    narrow = release.run(row(environment=SELECTED, verdict=FAILED))
    decision = release.decide(whole, narrow)
    assert broken(decision) == {"result"}
    assert evidence(decision, "result") == f"later runs did not pass: {narrow} (add)"
    again = release.run()
    assert release.decide(whole, narrow, again).verdict == "go"


# Compared with the last release


def test_the_last_release_is_required(release: Release) -> None:
    run_id = release.run()
    decision = release.decide(run_id, tags="release-*")
    assert broken(decision) == {"baseline"}
    assert "git finds no tag 'release-*' before commit" in evidence(decision, "baseline")
    assert kinds(decision, "regression") == [OutcomeKind.INFORMATIONAL]
    assert release.decide(run_id, tags="release-*", baseline="optional").verdict == "go"
    decision = release.decide(run_id, "--against", "run-000", tags="release-*")
    assert evidence(decision, "baseline") == "run run-000"
    assert "compared with itself" in evidence(
        release.decide("run-000", "--against", "run-000"), "baseline"
    )


def test_the_last_release_has_no_run_of_a_platform(release: Release) -> None:
    run_id = release.run(row(), row(platform="nvidia"))
    decision = release.decide(run_id, required=["cpu", "nvidia"])
    assert broken(decision) == {"baseline"}
    assert "the last release has no run of nvidia" in evidence(decision, "baseline", "nvidia")


def test_selected_operators_are_no_last_release(release: Release) -> None:
    release.run(row(environment=SELECTED))
    git(release.project.source, "tag", "v1.1")
    release.project.commit()
    decision = release.decide(release.run())
    assert broken(decision) == {"baseline"}
    assert "has no run of cpu as a whole" in evidence(decision, "baseline")


def test_the_newest_tag_is_the_last_release(release: Release) -> None:
    release.run()
    git(release.project.source, "tag", "v1.1")
    commit = release.project.commit()
    decision = release.decide(release.project.run(commit, row()))
    assert kinds(decision, "baseline") == [OutcomeKind.PASSED]
    git(release.project.source, "tag", "v1.2")
    release.project.commit()
    release.project.commit()
    git(release.project.source, "tag", "v1.3", "HEAD^")
    decision = release.decide(release.run())
    assert "v1.3: commit" in evidence(decision, "baseline")


def test_only_a_regression_of_tests(release: Release) -> None:
    run_id = release.run(outcomes={"test_a.py::test_two": Outcome.SKIPPED})
    decision = release.decide(run_id)
    assert broken(decision) == {"regression"}
    assert evidence(decision, "regression") == "since run run-000: 1 test vanished"
    assert decision.exit_code == ExitCode.REGRESSION
    # Another rule that is broken, too, is no regression.
    decision = release.decide(run_id, least_executed=0.9)
    assert decision.exit_code == ExitCode.PRODUCT_FAILURE


def test_a_new_stage_is_a_rise_of_the_build(release: Release) -> None:
    new = StageResult(
        name="generate", seconds=1.0, cpu_user_s=50.0, cpu_system_s=0.0, exit_code=0, in_total=True
    )
    run_id = release.run(row(stages=(*row().stages, new)))
    decision = release.decide(run_id, build_cost_percent=10.0)
    assert broken(decision) == {"build-cost"}
    assert "CPU seconds of install, generate +50 CPU-s" in evidence(decision, "build-cost")


def test_the_cost_of_the_build_has_a_limit(release: Release) -> None:
    slow, slower = release.run(row(109.0)), release.run(row(140.0))
    assert release.decide(slow, build_cost_percent=10.0).verdict == "go"
    decision = release.decide(slower, build_cost_percent=10.0)
    assert broken(decision) == {"build-cost"}
    assert evidence(decision, "build-cost").startswith("CPU seconds of install +120 CPU-s (+39 %)")
    assert decision.exit_code == ExitCode.REGRESSION
    other = release.run(row(environment={**ENVIRONMENT, "compiler": "g++ 14"}))
    decision = release.decide(other, build_cost_percent=10.0)
    assert evidence(decision, "build-cost").startswith("not comparable: ")
    assert decision.exit_code == ExitCode.PRODUCT_FAILURE


@pytest.mark.parametrize(
    ("direction", "good", "bad"), [(Direction.LOWER, 1.09, 1.12), (Direction.HIGHER, 0.92, 0.88)]
)
def test_a_benchmark_has_a_limit(
    release: Release, direction: Direction, good: float, bad: float
) -> None:
    base(release, benchmark(1.0, direction))
    met, worse = (release.run(benchmark(it, direction)) for it in (good, bad))
    assert release.decide(met, benchmark_percent=10.0).verdict == "go"
    decision = release.decide(worse, benchmark_percent=10.0)
    assert broken(decision) == {"benchmarks"}
    assert decision.exit_code == ExitCode.REGRESSION


def test_a_benchmark_that_is_missing(release: Release) -> None:
    run_id = release.run(benchmark(1.0))
    decision = release.decide(run_id, benchmark_percent=10.0)
    assert evidence(decision, "benchmarks") == "no benchmark was measured in both runs"
    base(release, benchmark(1.0))
    decision = release.decide(release.run(benchmark(None)), benchmark_percent=10.0)
    assert evidence(decision, "benchmarks") == "no longer measured: bench: sum"
    assert decision.exit_code == ExitCode.PRODUCT_FAILURE


# The symbols of the last release


def exporting(run: Path, *functions: str) -> PlatformResult:
    """A row with a wheel in the run's folder, whose library has these functions."""
    run.mkdir(parents=True)
    return row(distributions=(kept(run, WHEEL, library(run.parent, *functions)),))


@dataclass
class Exports:
    """The last release, which exports ``a`` and ``b``."""

    release: Release

    @property
    def results(self) -> Path:
        return self.release.project.results

    def add(self, *functions: str, **changes: Any) -> str:
        """A run whose wheel has these functions."""
        run = self.results / f"run-{len(self.release.project.runs):03}"
        return self.release.run(exporting(run, *functions), **changes)


@pytest.fixture
def exports(release: Release) -> Exports:
    found = Exports(release=release)
    found.add("a", "b", commit=git(release.project.source, "rev-parse", "v1.0"))
    return found


def test_a_removed_symbol_is_no_go(exports: Exports) -> None:
    kept_all, gone = exports.add("b", "a", "c"), exports.add("a", "c")
    met = exports.release.decide(kept_all, removed_symbols=0)
    assert met.verdict == "go", met.failed
    assert evidence(met, "symbols") == "0 exported symbols removed since run run-001, at most 0"
    decision = exports.release.decide(gone, removed_symbols=0)
    assert broken(decision) == {"symbols"}
    assert evidence(decision, "symbols") == (
        "1 exported symbol removed since run run-001, at most 0: b"
    )
    assert decision.exit_code == ExitCode.REGRESSION
    assert exports.release.decide(gone, removed_symbols=1).verdict == "go"
    assert kinds(exports.release.decide(gone), "symbols") == []  # not asked for


def test_a_removed_symbol_that_is_waived(exports: Exports) -> None:
    exports.release.waive("symbols")
    decision = exports.release.decide(exports.add("a"), removed_symbols=0)
    assert decision.verdict == "go", decision.failed
    assert kinds(decision, "symbols") == [OutcomeKind.WAIVED]


def test_symbols_of_runs_that_are_files(release: Release, tmp_path: Path) -> None:
    runs = []
    for digits, functions in (("00aa", ("a", "b")), ("00bb", ("a",))):
        run = tmp_path / digits / f"{RUN_ID[:-4]}{digits}"
        found = exporting(run, *functions)
        runs.append(foreign(release, run.parent, found, digits=digits))
    decision = release.decide(runs[1], "--against", runs[0], removed_symbols=0)
    assert broken(decision) == {"symbols"}
    assert evidence(decision, "symbols").endswith(f"since run {runs[0].name}, at most 0: b")


@pytest.mark.parametrize("side", [0, 1], ids=["the last release", "this one"])
@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (lambda path: path.unlink(), f"{WHEEL} is not in "),
        (lambda path: path.write_bytes(b"another"), f"{WHEEL} is not the file that was tested"),
    ],
    ids=["gone", "another"],
)
def test_a_wheel_that_proves_nothing(
    exports: Exports, side: int, damage: Callable[[Path], object], text: str
) -> None:
    runs = ["run-001", exports.add("a", "b", "c")]
    damage(exports.results / runs[side] / "cpu" / "dist" / WHEEL)
    decision = exports.release.decide(runs[1], removed_symbols=0)
    assert broken(decision) == {"symbols"}
    assert evidence(decision, "symbols").startswith("not comparable: ")
    assert text in evidence(decision, "symbols")
    assert decision.exit_code == ExitCode.PRODUCT_FAILURE


@pytest.mark.parametrize(
    ("files", "text"),
    [
        ((), "0 wheels of tiny, expected one"),
        ((wheel("other-1-py3-none-any.whl"),), "0 wheels of tiny, expected one"),
        ((wheel(), wheel("tiny-1.3-py3-none-any.whl")), "2 wheels of tiny, expected one"),
        ((wheel(digit="1"),), f"{WHEEL} is not in "),  # which names no file that was kept
    ],
)
def test_a_release_without_a_wheel_to_compare(
    exports: Exports, files: tuple[Distribution, ...], text: str
) -> None:
    decision = exports.release.decide(
        exports.release.run(row(distributions=files)), removed_symbols=0
    )
    assert "symbols" in broken(decision)
    assert text in evidence(decision, "symbols")


def test_a_last_release_without_a_wheel(exports: Exports) -> None:
    base(exports.release, row(distributions=()))
    decision = exports.release.decide(exports.add("a"), removed_symbols=0)
    assert broken(decision) == {"symbols"}
    text = "not comparable: the last release kept no wheel"
    assert evidence(decision, "symbols") == text


def test_symbols_without_a_last_release(release: Release) -> None:
    decision = release.decide(release.run(), removed_symbols=0, tags="none-*")
    assert broken(decision) == {"baseline"}
    assert kinds(decision, "symbols") == [OutcomeKind.INFORMATIONAL]


# The whole release


@pytest.mark.parametrize(
    ("cpu", "nvidia", "text"),
    [
        ([wheel()], [wheel("tiny-1.3-py3-none-any.whl")], "tiny: version 1.2 on cpu and 1.3 on nv"),
        ([wheel(), sdist("1")], [wheel(), sdist("2")], "tiny-1.2.tar.gz: SHA-256 111111111111 on"),
        ([wheel(), sdist("1", "tiny-1.tar.gz")], [wheel()], "tiny: version 1.2 on cpu, nvidia and"),
        ([wheel(given=True)], [wheel(digit="1", given=True)], f"{WHEEL}: SHA-256 000000000000 on"),
        ([wheel()], [wheel("tiny.whl")], "nvidia: tiny.whl is no name of a wheel or an sdist"),
    ],
)
def test_platforms_contradict_each_other(
    release: Release, cpu: list[Distribution], nvidia: list[Distribution], text: str
) -> None:
    rows = row(distributions=cpu), row(platform="nvidia", distributions=nvidia)
    decision = release.decide(release.run(*rows), required=["cpu", "nvidia"], baseline="optional")
    assert broken(decision) == {"artifacts"}
    assert text in evidence(decision, "artifacts", None)


def test_one_set_of_artifacts(release: Release) -> None:
    """Each platform may build a wheel of its own."""
    own = wheel("tiny-1.2+cu130-cp311-cp311-linux_x86_64.whl", "3")
    rows = (
        row(
            distributions=(
                wheel(given=True),
                sdist("1"),
                wheel("tiny-1.0-py3-none-any.whl", installed=False),
            )
        ),
        row(platform="nvidia", distributions=(own, sdist("1"))),
    )
    decision = release.decide(release.run(*rows), required=["cpu", "nvidia"], baseline="optional")
    assert decision.verdict == "go", decision.failed
    assert f"{WHEEL} (given)" in evidence(decision, "installed")
    assert f"{own.name} (built)" in evidence(decision, "installed", "nvidia")


def test_an_overload_and_dtype_that_no_platform_executed(release: Release) -> None:
    cpu = release.run(outcomes=OPERATORS)
    decision = release.decide(cpu, unexecuted_pairs=0, **ALONE)
    assert broken(decision) == {"capabilities"}
    assert evidence(decision, "capabilities", None) == (
        "1 of 2 pairs of overload and dtype were executed by no platform, at most 0:"
        " add.out float16"
    )
    executed = {name.replace("-cpu-", "-cuda-"): Outcome.PASSED for name in OPERATORS}
    policy = {"informational": ["nvidia"], "unexecuted_pairs": 0, **ALONE}
    simulated = release.run(row(platform="nvidia", simulated=True), outcomes=executed)
    assert broken(release.decide(cpu, simulated, **policy)) == {"capabilities"}
    real = release.run(row(platform="nvidia"), outcomes=executed)
    assert release.decide(cpu, real, **policy).verdict == "go"
    without = release.run()
    decision = release.decide(without, unexecuted_pairs=0)
    assert evidence(decision, "capabilities", None) == "no operator test is recorded"


# Waivers


def test_a_waived_rule(release: Release) -> None:
    release.waive("executed")
    release.waive("result", "nvidia")
    decision = release.decide(release.run(), least_executed=0.9, required=["cpu", "nvidia"])
    assert decision.verdict == "go"
    [found] = [it for it in decision.rules if it.rule is ReleaseRule.EXECUTED]
    assert found.outcome is OutcomeKind.WAIVED
    assert found.waiver is not None
    assert (found.waiver.reason, found.waiver.owner) == ("a known defect", "@lab")
    assert evidence(decision, "waivers", None) == "2 waivers used"


def test_an_expired_waiver(release: Release) -> None:
    release.waive("executed", until="2026-01-01")
    decision = release.decide(release.run(), least_executed=0.9)
    assert broken(decision) == {"executed", "waivers"}
    expired = "executed on cpu: expired on 2026-01-01 (owner: @lab)"
    assert evidence(decision, "waivers", None) == expired
    assert broken(release.decide("latest")) == {"waivers"}  # also if nothing needs it


def test_a_waiver_that_is_not_needed(release: Release) -> None:
    release.waive("executed")
    release.waive("artifacts", None)
    decision = release.decide(release.run())
    assert decision.verdict == "go"
    assert kinds(decision, "waivers", None) == [OutcomeKind.INFORMATIONAL] * 2
    assert "executed on cpu: not needed, remove it (owner: @lab)" in decision.to_json()
    assert "artifacts: not needed, remove it" in decision.to_json()


def test_the_policy_has_a_digest(release: Release) -> None:
    run_id = release.run()
    first = release.decide(run_id)
    assert release.decide(run_id).policy_sha256 == first.policy_sha256
    other = release.decide(run_id, quarantined=1)
    release.waive("executed")
    assert (
        len({first.policy_sha256, other.policy_sha256, release.decide(run_id).policy_sha256}) == 3
    )


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"rule": "execute"}, 'waivers.0.rule: got "execute" (string), expected one of'),
        ({"rule": "execute"}, "did you mean 'executed'?"),
        ({"rule": "waivers"}, "expected another rule: waivers cannot be waived"),
        ({"rule": "real-device"}, "expected another rule: a simulated device proves nothing"),
        ({"platform": "nvida"}, "did you mean 'nvidia'?"),
        ({"platfrom": "cpu"}, "waivers.0.platfrom: got an unknown key, expected one of owner"),
        ({"until": "tomorrow"}, 'waivers.0.until: got "tomorrow" (string), expected'),
        ({"owner": " "}, "waivers.0.owner: got"),
    ],
)
def test_a_wrong_waiver_is_a_wrong_configuration(
    release: Release, changes: dict[str, str], text: str
) -> None:
    release.run()
    release.waive("executed")
    release.waivers[0] |= changes
    code, said = release.ci()
    assert code == ExitCode.USAGE
    assert "waivers.yaml:1: " in said
    assert text in said


def test_a_waiver_that_is_there_twice(release: Release) -> None:
    release.run()
    release.waive("executed")
    release.waive("executed", until="2027-01-01")
    code, said = release.ci()
    assert (code, "expected each waiver once, not 'executed on cpu' again" in said) == (2, True)


# Configurations and runs


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("release:", "x: &a\nrelease:", "an unknown key"),
        ('release:\n  waivers: waivers.yaml\n  required: ["cpu"]\n', "", "release: got nothing"),
        ('required: ["cpu"]', 'required: ["nvidai"]', "did you mean 'nvidia'?"),
        ('required: ["cpu"]', "required: []", "release.required"),
        ('required: ["cpu"]', "required: [cpu]\n  informational: [cpu]", "not required, too"),
        ("waivers.yaml", "waiver.yaml", "waiver.yaml: no such file"),
        ("project: tiny", "project: other", "waivers.yaml: project: got 'tiny', expected 'other'"),
    ],
)
def test_a_wrong_configuration(release: Release, old: str, new: str, text: str) -> None:
    release.configure({})
    config = release.project.source / "ci.yaml"
    assert old in config.read_text()
    config.write_text(config.read_text().replace(old, new))
    code, said = release.project.ci("gate", "--source", str(release.project.source))
    assert code == ExitCode.USAGE
    assert text in said


def test_a_run_of_another_project(release: Release) -> None:
    run_id = release.run(project="other")
    code, said = release.ci(run_id)
    assert (code, f"run {run_id}: got project 'other', expected 'tiny'" in said) == (2, True)
    code, said = release.ci("no-such-run")
    assert (code, "the store holds no run 'no-such-run'" in said) == (2, True)
    code, said = release.ci("--tag", "x y")
    assert (code, "--tag: got 'x y', expected up to 64 letters" in said) == (2, True)
    code, said = release.ci("run-000", "--output", "/no/such/folder/file")
    assert (code, "got no folder /no/such/folder" in said) == (2, True)


def test_the_usual_file_of_a_decision(release: Release) -> None:
    release.run()
    release.ci("--tag", "release/1.1")
    assert (release.project.results / "decision-release-1.1.json").is_file()
    release.ci()
    assert (release.project.results / f"decision-{release.project.main}.json").is_file()


# Runs that are files


def foreign(release: Release, folder: Path, *rows: PlatformResult, digits: str = "00ff") -> Path:
    """The folder of a run as another machine leaves it, with two tests."""
    run_id = f"{RUN_ID[:-4]}{digits}"
    moment = datetime.now(UTC) - timedelta(minutes=5)
    run = RunResult(
        run_id=run_id,
        project="tiny",
        commit=release.project.main,
        dirty=False,
        engine="host",
        platforms=rows,
        **times(moment),
    )
    return write_run(folder / run_id, run)


def test_runs_of_the_store_and_of_other_machines(release: Release, tmp_path: Path) -> None:
    cpu = release.run()
    labs = tmp_path / "labs"
    nvidia = foreign(release, labs, row(platform="nvidia"))
    ascend = foreign(release, labs, row(platform="ascend"), digits="00aa")
    policy = {"required": ["cpu", "nvidia", "ascend"], "baseline": "optional"}
    decision = release.decide(cpu, labs, **policy)
    assert decision.verdict == "go", decision.failed
    assert [(it.run_id, it.platforms) for it in decision.runs] == [
        (ascend.name, ("ascend",)),
        (nvidia.name, ("nvidia",)),
        (cpu, ("cpu",)),
    ]
    digest = hashlib.sha256((nvidia / "results.json").read_bytes()).hexdigest()
    assert decision.runs[1].sha256 == digest
    assert release.decide(cpu, nvidia, ascend / "results.json", **policy).verdict == "go"
    with Store(default_url(release.project.results)) as store:
        assert nvidia.name not in {it.run_id for it in store.heads()}


def test_a_file_alone_has_no_tests(release: Release, tmp_path: Path) -> None:
    run = foreign(release, tmp_path, row())
    alone = tmp_path / "lab.json"
    (run / "results.json").rename(alone)
    decision = release.decide(alone, skips=["*"], **ALONE)
    assert broken(decision) == {"skips"}
    assert release.decide(alone, **ALONE).verdict == "go"


def test_stores_of_two_machines(release: Release, tmp_path: Path) -> None:
    """No store is here: the folders of both came by hand, with a baseline."""
    here, other = tmp_path / "here", tmp_path / "other"
    foreign(release, here, row())
    foreign(release, other, row(platform="nvidia"), digits="00aa")
    before = tmp_path / "before"
    rows = row(), row(platform="nvidia")
    foreign(release, before, *rows, digits="00bb")
    release.project = Project(folder=tmp_path / "empty")
    (tmp_path / "empty" / "source").mkdir(parents=True)
    decision = release.decide(
        here, other, "--against", before, required=["cpu", "nvidia"], build_cost_percent=1.0
    )
    assert decision.verdict == "go", decision.failed
    assert kinds(decision, "regression", "nvidia") == [OutcomeKind.PASSED]
    code, said = release.ci("latest")
    assert (code, "contains no results yet" in said) == (2, True)


def test_the_baseline_in_the_store_is_compared_with_a_file(
    release: Release, tmp_path: Path
) -> None:
    run = foreign(release, tmp_path / "lab", row())
    decision = release.decide(run)
    assert broken(decision) == {"regression"}
    assert "run run-000 has no folder in" in evidence(decision, "regression")
    known = foreign(release, tmp_path / "copy", row(), digits="00bb")
    release.project.ci("import", str(known.parent))
    decision = release.decide(run, "--against", known.name)
    assert decision.verdict == "go", decision.failed


def test_files_that_are_no_results(release: Release, tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text("{}")
    code, said = release.ci(tmp_path / "results.json")
    assert (code, "schema_version: got None" in said) == (ExitCode.INFRASTRUCTURE, True)
    (tmp_path / "lab.json").write_text("[" * 10_000)
    assert release.ci(tmp_path / "lab.json")[0] == ExitCode.INFRASTRUCTURE
    (tmp_path / "empty").mkdir()
    assert release.ci(tmp_path / "empty")[0] == ExitCode.USAGE


def test_one_run_with_two_results(release: Release, tmp_path: Path) -> None:
    first = foreign(release, tmp_path / "a", row())
    second = foreign(release, tmp_path / "b", row(200.0))
    code, said = release.ci(first, second)
    assert code == ExitCode.USAGE
    assert f"run {first.name} is already here with other results" in said
    assert release.decide(first, first, **ALONE).verdict == "go"


def test_a_file_that_the_store_contradicts(release: Release, tmp_path: Path) -> None:
    run = foreign(release, tmp_path / "lab", row())
    release.project.ci("import", str(run))
    own = release.project.results / run.name / "results.json"
    own.write_text(own.read_text().replace('"dirty": false', '"dirty": true'))
    code, said = release.ci(run.name, baseline="optional")
    assert code == ExitCode.INFRASTRUCTURE
    assert f"got other results than the store has of run {run.name}" in said


# Where a decision is shown


def test_a_page_for_a_forge_shows_the_decision_about_its_run(release: Release) -> None:
    first, second = release.run(), release.run()
    where = ("--source", str(release.project.source), "--format", "github")
    assert "no-go" not in release.project.ci("report", second, *where)[1]
    release.ci(second, "--tag", "v1.1", least_executed=0.9)
    page = release.project.ci("report", second, *where)[1]
    assert "release v1.1: **no-go**, 1 rule failed" in page
    assert "* failed: cpu: executed: 50.0 % of the tests ran, at least 90 %" in page
    assert "no-go" not in release.project.ci("report", first, *where)[1]


def test_the_dashboard_shows_the_newest_decision(release: Release) -> None:
    run_id, output = release.run(), release.project.folder / "pages"
    where = ("--source", str(release.project.source), "--output", str(output))
    (release.project.results / "decision-damaged.json").write_text("{")
    release.project.ci("dashboard", *where)
    assert "decision-title" not in (output / "index.html").read_text()
    release.waive("executed")
    limits = {"skips": ["<b>*"], "least_executed": 0.9, "informational": ["nvidia"]}
    release.ci(run_id, "--tag", "v1.1", **limits)
    release.project.ci("dashboard", *where)
    page = (output / "index.html").read_text()
    assert "Release v1.1: no-go</h2>" in page
    reason = "1 test skipped for other reasons: &#39;no reason&#39; (1)"
    assert f'<td class="whole">skips</td><td>{reason}</td>' in page
    assert "1 rule failed, 1 rule waived</p>" in page
    assert "<p>Required: cpu. Informational: nvidia</p>" in page
    assert "at least 90 %. Waived: a known defect (@lab, until 2999-12-31)</td>" in page
