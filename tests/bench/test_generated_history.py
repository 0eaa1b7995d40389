"""The history that is made up has what real ones have, and is the same one every time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bench.generated_history import GeneratedRun, Scale, history, main
from ci.facts.environment_key import environment_key
from ci.facts.measures import measures_of
from ci.model.outcomes import Outcome

SMALL = Scale(runs=60, tests=320, platforms=("cpu", "ascend"))


@pytest.fixture(scope="module")
def runs() -> list[GeneratedRun]:
    return list(history(SMALL))


def test_it_is_the_same_every_time(runs: list[GeneratedRun]) -> None:
    assert next(history(SMALL)) == runs[0]


def test_tests_come_and_change_their_outcomes(runs: list[GeneratedRun]) -> None:
    suites = [{test.node_id: test.outcome for test in details["cpu"].tests} for _, details in runs]
    first, last = suites[0], suites[-1]
    assert set(first) < set(last)
    assert sum(map(len, suites)) / len(suites) == pytest.approx(SMALL.tests, rel=0.05)
    assert any(last[name] is not outcome for name, outcome in first.items())
    messages = [
        test.reason
        for _, details in runs
        for test in details["ascend"].tests
        if test.outcome is Outcome.FAILED
    ]
    assert len(set(messages)) == len(messages) > SMALL.runs / 4


def test_costs_are_measured_in_environments_that_change(runs: list[GeneratedRun]) -> None:
    results = [run.platform("cpu") for run, _ in runs]
    caches = {environment_key(result).cache for result in results}
    assert caches == {"cold compiler cache", "warm compiler cache, half or more hits"}
    compilers = {
        name: {environment_key(run.platform(name)).compiler for run, _ in runs}
        for name in SMALL.platforms
    }
    assert {name: len(found) for name, found in compilers.items()} == {"cpu": 1, "ascend": 4}
    measured = measures_of(results[0])
    assert {"compile.wall_s", "install.cpu_s", "pytest.peak_bytes", "total.wall_s"} <= set(measured)
    for result, (_, details) in zip(results, runs, strict=True):
        assert result.pytest is not None
        assert result.pytest.passed + result.pytest.skipped + result.pytest.failed == len(
            details["cpu"].tests
        )


def test_runs_of_one_commit_are_evidence_of_flaky_tests(runs: list[GeneratedRun]) -> None:
    commits = [run.commit for run, _ in runs]
    assert 0 < len(set(commits)) < len(commits)
    assert [run.started_at for run, _ in runs] == sorted(run.started_at for run, _ in runs)


def test_it_can_be_saved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([str(tmp_path / "results"), "--runs", "3", "--tests", "32"])
    commands = capsys.readouterr().out.splitlines()
    assert len(commands) == 3
    for command in commands:
        python, *words = command.split()
        assert python == "python"
        found = subprocess.run([sys.executable, *words], capture_output=True, text=True)
        assert (found.returncode, found.stderr) == (0, "")
