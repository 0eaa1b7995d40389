"""One alarm for each cause: platforms that get slower by one commit are rows of one alarm."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from stored_history import Project, noisy, result

from ci.errors import ExitCode
from ci.store.folder import default_url
from ci.store.store import Store

PLATFORMS = ("ascend", "cambricon", "cpu", "iluvatar", "metax", "moore", "nvidia")


def measure(project: Project, levels: Mapping[str, Sequence[float]]) -> list[str]:
    """Commits, each with a run of all platforms; returns the commits."""
    return [
        project.measure(*(result(it, platform=name) for name, it in zip(levels, row, strict=True)))
        for row in zip(*levels.values(), strict=True)
    ]


def step(level: float, place: int, runs: int = 20, seed: int = 0, by: float = 1.2) -> list[float]:
    return [*noisy(level, place, seed), *noisy(by * level, runs - place, seed + 50)]


@pytest.fixture(scope="module")
def slower(tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, list[str]]:
    """All platforms get slower by commit 12."""
    project = Project(folder=tmp_path_factory.mktemp("slower"))
    levels = {name: step(100 * (n + 1), 12, seed=n) for n, name in enumerate(PLATFORMS)}
    return project, measure(project, levels)


def test_seven_platforms_that_one_commit_slowed_are_one_alarm(
    slower: tuple[Project, list[str]],
) -> None:
    project, commits = slower
    code, said = project.ci("history", "--check", "--format", "json")
    assert code == ExitCode.REGRESSION
    [alarm] = json.loads(said)["alarms"]
    assert tuple(row["platform"] for row in alarm["rows"]) == PLATFORMS
    assert alarm["last_run_before"]["commit"] == commits[11]
    assert alarm["first_run_after"]["commit"] == commits[12]
    for row in alarm["rows"]:
        assert row["change"]["low"] < 0.2 < row["change"]["high"] + 0.02
    ends = f"--good {commits[11]} --bad {commits[12]} --stage install"
    assert ends in alarm["bisect"]


def test_the_alarm_has_a_row_for_each_platform(slower: tuple[Project, list[str]]) -> None:
    code, said = slower[0].ci("history", "--check")
    assert code == ExitCode.REGRESSION
    assert "\n1. install up to +2" in said
    assert all(f" {name} " in said for name in ("install", "95 % interval"))
    assert said.count("to accept it: ") == len(PLATFORMS)
    assert f"\ncause on {', '.join(PLATFORMS)}: unexplained: neither run has a Ninja log" in said
    assert said.endswith("1 open regression\n")
    code, page = slower[0].ci("history", "--format", "markdown")
    assert code == ExitCode.PASSED
    assert "#### 1. install up to" in page


def test_two_causes_are_two_alarms(tmp_path: Path) -> None:
    project = Project(folder=tmp_path)
    runs = 26
    measure(
        project,
        {
            "cpu": step(100, 8, runs, seed=1),
            "moore": step(300, 8, runs, seed=2),
            "nvidia": step(200, 18, runs, seed=3),
        },
    )
    _, said = project.ci("history", "--check", "--format", "json")
    alarms = [[row["platform"] for row in it["rows"]] for it in json.loads(said)["alarms"]]
    assert alarms == [["nvidia"], ["cpu", "moore"]]
    _, said = project.ci("history", "cpu", "nvidia", "--check", "--format", "json")
    assert [len(it["rows"]) for it in json.loads(said)["alarms"]] == [1, 1]


def test_a_platform_that_runs_at_night_joins_the_alarm(tmp_path: Path) -> None:
    """It has a run of every third commit, so that its own range is wider."""
    project = Project(folder=tmp_path)
    commits = []
    cpu, moore = step(100, 20, 42, seed=4), step(300, 20, 42, seed=5)
    for number, (fast, slow) in enumerate(zip(cpu, moore, strict=True)):
        nightly = () if number % 3 else (result(slow, platform="moore"),)
        commits.append(project.measure(result(fast), *nightly))
    _, said = project.ci("history", "--check", "--format", "json")
    [alarm] = json.loads(said)["alarms"]
    assert [row["platform"] for row in alarm["rows"]] == ["cpu", "moore"]
    assert alarm["first_run_after"]["commit"] == commits[20]


def test_a_platform_that_misses_many_runs_combines_no_causes(tmp_path: Path) -> None:
    """Each of two commits may be the cause of its rise."""
    project = Project(folder=tmp_path)
    cpu, nvidia, moore = step(100, 22, 32, 6), step(200, 10, 32, 7), step(300, 8, 32, 8)
    for number, (first, second, third) in enumerate(zip(cpu, nvidia, moore, strict=True)):
        rare = () if 8 <= number < 24 else (result(third, platform="moore"),)
        project.run(f"{number:040x}", result(first), result(second, platform="nvidia"), *rare)
    _, said = project.ci("history", "--check", "--format", "json")
    alarms = [[row["platform"] for row in it["rows"]] for it in json.loads(said)["alarms"]]
    assert alarms == [["cpu", "moore"], ["nvidia"]]


def test_platforms_without_a_rise_raise_no_alarm(tmp_path: Path) -> None:
    project = Project(folder=tmp_path)
    measure(project, {"cpu": noisy(100, 12, 1), "moore": noisy(300, 12, 2)})
    code, said = project.ci("history", "--check")
    assert (code, "\nno open regression\n" in said) == (ExitCode.PASSED, True)


def test_the_project_decides_its_platforms(tmp_path: Path) -> None:
    """Although the newest run is of another project, on another platform."""
    project = Project(folder=tmp_path)
    for number, seconds in enumerate(step(100, 12)):
        project.run(f"{number:040x}", result(seconds))
    project.run("f" * 40, result(platform="ascend"), project="other")
    assert project.ci("history", "--check")[0] == ExitCode.PASSED
    code, said = project.ci("history", "--check", "--project", "tiny")
    assert (code, "1. install +2" in said) == (ExitCode.REGRESSION, True)
    code, said = project.ci("history", "--project", "tiger")
    assert code == ExitCode.USAGE
    assert "the store holds no run of project 'tiger'" in said


def test_a_store_without_runs_has_no_alarms(tmp_path: Path) -> None:
    project = Project(folder=tmp_path)
    Store(default_url(project.results)).close()
    code, said = project.ci("history", "--check")
    assert code == ExitCode.USAGE
    assert "the store holds no run yet" in said
