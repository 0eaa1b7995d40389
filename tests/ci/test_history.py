"""``python -m ci history`` on a store of generated runs: what was planted is what it says."""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from published import PUBLISHED, platform_result

from ci import cli
from ci.details import BuildDetails, Details, Unit, UnitKind
from ci.errors import ExitCode
from ci.results import BuildResult, PlatformResult, RunResult
from ci.store import default_url
from ci.store.store import Store

BEFORE, AFTER = 12, 8
ENVIRONMENT = {
    "machine": {"cpu_model": "a CPU", "cores": 2, "memory_bytes": 4 << 30},
    "compiler": "g++ 12.2",
    "engine": {"name": "host"},
}


def result(install: float, *, compiler: str = "g++ 12.2", **changes: Any) -> PlatformResult:
    """An NVIDIA run whose install takes so long; everything else is as it was published."""
    label, *row = PUBLISHED[0]
    row[4], row[6] = install, install + row[5]
    environment = {**ENVIRONMENT, "compiler": compiler}
    return platform_result(label, tuple(row), environment=environment, **changes)


def noisy(level: float, count: int, seed: int) -> list[float]:
    noise = random.Random(seed)  # noqa: S311
    return [level * noise.gauss(1, 0.01) for _ in range(count)]


def store_runs(
    results: Path,
    template: RunResult,
    platforms: Sequence[PlatformResult],
    details: Sequence[Details] | None = None,
) -> None:
    with Store(default_url(results)) as store:
        for number, platform in enumerate(platforms):
            started = template.started_at + timedelta(hours=number)
            changes = {
                "run_id": f"run-{number:03}",
                "commit": f"{number:040x}",
                "started_at": started,
                "finished_at": started + timedelta(minutes=30),
                "platforms": (platform,),
            }
            own = {platform.platform: details[number]} if details else {}
            store.save(template.model_copy(update=changes), own)


@dataclass(frozen=True, kw_only=True)
class Ci:
    """The command line on results of its own."""

    results: Path
    capsys: pytest.CaptureFixture[str]

    def history(self, *options: str) -> tuple[int, str]:
        """The exit code, and what is said: on stdout, or as an error."""
        arguments = ["history", *options, "--results", str(self.results)]
        code = cli.main(arguments)
        said = self.capsys.readouterr()
        return code, said.err if code == ExitCode.USAGE else said.out


@pytest.fixture
def ci(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Ci:
    return Ci(results=tmp_path, capsys=capsys)


@pytest.fixture(scope="module")
def slower(tmp_path_factory: pytest.TempPathFactory, release: RunResult) -> Path:
    """A store in which install takes 20 % longer with run 12."""
    results = tmp_path_factory.mktemp("slower")
    installs = [*noisy(900, BEFORE, 1), *noisy(1080, AFTER, 2)]
    store_runs(results, release, [*map(result, installs)])
    return results


@pytest.fixture(scope="module")
def release() -> RunResult:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    return RunResult(
        run_id="",
        project="infini-ops",
        commit=None,
        dirty=False,
        started_at=start,
        finished_at=start,
        engine="host",
        platforms=(),
    )


@pytest.fixture
def regressed(ci: Ci, slower: Path) -> Ci:
    shutil.copy(slower / "ci.db", ci.results)
    return ci


def test_check_tells_what_got_worse_and_between_which_commits(regressed: Ci) -> None:
    code, said = regressed.history("nvidia", "--check")
    assert code == ExitCode.REGRESSION
    assert "1 open regression\n" in said
    assert re.search(r"install \+\d+ s \(\+(19|20|21) %\)", said)
    assert "after run-011 (commit 000000000000), with run-012" in said
    assert re.search(r"with it install \+[\d,]+ CPU-s \(.*\), total \+", said)


def test_the_whole_history_has_a_table_and_exits_with_0(regressed: Ci) -> None:
    code, said = regressed.history("nvidia")
    assert code == ExitCode.PASSED
    assert "infini-ops: nvidia, 20 runs" in said
    assert "environment 1: nvidia; a CPU, 2 cores, 4 GiB; none; g++ 12.2" in said
    assert re.search(
        r"^ *install +wall  +1,0\d\d s +\+(19|20|21) % .* on 2026-01-01 *$", said, re.M
    )
    assert re.search(r"^ *pytest +wall +182 s +- ", said, re.M)


def test_markdown_and_json_say_the_same(regressed: Ci) -> None:
    _, markdown = regressed.history("nvidia", "--format", "markdown")
    assert re.search(r"^\| install \| wall \| 1,0\d\d s \| \+(19|20|21) % \|", markdown, re.M)
    assert re.search(r"^\* install \+\d+ s \(\+\d+ %\)", markdown, re.M)
    code, said = regressed.history("nvidia", "--format", "json", "--check")
    assert code == ExitCode.REGRESSION
    document = json.loads(said)
    assert document["regression"]
    [environment] = document["environments"]
    [shift] = environment["shifts"]
    assert shift["open"]
    assert shift["changes"][0]["measure"] == "install.wall_s"
    assert shift["changes"][0]["first_run_after"]["run_id"] == "run-012"


def test_the_cause_is_told_with_what_got_worse(ci: Ci, release: RunResult) -> None:
    def build(*units: tuple[str, float]) -> Details:
        made = [Unit(output=name, kind=UnitKind.COMPILE, seconds=took) for name, took in units]
        return Details(build=BuildDetails(units=tuple(made)))

    before, after = build(("add.o", 880)), build(("add.o", 880), ("new.o", 180))
    installs = [*noisy(900, 8, 1), *noisy(1080, 8, 2)]
    details = [before] * 8 + [after] * 8
    store_runs(ci.results, release, [*map(result, installs)], details)
    said = ci.history("nvidia", "--check")[1]
    assert re.search(r"install \+\d+ s \(\+20 %\), 180 s of it in 1 new unit", said)


def test_what_is_accepted_alarms_no_more(regressed: Ci) -> None:
    code, said = regressed.history("nvidia", "--accept", "run-012", "--reason", "more operators")
    assert code == ExitCode.PASSED
    assert "accepted: install up to 1,0" in said
    code, said = regressed.history("nvidia", "--check")
    assert code == ExitCode.PASSED
    assert "no open regression" in said
    assert re.search(r"the smallest change that would be seen: install \d", said)
    assert "more operators" in regressed.history("nvidia")[1]


def test_only_what_got_worse_can_be_accepted(regressed: Ci) -> None:
    code, said = regressed.history("nvidia", "--accept", "run-003", "--reason", "no")
    assert code == ExitCode.USAGE
    assert "nothing of nvidia got worse with run 'run-003'" in said
    assert "What did, and is not accepted: run-012." in said


def test_a_stage_alone(regressed: Ci) -> None:
    code, said = regressed.history("nvidia", "--stage", "pytest", "--check")
    assert code == ExitCode.PASSED
    assert "install" not in said


def test_the_last_runs_alone(regressed: Ci) -> None:
    code, said = regressed.history("nvidia", "--last", "6", "--check")
    assert code == ExitCode.PASSED
    assert "infini-ops: nvidia, 6 runs" in said


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["nvidai"], "no run of 'nvidai'; did you mean 'nvidia'?"),
        (["nvidia", "--stage", "instal"], "no measure of 'instal'; did you mean 'install'?"),
        (["nvidia", "--project", "infini-op"], "'infini-op'; did you mean 'infini-ops'?"),
        (["nvidia", "--accept", "run-012"], "--accept: expected a reason, got none"),
        (["nvidia", "--reason", "x"], "--reason: only --accept has one"),
        (["nvidia", "--accept", "run-012", "--reason", "x", "--check"], "one of them"),
    ],
)
def test_a_wrong_command_line_is_told(regressed: Ci, options: list[str], expected: str) -> None:
    code, said = regressed.history(*options)
    assert code == ExitCode.USAGE
    assert expected in said


def test_a_young_rise_is_suspected_and_exits_with_0(ci: Ci, release: RunResult) -> None:
    store_runs(ci.results, release, [*map(result, [*noisy(900, 12, 1), *noisy(1350, 3, 2)])])
    code, said = ci.history("nvidia", "--check")
    assert code == ExitCode.PASSED
    assert "1 suspected regression\n  install +" in said
    assert "young: 2 more runs may confirm it" in said


def test_something_from_nothing_has_no_relative_size(ci: Ci, release: RunResult) -> None:
    lines = [result(900, build=BuildResult(generated_lines=count)) for count in (0, 0, 500)]
    store_runs(ci.results, release, lines)
    said = ci.history("nvidia")[1]
    assert re.search(r"500 lines +from nothing .* from nothing on 2026-01-01", said)
    assert "0 lines -> 500 lines, probability" in said
    assert "Infinity" not in ci.history("nvidia", "--format", "json")[1]


def test_too_few_runs_are_told(ci: Ci, release: RunResult) -> None:
    store_runs(ci.results, release, [result(900), result(1200)])
    code, said = ci.history("nvidia", "--check")
    assert code == ExitCode.PASSED
    assert re.search(
        r"environment 1, 2 runs: too few to judge: it takes \d+ runs before a change", said
    )


def test_runs_that_measured_nothing_are_told(ci: Ci, release: RunResult) -> None:
    store_runs(ci.results, release, [result(900, stages=(), total_s=None)])
    code, said = ci.history("nvidia", "--check")
    assert code == ExitCode.PASSED
    assert "nothing to judge: no stage of 1 run got to its end" in said


def test_a_new_compiler_is_told_and_no_regression(ci: Ci, release: RunResult) -> None:
    newer = [result(install, compiler="g++ 13.1") for install in noisy(1080, AFTER, 2)]
    store_runs(ci.results, release, [*map(result, noisy(900, BEFORE, 1)), *newer])
    code, said = ci.history("nvidia", "--check")
    assert code == ExitCode.PASSED
    said = ci.history("nvidia")[1]
    assert "run-012 (commit 000000000000): compiler changed: g++ 12.2 -> g++ 13.1" in said


def test_simulated_runs_are_no_history_of_real_ones(ci: Ci, release: RunResult) -> None:
    simulated = [result(install, simulated=True) for install in noisy(1080, AFTER, 2)]
    store_runs(ci.results, release, [*map(result, noisy(900, BEFORE, 1)), *simulated])
    code, said = ci.history("nvidia")
    assert code == ExitCode.PASSED
    assert "environment 1: nvidia (simulated); " in said
    assert "environment 2: nvidia; " in said
    assert "changed:" not in said
    assert "no open regression" in said
