"""The share of executed tests over the runs: a platform that skips more tests is a regression."""

from __future__ import annotations

import csv
import json
import shlex
from collections.abc import Sequence
from pathlib import Path

import pytest

from ci.errors import ExitCode
from tests.ci.stored_history import Project, expect, noisy, result


def measure(
    project: Project, skipped: Sequence[int], installs: Sequence[float] | None = None
) -> None:
    """Commits with a run each, of which 1,000 tests were collected."""
    for count, install in zip(skipped, installs or noisy(100.0, len(skipped)), strict=True):
        row = result(install)
        assert row.pytest is not None
        counts = {"passed": 1000 - count, "skipped": count}
        suite = row.pytest.model_copy(update=counts)
        project.run(project.commit(), row.model_copy(update={"pytest": suite}))
    project.configure()


def test_more_skipped_tests_are_a_regression(tmp_path: Path) -> None:
    """From 98.0 % to 96.0 %: a rise of so little in lines would be none."""
    project = Project(folder=tmp_path)
    measure(project, [20] * 6 + [40] * 3)
    answer = project.tracked("--check")
    lines = ("pytest executed tests -2.0 points (-2.0 %)", "98.0 % -> 96.0 %", "run-006")
    expect(answer, *lines, code=ExitCode.REGRESSION)
    expect(project.tracked(), "executed tests", "96.0 %")
    compared = project.compare("run-000", "run-008/cpu", "--fail-on", "regression")
    expect(compared, "regression: pytest executed tests", code=ExitCode.REGRESSION)


def test_fewer_skipped_tests_are_an_improvement(tmp_path: Path) -> None:
    project = Project(folder=tmp_path)
    measure(project, [40] * 6 + [20] * 3)
    expect(project.tracked("--check"), "no open regression")
    expect(project.tracked(), "1 improvement", "executed tests +2.0 points")


def test_a_fall_is_accepted(tmp_path: Path) -> None:
    project = Project(folder=tmp_path)
    measure(project, [20] * 6 + [40] * 3)
    expect(project.accept("run-006", "--reason", "needs a newer driver"), "down to 96.0 %")
    text = (project.source / "ci-accepted.yaml").read_text(encoding="utf-8")
    assert "quantity: executed\n" in text
    expect(project.tracked("--check"), "no open regression")


@pytest.mark.parametrize("first", ["install", "executed"])
def test_an_acceptance_covers_no_slowdown_as_well(tmp_path: Path, first: str) -> None:
    """Although one commit is the cause of both, and each may be accepted first."""
    project = Project(folder=tmp_path)
    # Four times the wall time: it waits for no CPU seconds.
    measure(project, [20] * 8 + [40] * 6, [*noisy(100.0, 8), *noisy(400.0, 6)])

    def open_alarms() -> set[str]:
        source = str(project.source)
        _, said = project.ci("history", "--check", "--source", source, "--format", "json")
        return {
            it["headline"].split()[it["headline"].startswith("pytest")]
            for it in json.loads(said)["alarms"]
        }

    answer = expect(project.tracked("--check"), "2 open regressions", code=ExitCode.REGRESSION)
    assert open_alarms() == {"install", "executed"}
    commands = {"install": (), "executed": ("--measure", "executed tests")}
    for words in commands.values():
        assert f"{shlex.join(['accept', 'cpu', 'run-008', *words, '--reason', 'TEXT'])}\n" in answer
    expect(project.accept("run-008", *commands.pop(first), "--reason", "a newer driver"))
    assert open_alarms() == {*commands}
    [words] = commands.values()
    expect(project.accept("run-008", *words, "--reason", "a newer driver"))
    expect(project.tracked("--check"), "no open regression")


def test_the_share_is_exported(tmp_path: Path) -> None:
    project = Project(folder=tmp_path)
    measure(project, [250])
    output = tmp_path / "tables"
    expect(project.ci("export", "--output", str(output), "--format", "csv"))
    with (output / "measures.csv").open(encoding="utf-8", newline="") as file:
        [row] = [it for it in csv.DictReader(file) if it["measure"] == "pytest.executed"]
    assert row["value"] == "0.75"
