"""Flaky only with evidence: both outcomes of one commit in one environment."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from ci.analysis.flaky import Attempts, flaky_tests, wilson_interval
from ci.cli import main
from ci.facts.suite import Outcomes, outcomes_of
from ci.model.details import Rerun
from ci.model.outcomes import Outcome
from ci.report.document import escape
from tests.ci.made_results import made_test
from tests.ci.workplace import CONFIG, Workplace, new_workplace

LETTERS = {"p": Outcome.PASSED, "f": Outcome.FAILED, "e": Outcome.ERROR, "s": Outcome.SKIPPED}


def run(**tests: str) -> Outcomes:
    return outcomes_of(made_test(name, LETTERS[letter]) for name, letter in tests.items())


def reruns(name: str, letters: str) -> list[Rerun]:
    return [
        Rerun(node_id=name, attempt=attempt, outcome=LETTERS[letter], seconds=0.1)
        for attempt, letter in enumerate(letters, 1)
    ]


def at(commit: str, *runs: Outcomes, again: Sequence[Rerun] = (), key: str = "k") -> Attempts:
    return Attempts(commit=commit * 40, key=key, runs=runs, reruns=again)


@pytest.mark.parametrize(
    "attempts",
    [
        pytest.param([at("a", run(t="f"), run(t="f")), at("b", run(t="p"))], id="fixed"),
        pytest.param([at("a", run(t="f")), at("a", run(t="p"), key="other")], id="elsewhere"),
        pytest.param([at("a", run(t="f"), run(t="s"))], id="skipped"),
        pytest.param([at("a", run(t="f"), run())], id="not there"),
        pytest.param([at("a", run(t="f"), again=reruns("t", "fffs"))], id="fails always"),
        pytest.param([at("a", run(t="p"), run(t="p"))], id="passes"),
        pytest.param([], id="nothing"),
    ],
)
def test_what_is_no_evidence(attempts: list[Attempts]) -> None:
    assert flaky_tests(attempts) == []


def test_both_outcomes_of_several_runs() -> None:
    runs = [run(t="p", other="p")] * 11 + [run(t="e", other="p")]
    [found] = flaky_tests([at("a", *runs), at("b", run(t="f"))])
    rate = "8 %, 95 % interval 1 to 35 %"
    assert str(found) == f"failed 1 of 12 times at commit aaaaaaaaaaaa: flaky, {rate}"


def test_reruns_within_one_run_and_several_commits() -> None:
    once = at("a", run(t="f", u="f"), again=[*reruns("t", "ppfpp"), *reruns("u", "p")])
    [often, seldom] = flaky_tests([once, at("b", run(t="f"), run(t="p"))])
    assert (often.node_id, seldom.node_id) == ("t", "u")
    assert str(often) == "failed 3 of 8 times at 2 commits: flaky, 38 %, 95 % interval 14 to 69 %"
    rate = "50 %, 95 % interval 9 to 91 %"
    assert str(seldom) == f"failed 1 of 2 times at commit aaaaaaaaaaaa: flaky, {rate}"


@pytest.mark.parametrize(
    ("failed", "tried", "low", "high"),
    # As scipy.stats.binomtest(failed, tried).proportion_ci(method="wilson") has them.
    [(1, 2, 0.0945, 0.9055), (0, 10, 0.0, 0.2775), (5, 50, 0.0435, 0.2136), (3, 3, 0.4385, 1.0)],
)
def test_intervals_are_wilson_s(failed: int, tried: int, low: float, high: float) -> None:
    assert wilson_interval(failed, tried) == pytest.approx((low, high), abs=1e-4)


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workplace:
    """A project with a test that passes or fails as a file outside of its sources says."""
    monkeypatch.delenv("INFINI_CI_DB", raising=False)
    work = new_workplace(tmp_path)
    (tmp_path / "ends").write_text("p")
    source = (
        f"import pathlib\ndef test_b(): assert pathlib.Path('{tmp_path}/ends').read_text() == 'p'\n"
    )
    work.write("tests/test_b.py", source)
    work.write("ci.yaml", CONFIG.replace("- name: build\n  command: python build.py\n", ""))
    work.commit()
    return work


def test_what_the_commands_say(work: Workplace, capsys: pytest.CaptureFixture[str]) -> None:
    results = ["--results", str(work.results)]
    first, _ = work.run()
    assert main(["flaky", "cpu", *results]) == 0
    nothing = "cpu: no test both passed and failed at one commit in one environment\n"
    assert capsys.readouterr().out == nothing
    (work.folder / "ends").write_text("f")
    second, _ = work.run()
    capsys.readouterr()
    times = f"failed 1 of 2 times at commit {str(second.commit)[:12]}"
    evidence = f"{times}: flaky, 50 %, 95 % interval 9 to 91 %"
    assert main(["flaky", "cpu", *results]) == 0
    printed = capsys.readouterr().out
    assert f"  tests/test_b.py::test_b: {evidence}\n" in printed
    assert "1 test both passed and failed" in printed
    assert main(["flaky", "cpu", "--format", "markdown", *results]) == 0
    assert f"* tests/test_b.py::test_b: {escape(evidence)}\n" in capsys.readouterr().out
    assert main(["flaky", "cpu", "--format", "json", *results]) == 0
    [test] = json.loads(capsys.readouterr().out)["tests"]
    assert (test["test"], test["failed"], test["tried"]) == ("tests/test_b.py::test_b", 1, 2)
    assert main(["history", "cpu", "--flaky", "--format=json", *results]) == 0  # its earlier name
    assert json.loads(capsys.readouterr().out)["tests"] == [test]
    compared = ["compare", first.run_id, second.run_id, "--fail-on", "regression", *results]
    assert main(compared) == 4
    shown = capsys.readouterr().out
    assert "newly failing (1)" in shown
    assert evidence in shown
