"""The command ``bisect`` with simulated runs: its wrong ends, its answers, its progress.

tests/e2e/test_bisect.py has real runs.
"""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ci.errors import ConfigError, ExitCode, UsageError
from ci.facts.sentences.on_stages import stage_left_out
from ci.model.outcomes import Outcome
from ci.model.results import BenchmarkResult, Direction, PlatformResult, RunResult, StageResult
from ci.model.verdicts import Harness, Product, Verdict
from ci.plan.planning import RunOptions
from ci.run.commit_runs import Checkout, temporary_checkout
from ci.store.folder import open_store
from ci.store.rows import RunMeasures
from ci.store.store import Store
from ci.util.files import user_cache
from tests.ci.made_results import made_verdict
from tests.ci.stored_history import ENVIRONMENT, Project, git, result

Patch = pytest.MonkeyPatch

CONFIG = """\
project: tiny
platforms:
  cpu: {}
stages:
- {name: pytest, kind: pytest, command: python -m pytest}
"""


LAST = 17


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """18 commits of ``main``, ``c0`` to ``c17``, and ``topic``, forked from ``c1``."""
    project = Project(folder=tmp_path_factory.mktemp("bisect"))
    for place in range(LAST + 1):
        if place == 1:
            (project.source / "ci.yaml").write_text(CONFIG, encoding="utf-8")
            git(project.source, "add", ".")
        project.commit(f"Commit {place}")
        git(project.source, "tag", f"c{place}")
    project.branch("topic", "c1")
    project.commit("topic")
    project.branch("main")
    return project


@pytest.fixture
def project(repository: Project, tmp_path: Path, monkeypatch: Patch) -> Iterator[Project]:
    """A copy of it, whose worktrees are gone at the end."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    project = repository.copy(tmp_path)
    yield project
    assert len(git(project.source, "worktree", "list").splitlines()) == 1


def refused(project: Project, *words: str, source: Path | None = None) -> str:
    config = project.source / "ci.yaml"
    options = ("--source", str(source or project.source), "--config", str(config))
    code, error = project.ci("bisect", *words, *options)
    assert code == ExitCode.USAGE
    return error


@pytest.mark.parametrize(
    ("good", "bad", "message"),
    [
        ("missing", "main", ": no commit 'missing'\nName a commit, a branch or a tag"),
        ("c1", "0123abcd", ": no commit '0123abcd'\nName a commit, a branch or a tag"),
        ("main", "main", "--good and --bad: got commit "),
        ("main", "c1", "on its line of first parents\nName a commit that `git log "),
        ("topic", "main", "on its line of first parents\nName a commit that `git log "),
    ],
)
def test_ends_without_commits_between(project: Project, good: str, bad: str, message: str) -> None:
    error = refused(project, "cpu", "--good", good, "--bad", bad)
    assert message in error
    assert "shallow" not in error


def test_a_shallow_clone(project: Project) -> None:
    clone, first = project.folder / "clone", git(project.source, "rev-parse", "c1")
    git(project.folder, "clone", "--quiet", "--depth=1", project.source.as_uri(), str(clone))
    error = refused(project, "cpu", "--good", first, "--bad", "HEAD", source=clone)
    assert f"--good: {clone}: no commit '{first}'" in error
    assert f"{clone} is a shallow clone. Fetch its history: git fetch --unshallow" in error


def test_other_wrong_options(project: Project) -> None:
    ends = ("--good", "c1", "--bad", "main")
    assert "unknown platform 'cpx', configured: cpu; did" in refused(project, "cpx", *ends)
    error = refused(project, "cpu", *ends, "--warm", "--test", "tests/test_it.py::test_sum")
    assert (
        "--warm: cannot be combined with --test: the cache changes only times\nLeave out --warm."
        in error
    )
    outside = project.folder / "outside"
    outside.mkdir()
    error = refused(project, "cpu", *ends, source=outside)
    assert f"--good: {outside}: fatal: not a git repository" in error


def test_a_killed_search_leaves_nothing_to_the_next(project: Project) -> None:
    left = user_cache() / "search" / "source"
    others = project.folder / "unmounted"
    for folder in (left, others):
        git(project.source, "worktree", "add", "--quiet", "--detach", str(folder))
    shutil.rmtree(others)
    config = project.source / "ci.yaml"
    with temporary_checkout(project.source, config, "search") as checkout:
        assert checkout.source == left
        assert checkout.config == left / "ci.yaml"
        with (
            pytest.raises(UsageError, match="search search is still running"),
            temporary_checkout(project.source, config, "search"),
        ):
            pass
        assert left.exists()
    assert not left.parent.exists()
    assert str(others) in git(project.source, "worktree", "list")
    git(project.source, "worktree", "prune")


TEST = "tests/test_it.py::test_sum"


class Runs:
    """Simulated runs of the commits; the real ones take seconds to hours."""

    def __init__(self, project: Project, monkeypatch: Patch) -> None:
        self.project = project
        tags = [f"c{place}" for place in range(LAST + 1)]
        self.commits = git(project.source, "rev-parse", *tags).split()
        self.row: Callable[[int], PlatformResult] = lambda _: result()
        self.outcome: Callable[[int], Outcome] = lambda _: Outcome.PASSED
        self.places: list[int] = []
        monkeypatch.setattr(Checkout, "run", lambda _, commit, *__: self.run(commit))

    def run(self, commit: str) -> RunResult:
        self.places.append(self.commits.index(commit))
        row = self.row(self.places[-1])
        tests = {TEST: self.outcome(self.places[-1])} if row.built else {}
        run_id = self.project.run(commit, row, outcomes=tests)
        with open_store(self.project.results) as store:
            return store.load(run_id)

    def bisect(self, *words: str) -> tuple[int, str]:
        ends = ("--good", "c0", "--bad", f"c{LAST}")
        return self.project.ci("bisect", "cpu", *ends, "--source", str(self.project.source), *words)

    def answer(self, *words: str) -> dict[str, Any]:
        code, output = self.bisect("--format", "json", *words)
        assert code == ExitCode.PASSED
        answer: dict[str, Any] = json.loads(output)
        return answer


@pytest.fixture
def runs(project: Project, monkeypatch: Patch) -> Runs:
    return Runs(project, monkeypatch)


def slower_since(place: int, noise: float = 0.01) -> Callable[[int], PlatformResult]:
    noisy = random.Random(1)  # noqa: S311
    return lambda at: result(100 * (1 + 0.2 * (at >= place)) * noisy.lognormvariate(0, noise))


def unbuilt(verdict: Verdict) -> PlatformResult:
    return result(built=False, verdict=verdict, stages=(), build_install_s=None)


def test_a_slower_stage(runs: Runs) -> None:
    runs.row = slower_since(12)
    found = runs.answer()
    assert found["first_bad"] == [runs.commits[12]]
    assert found["before"] == runs.commits[11]
    assert found["probability"] >= 0.95
    assert found["measure"] == "install.cpu_s"
    made = len(runs.places)
    assert made <= 12
    code, text = runs.bisect()
    assert code == ExitCode.PASSED
    assert text.startswith(f"cpu: install is slower since commit {runs.commits[12][:12]}, prob")
    assert "Commit 12" in text
    assert len(runs.places) == made


def test_a_small_difference_can_be_read(runs: Runs) -> None:
    def row(place: int) -> PlatformResult:
        seconds = 1.08 if place >= 12 else 1.0
        stage = StageResult(
            name="install",
            seconds=seconds,
            cpu_user_s=seconds,
            cpu_system_s=0.0,
            exit_code=0,
            in_total=True,
        )
        return result(stages=(stage,))

    runs.row = row
    code, text = runs.bisect()
    assert code == ExitCode.PASSED
    rows = [line.split() for line in text.splitlines() if "Commit 1" in line and "CPU-s" in line]
    assert {row[2] for row in rows} == {"1.00", "1.08"}, text


BENCH = """\
- {name: bench, kind: benchmark, command: make bench, benchmarks: out.json}
"""


def benchmarks_since(place: int) -> Callable[[int], PlatformResult]:
    """A third fewer images from a place on, an unsteady sum of some ns, and fewer tests."""
    noisy = random.Random(1)  # noqa: S311

    def row(at: int) -> PlatformResult:
        is_bad = at >= place
        stage = StageResult(name="bench", seconds=1.0, exit_code=0, in_total=False)
        values = {
            "load images": ("images/s", "higher", 1000.0 if is_bad else 1500.0),
            "load a sum": ("s", "lower", 3.09e-7 if is_bad else 3e-7),
            "load zeros": ("", "higher", 0.0 if is_bad else 7.0),
        }
        found = tuple(
            BenchmarkResult(
                stage="bench",
                name=name,
                unit=unit,
                direction=Direction(direction),
                value=value * noisy.lognormvariate(0, 0.005),
            )
            for name, (unit, direction, value) in values.items()
        )
        made = result()
        assert made.pytest is not None
        counts = {"passed": 95 if is_bad else 100, "skipped": 5 if is_bad else 0}
        suite = made.pytest.model_copy(update=counts)
        return result(stages=(*made.stages, stage), benchmarks=found, pytest=suite)

    return row


@pytest.fixture
def with_benchmarks(runs: Runs) -> Runs:
    config = runs.project.source / "ci.yaml"
    config.write_text(CONFIG + BENCH, encoding="utf-8")
    runs.row = benchmarks_since(12)
    return runs


@pytest.mark.parametrize(
    ("words", "title", "levels"),
    [
        (["load images"], "bench: load images is worse", (1000, 1500)),
        (["SUM"], "bench: load a sum is worse", (300, 309)),
        (["bench.lower:s:load a sum"], "bench: load a sum is worse", (300, 309)),
        (["zeros"], "bench: load zeros is worse", (0, 7)),
        (["executed", "--stage", "pytest"], "pytest executed tests is worse", (95, 100)),
    ],
)
def test_a_benchmark(
    with_benchmarks: Runs, words: list[str], title: str, levels: tuple[int, int]
) -> None:
    """In its own direction and unit: 300 ns are less than the resolution of CPU seconds."""
    code, text = with_benchmarks.bisect("--measure", *words)
    assert code == ExitCode.PASSED, text
    since = with_benchmarks.commits[12][:12]
    assert text.startswith(f"cpu: {title} since commit {since}, probability "), text
    rows = [line.split() for line in text.splitlines() if re.match("[0-9a-f]{12} ", line)]
    for row in rows:
        level = levels[(int(row[-1]) < 12) is (title != "bench: load a sum is worse")]
        assert float(row[2].replace(",", "")) == pytest.approx(level, rel=0.03), text
    assert len(with_benchmarks.places) <= 20


@pytest.mark.parametrize(
    ("words", "messages"),
    [
        (
            ["load"],
            ["expected the name of one measure: it is in bench: load a sum, bench: load im"],
        ),
        (["nothing"], ["no measure of 'bench' with 'nothing' in its name. It has: bench", "zeros"]),
        (["a", "--test", TEST], ["--measure: cannot be combined with --test"]),
        (["a", "--stage", "other"], ["it has no measure of 'other'"]),
    ],
)
def test_a_benchmark_that_is_not_one(
    with_benchmarks: Runs, words: list[str], messages: list[str]
) -> None:
    code, text = with_benchmarks.bisect("--measure", *words)
    assert code == ExitCode.USAGE
    for message in messages:
        assert message in text


@pytest.mark.parametrize("words", [[], ["--measure", "zeros"]])
def test_a_stage_that_failed(with_benchmarks: Runs, words: list[str]) -> None:
    failed = StageResult(name="bench", seconds=1.0, exit_code=3, in_total=False)
    with_benchmarks.row = lambda _: result(stages=(*result().stages, failed))
    code, text = with_benchmarks.bisect("--stage", "bench", *words)
    assert code == ExitCode.USAGE
    assert "cannot be judged: stage 'bench' failed with exit code 3\n" in text


def test_a_benchmark_of_unknown_stage(runs: Runs) -> None:
    code, text = runs.bisect("--measure", "a")
    assert code == ExitCode.USAGE
    assert "expected one with benchmarks: no stage has any\nName the stage" in text


def test_a_run_ends_with_the_stage_in_question(runs: Runs, monkeypatch: Patch) -> None:
    options: list[RunOptions] = []

    def run(_: Checkout, commit: str, *asked: Any) -> RunResult:
        options.append(asked[-1])
        return runs.run(commit)

    monkeypatch.setattr(Checkout, "run", run)
    cut = Verdict(
        product=Product.NOT_RUN, harness=Harness.CLEAN, evidence=(stage_left_out("pytest"),)
    )
    slower = slower_since(12)
    runs.row = lambda at: slower(at).model_copy(update={"verdict": cut})
    assert runs.answer()["first_bad"] == [runs.commits[12]]
    assert {it.last_stage for it in options} == {"install"}
    code, shown = runs.project.ci("history", "cpu")
    assert code == ExitCode.PASSED
    assert "nothing to judge" in shown  # few commits, but often, are no history


def test_a_failing_test_with_the_runs_of_an_earlier_search(runs: Runs) -> None:
    runs.row, runs.outcome = (
        slower_since(12),
        lambda at: Outcome.FAILED if at >= 6 else Outcome.PASSED,
    )
    runs.answer()
    made = len(runs.places)
    found = runs.answer("--test", TEST)
    assert found["first_bad"] == [runs.commits[6]]
    assert found["cause"] == "assert <b>"
    assert sum(len(it["runs"]) for it in found["commits"]) > len(runs.places) - made


def test_commits_that_cannot_be_judged_are_stepped_over(runs: Runs) -> None:
    failed = made_verdict(Product.FAILED)
    killed = made_verdict(Product.INCOMPLETE, harness=Harness.OOM_KILLED)
    slower = slower_since(12)

    def row(place: int) -> PlatformResult:
        if place == 7:
            raise ConfigError("ci.yaml:3: no platforms")
        return unbuilt({8: failed, 9: killed}[place]) if place in (8, 9) else slower(place)

    runs.row = row
    found = runs.answer()
    assert found["first_bad"] == [runs.commits[12]]
    skipped = {it["commit"]: it["skipped"] for it in found["commits"] if it["skipped"]}
    assert runs.commits[8] in skipped
    assert {runs.places.count(place) for place in (7, 8, 9)} <= {0, 1}


def test_a_skipped_test_has_not_passed(runs: Runs) -> None:
    def outcome(place: int) -> Outcome:
        skipped = Outcome.SKIPPED if place in (7, 8, 9) else Outcome.PASSED
        return Outcome.FAILED if place >= 10 else skipped

    runs.outcome = outcome
    found = runs.answer("--test", TEST)
    assert found["before"] == runs.commits[6]
    assert found["first_bad"] == runs.commits[7:11]
    assert found["commits"][9]["skipped"] == f"'{TEST}' was skipped"


def test_ends_that_do_not_differ(runs: Runs) -> None:
    runs.row = slower_since(99)
    code, error = runs.bisect()
    assert code == ExitCode.USAGE
    assert "--good and --bad: got no significant difference, expected one: install CPU " in error
    assert error.count(" CPU-s in 10 runs") == 2
    assert len(runs.places) == 20
    code, error = runs.bisect("--test", TEST)
    assert code == ExitCode.USAGE
    # The environment of stored runs is known to be the same after one of the own.
    assert f"{TEST} failed in 0 of 11 and in 0 of 10 runs" in error
    assert len(runs.places) == 21


def test_noise_that_is_too_large(runs: Runs) -> None:
    """Of the commits between, only one builds, and its test fails in half of the runs."""
    failed = made_verdict(Product.FAILED)
    runs.row = lambda place: result() if place in (0, 8, LAST) else unbuilt(failed)

    def outcome(place: int) -> Outcome:
        fails = place == LAST or (place == 8 and runs.places.count(8) % 2)
        return Outcome.FAILED if fails else Outcome.PASSED

    runs.outcome = outcome
    code, text = runs.bisect("--test", TEST)
    assert code == ExitCode.INFRASTRUCTURE
    assert "not sure, which takes 98 %: more runs of these commits do not help" in text
    assert "15 stepped over" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--test", f"{TEST}s"], f"it has no test '{TEST}s'; did you mean '{TEST}'?"),
        (["--stage", "instal"], "it has no measure of the stage 'instal'; did you mean 'install'?"),
        (["--warm"], "--warm: no compilation of run run-000 used a compiler cache\nLeave out"),
    ],
)
def test_what_the_first_run_shows(runs: Runs, words: list[str], message: str) -> None:
    without = {**ENVIRONMENT, "compiler_cache": {"tool": None, "state": None}}
    runs.row = lambda _: result(environment=without)
    code, error = runs.bisect(*words)
    assert code == ExitCode.USAGE
    assert message in error
    assert len(runs.places) == 1


def test_a_filled_compiler_cache(runs: Runs) -> None:
    """The first run of a commit fills the cache: it takes 300 s, whatever the commit."""
    warm = {**ENVIRONMENT, "compiler_cache": {"state": "warm", "hit_rate": 1.0}}
    cold = {**ENVIRONMENT, "compiler_cache": {"state": "cold"}}
    slower = slower_since(12)

    def row(place: int) -> PlatformResult:
        if runs.places.count(place) == 1:
            return result(300.0, environment=cold)
        return slower(place).model_copy(update={"environment": warm})

    runs.row = row
    found = runs.answer("--warm")
    assert found["first_bad"] == [runs.commits[12]]
    used = sum(len(it["runs"]) for it in found["commits"])
    assert used == len(runs.places) - len(set(runs.places))


def test_an_interrupted_search_continues(runs: Runs) -> None:
    slower = slower_since(12)

    def row(place: int) -> PlatformResult:
        if len(runs.places) in (3, 6):
            raise KeyboardInterrupt
        return slower(place)

    runs.row = row
    assert runs.bisect()[0] == ExitCode.INTERRUPTED
    assert runs.bisect()[0] == ExitCode.INTERRUPTED
    assert runs.answer()["first_bad"] == [runs.commits[12]]
    assert len(runs.places) <= 12 + 2


def test_the_store_is_read_once_per_run(runs: Runs, monkeypatch: Patch) -> None:
    readings, measured = 0, Store.measured

    def counted(*arguments: Any, **names: Any) -> list[RunMeasures]:
        nonlocal readings
        readings += 1
        return measured(*arguments, **names)

    monkeypatch.setattr(Store, "measured", counted)
    runs.row = slower_since(12)
    runs.answer()
    assert readings == len(runs.places) + 1  # and once at the beginning


def test_an_engine_that_fails_ends_the_search(runs: Runs) -> None:
    lost = made_verdict(Product.NOT_RUN, harness=Harness.INFRASTRUCTURE)
    slower = slower_since(12)
    runs.row = lambda at: unbuilt(lost) if len(runs.places) == 5 else slower(at)
    assert runs.bisect()[0] == ExitCode.INFRASTRUCTURE
    assert runs.answer()["first_bad"] == [runs.commits[12]]


def test_a_damaged_file_of_progress(runs: Runs) -> None:
    runs.row = slower_since(12)
    runs.answer()
    [file] = runs.project.results.glob("bisect-*.json")
    file.write_text("{", encoding="utf-8")
    code, error = runs.bisect()
    assert code == ExitCode.USAGE
    assert f"{file}: expected the progress of a search" in error
    assert f"mv {file} {file}.old" in error
