"""The command ``rerun-alarm`` with simulated runs: its plan, its answers, its budget.

tests/e2e/test_rerun_alarm.py has real runs.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ci.commands.rerun_alarm import Budget
from ci.errors import ExitCode
from ci.facts.sentences.on_stages import stage_left_out
from ci.model.results import PlatformResult, RunResult
from ci.model.verdicts import Harness, Product, Verdict
from ci.run.commit_runs import Checkout
from ci.store.folder import open_store
from tests.ci.made_results import made_verdict
from tests.ci.stored_history import ENVIRONMENT, Project, expect, git, result

Patch = pytest.MonkeyPatch
LEFT_OUT = (stage_left_out("pytest"),)
PLACE = 12  # of the first commit with the rise
CONFIG = """\
project: tiny
platforms:
  cpu: {}
  nvidia: {base_image: base}
stages:
- {name: install, command: python build.py}
- {name: pytest, kind: pytest, command: python -m pytest}
"""


class Alarmed:
    """A history with an alarm, and simulated runs of its commits; real ones take seconds."""

    def __init__(self, folder: Path, monkeypatch: Patch) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        self.project = Project(folder=folder)
        self.project.commit()
        (self.source / "ci.yaml").write_text(CONFIG, encoding="utf-8")
        git(self.source, "add", ".")
        self.commits: list[str] = []
        self.row: Callable[[str, bool], PlatformResult] = self.level(100, 120)
        self.sides: list[bool] = []
        self.options: list[Any] = []
        monkeypatch.setattr(Checkout, "run", lambda _, *asked: self.run(*asked))

    @property
    def source(self) -> Path:
        return self.project.source

    def measure(
        self, *platforms: str, by: float = 1.2, noise: float = 0.01, runs: int = 20
    ) -> None:
        for place in range(runs):
            seeds = (random.Random(f"{name}{place}") for name in platforms)  # noqa: S311
            level = 100 * (by if place >= PLACE else 1)
            rows = [
                result(level * seed.gauss(1, noise), platform=name)
                for name, seed in zip(platforms, seeds, strict=True)
            ]
            self.commits.append(self.project.measure(*rows))

    @staticmethod
    def level(before: float, since: float, noise: float = 0.01) -> Callable[..., PlatformResult]:
        seed = random.Random(1)  # noqa: S311
        return lambda name, is_since: result(
            (since if is_since else before) * seed.gauss(1, noise), platform=name
        )

    def run(self, commit: str, platform: str, _: Path, options: Any) -> RunResult:
        self.sides.append(self.commits.index(commit) >= PLACE)
        self.options.append(options)
        row = self.row(platform, self.sides[-1])
        if options.last_stage and row.verdict.product is Product.PASSED:
            cut = Verdict(product=Product.NOT_RUN, harness=Harness.CLEAN, evidence=LEFT_OUT)
            row = row.model_copy(update={"verdict": cut})
        mark = {"search": {"command": options.asked_by}}
        row = row.model_copy(update={"environment": {**row.environment, **mark}})
        run_id = self.project.run(commit, row)
        with open_store(self.project.results) as store:
            return store.load(run_id)

    @property
    def names(self) -> list[str]:
        _, said = self.project.ci("history", "--check", "--format", "json")
        return [it["id"] for it in json.loads(said)["alarms"]]

    def rerun(self, *words: str, name: str | None = None) -> tuple[int, str]:
        alarm = name or self.names[0]
        return self.project.ci("rerun-alarm", alarm, "--source", str(self.source), *words)

    def answer(self, *words: str, code: ExitCode) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(
            expect(self.rerun("--format", "json", *words), code=code)
        )
        return answer


@pytest.fixture
def alarmed(tmp_path: Path, monkeypatch: Patch) -> Alarmed:
    return Alarmed(tmp_path, monkeypatch)


def test_a_true_alarm_is_confirmed(alarmed: Alarmed) -> None:
    alarmed.measure("cpu")
    found = alarmed.answer(code=ExitCode.REGRESSION)
    assert found["outcome"] == "confirmed"
    assert (found["before"], found["since"]) == tuple(alarmed.commits[PLACE - 1 : PLACE + 1])
    [row] = found["rows"]
    assert row["measure"].startswith("install.")
    assert 0.15 < row["low"] < 0.2 < row["high"] < 0.25
    assert [len(runs) for runs in row["runs"].values()] == [5, 5]
    assert alarmed.sides == [False, True, True, False, False, True, True, False, False, True]
    assert {(it.last_stage, it.asked_by) for it in alarmed.options} == {("install", "rerun-alarm")}


def test_a_false_alarm_is_not_confirmed(alarmed: Alarmed) -> None:
    alarmed.measure("cpu")
    alarmed.row = alarmed.level(100, 100)
    assert alarmed.answer(code=ExitCode.PASSED)["outcome"] == "not confirmed"
    assert len(alarmed.sides) == 10
    expect(alarmed.rerun(), "not confirmed: install", "95 % interval -", "in 5 and 5 runs")
    assert len(alarmed.sides) == 10


def test_a_small_rise_in_noise_takes_more_runs(alarmed: Alarmed) -> None:
    alarmed.measure("cpu", by=1.1, noise=0.04, runs=40)
    [row] = alarmed.answer("--dry-run", code=ExitCode.PASSED)["rows"]
    assert row["runs_needed"] > 5
    assert 0.02 < row["noise"] < 0.08
    assert not alarmed.sides
    expect(alarmed.rerun("--dry-run"), " of each side show +", " with a power of 95 %")
    alarmed.row = alarmed.level(100, 110, 0.04)
    alarmed.answer(code=ExitCode.REGRESSION)
    assert len(alarmed.sides) == 2 * row["runs_needed"]


def test_a_budget_may_be_too_small(alarmed: Alarmed) -> None:
    alarmed.measure("cpu")
    found = alarmed.answer("--budget", "4", code=ExitCode.INFRASTRUCTURE)
    assert found["outcome"] == "cannot be decided"
    assert len(alarmed.sides) == 4
    assert alarmed.answer(code=ExitCode.REGRESSION)["outcome"] == "confirmed"
    assert len(alarmed.sides) == 10


def test_more_runs_of_what_could_not_be_decided(alarmed: Alarmed) -> None:
    alarmed.measure("cpu")
    values = iter([100, 115, 150, 103, 180, 106, 104, 200, 97, 112])
    usual = alarmed.row
    alarmed.row = lambda name, side: (
        usual(name, side) if len(alarmed.sides) > 10 else result(next(values), platform=name)
    )
    expect(alarmed.rerun(), "repeat the command for more", code=ExitCode.INFRASTRUCTURE)
    alarmed.rerun()
    assert len(alarmed.sides) == 20


def test_every_platform_of_an_alarm(alarmed: Alarmed) -> None:
    alarmed.measure("cpu", "nvidia")
    alarmed.row = lambda name, side: result(
        120.0 if side and name == "nvidia" else 100.0, platform=name
    )
    found = alarmed.answer(code=ExitCode.REGRESSION)
    outcomes = {row["platform"]: row["outcome"] for row in found["rows"]}
    assert outcomes == {"cpu": "not confirmed", "nvidia": "confirmed"}


def test_one_platform_of_an_alarm(alarmed: Alarmed) -> None:
    alarmed.measure("cpu", "nvidia")
    found = alarmed.answer("--platform", "nvidia", code=ExitCode.REGRESSION)
    assert [row["platform"] for row in found["rows"]] == ["nvidia"]
    code, error = alarmed.rerun("--platform", "nvida")
    assert code == ExitCode.USAGE
    assert "--platform: got 'nvida', expected one of the alarm's; did you mean 'nvidia'?" in error
    assert "It has: cpu, nvidia." in error


def test_a_budget_of_time_has_room_for_the_longest_run(monkeypatch: Patch) -> None:
    times = iter([0.0, 3.0, 7.0])
    monkeypatch.setattr("ci.commands.rerun_alarm.monotonic", lambda: next(times))
    limit = Budget(seconds=10.0, _begin=0.0)
    assert [limit.begin_run() for _ in range(3)] == [True, True, False]  # 7 s and 4 s more
    assert limit.made == 2


def test_reruns_do_not_change_the_history(alarmed: Alarmed) -> None:
    alarmed.measure("cpu")
    name = alarmed.names
    alarmed.answer(code=ExitCode.REGRESSION)
    assert alarmed.names == name
    code, said = alarmed.project.ci("history", "cpu", "--check")
    assert code == ExitCode.REGRESSION
    assert f"to run both sides again: python -m ci rerun-alarm {name[0]}" in said


def test_an_alarm_that_is_not_open(alarmed: Alarmed) -> None:
    alarmed.measure("cpu")
    code, error = alarmed.rerun(name="01234567")
    assert code == ExitCode.USAGE
    assert "tiny has no open alarm '01234567'" in error
    assert f"It has: {alarmed.names[0]}." in error


@pytest.mark.parametrize("limit", ["0", "-1", "2d", "m", "1.5h", ""])
def test_a_wrong_budget(alarmed: Alarmed, limit: str) -> None:
    code, error = alarmed.rerun(f"--budget={limit}", name="01234567")
    assert code == ExitCode.USAGE
    assert (
        f"got '{limit}', expected a number of runs, as 20, or a time, as 600s, 90m or 2h" in error
    )


def test_a_side_that_does_not_build(alarmed: Alarmed) -> None:
    alarmed.measure("cpu")
    alarmed.row = lambda name, _: result(
        platform=name, built=False, verdict=made_verdict(Product.FAILED), stages=()
    )
    code, error = alarmed.rerun()
    assert code == ExitCode.USAGE
    assert f"rerun-alarm: commit {alarmed.commits[PLACE - 1][:12]} cannot be judged: " in error


def test_an_engine_that_fails_keeps_the_runs(alarmed: Alarmed) -> None:
    alarmed.measure("cpu")
    usual, lost = alarmed.row, made_verdict(Product.NOT_RUN, harness=Harness.INFRASTRUCTURE)
    alarmed.row = lambda name, side: (
        result(platform=name, built=None, verdict=lost, stages=())
        if len(alarmed.sides) == 3
        else usual(name, side)
    )
    code, _ = alarmed.rerun()
    assert code == ExitCode.INFRASTRUCTURE
    alarmed.answer(code=ExitCode.REGRESSION)
    assert len(alarmed.sides) == 11


def test_another_environment_is_named(alarmed: Alarmed) -> None:
    alarmed.measure("cpu")
    usual = alarmed.row
    newer = {**ENVIRONMENT, "compiler": "g++ 13.1"}
    alarmed.row = lambda name, side: usual(name, side).model_copy(update={"environment": newer})
    [row] = alarmed.answer(code=ExitCode.REGRESSION)["rows"]
    assert row["notes"] == ["unlike in the alarm: compiler changed: g++ 12.2 -> g++ 13.1"]
