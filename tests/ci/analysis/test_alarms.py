"""One alarm for each cause: platforms that get slower by one commit are rows of one alarm."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from ci.analysis.alarms import find_alarms
from ci.analysis.histories import history
from ci.analysis.platform_history import PlatformHistory
from ci.errors import ExitCode
from ci.facts.environment_key import environment_key
from ci.store.rows import RunMeasures
from tests.ci.stored_history import BEGIN, Project, expect, noisy, result

PLATFORMS = ("ascend", "cambricon", "cpu", "iluvatar", "metax", "moore", "nvidia")


def measure(project: Project, levels: Mapping[str, Sequence[float]]) -> list[str]:
    """Commits, each with a run of all platforms; returns the commits."""
    return [
        project.measure(*(result(it, platform=name) for name, it in zip(levels, row, strict=True)))
        for row in zip(*levels.values(), strict=True)
    ]


def alarms(project: Project, *words: str) -> list[list[str]]:
    """The platforms of each alarm."""
    _, said = project.ci("history", *words, "--check", "--format", "json")
    return [[row["platform"] for row in it["rows"]] for it in json.loads(said)["alarms"]]


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
    said = expect(project.ci("history", "--check", "--format", "json"), code=ExitCode.REGRESSION)
    [alarm] = json.loads(said)["alarms"]
    assert tuple(row["platform"] for row in alarm["rows"]) == PLATFORMS
    assert alarm["last_run_before"]["commit"] == commits[11]
    assert alarm["first_run_after"]["commit"] == commits[12]
    for row in alarm["rows"]:
        assert row["change"]["low"] < 0.2 < row["change"]["high"] + 0.02
    assert f"--good {commits[11]} --bad {commits[12]} --stage install" in alarm["bisect"]


def test_the_alarm_has_a_row_for_each_platform(slower: tuple[Project, list[str]]) -> None:
    said = expect(slower[0].ci("history", "--check"), code=ExitCode.REGRESSION)
    assert "\n1. install up to +2" in said
    assert all(f" {name} " in said for name in ("install", "95 % interval"))
    assert said.count("to accept it: ") == len(PLATFORMS)
    assert f"\ncause on {', '.join(PLATFORMS)}: unexplained: neither run has a Ninja log" in said
    assert said.endswith("1 open regression\n")
    expect(slower[0].ci("history", "--format", "markdown"), "#### 1. install up to")


def test_two_causes_are_two_alarms(tmp_path: Path) -> None:
    project = Project(folder=tmp_path)
    cpu, moore, nvidia = step(100, 8, 26, 1), step(300, 8, 26, 2), step(200, 18, 26, 3)
    measure(project, {"cpu": cpu, "moore": moore, "nvidia": nvidia})
    assert alarms(project) == [["nvidia"], ["cpu", "moore"]]
    assert alarms(project, "cpu", "nvidia") == [["nvidia"], ["cpu"]]


@pytest.mark.parametrize(
    ("compiled", "place", "expected"),
    [
        (1.4, 14, [["install.cpu_s", "compile.wall_s"]]),
        (1.4, 8, [["install.cpu_s"]]),  # too far: wall time alone is only suspected
        (1.1, 14, [["install.cpu_s"], ["compile.wall_s"]]),  # another size
    ],
)
def test_a_part_whose_place_noise_moved_is_no_second_alarm(
    compiled: float, place: int, expected: list[list[str]]
) -> None:
    """CPU seconds of install rise by 35 % with run 20. Compile has wall time alone."""
    key = environment_key(result())
    series = zip(step(100, 20, 40, 1, by=1.35), step(80, place, 40, 2, by=compiled), strict=True)
    rows = [
        RunMeasures(
            run_id=f"{number:02}",
            commit=f"{number:040x}",
            dirty=False,
            started_at=BEGIN + timedelta(days=number),
            key=key.digest,
            values={"install.cpu_s": install, "compile.wall_s": compile_},
        )
        for number, (install, compile_) in enumerate(series)
    ]
    found = history(rows, {key.digest: key})
    of_cpu = PlatformHistory(project="tiny", platform="cpu", runs=len(rows), history=found)
    order = {row.run_id: number for number, row in enumerate(rows)}
    alarmed = find_alarms([of_cpu], order)
    assert [
        [it.measure for row in alarm.rows for it in (row.change, *row.also)] for alarm in alarmed
    ] == expected
    assert (alarmed[0].before.run_id, alarmed[0].first.run_id) == ("19", "20")


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
    assert alarms(project) == [["cpu", "moore"], ["nvidia"]]


def test_platforms_without_a_rise_raise_no_alarm(tmp_path: Path) -> None:
    project = Project(folder=tmp_path)
    measure(project, {"cpu": noisy(100, 12, 1), "moore": noisy(300, 12, 2)})
    expect(project.ci("history", "--check"), "\nno open regression\n")


def test_the_project_decides_its_platforms(tmp_path: Path) -> None:
    """Although the newest run is of another project, on another platform."""
    project = Project(folder=tmp_path)
    for number, seconds in enumerate(step(100, 12)):
        project.run(f"{number:040x}", result(seconds))
    project.run("f" * 40, result(platform="ascend"), project="other")
    assert project.ci("history", "--check")[0] == ExitCode.PASSED
    said = expect(project.ci("history", "--check", "--project", "tiny"), code=ExitCode.REGRESSION)
    assert "1. install +2" in said
    said = expect(project.ci("history", "--project", "tiger"), code=ExitCode.USAGE)
    assert "the store holds no run of project 'tiger'" in said


def test_a_store_without_runs_has_no_alarms(tmp_path: Path) -> None:
    project = Project(folder=tmp_path)
    project.open().close()
    expect(project.ci("history", "--check"), "the store holds no run yet", code=ExitCode.USAGE)
