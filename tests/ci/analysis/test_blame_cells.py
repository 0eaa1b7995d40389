"""The judgment on four cells, for all of their outcomes, and what runs say of a test."""

from __future__ import annotations

from itertools import product

import pytest

from ci.analysis.blame import (
    BUILD,
    SUITE,
    CellOutcome,
    CellRun,
    Fault,
    Quadrants,
    blame_tests,
    combine_outcomes,
    judge_cells,
    newly_skipped,
)
from ci.model.outcomes import Outcome
from ci.report.blame_report import BlameReport

P, F = CellOutcome.PASSED, CellOutcome.FAILED
MISSING = CellOutcome.MISSING
# Of a test that fails with both changes: old, new library, new environment. `?`: a cell that
# says nothing. `m`: this library has no such test.
TABLE = {
    "PPP": Fault.TOGETHER,
    "PPF": Fault.UPSTREAM,
    "PFP": Fault.LIBRARY,
    "PFF": Fault.EACH,
    "FPP": Fault.ENVIRONMENT,
    "FPF": Fault.UPSTREAM,
    "FFP": Fault.LIBRARY,
    "FFF": Fault.BEFORE,
    "?PP": Fault.TOGETHER,
    "?PF": Fault.UPSTREAM,
    "?FP": Fault.LIBRARY,
    "?FF": Fault.UNDECIDED,
    "P?P": Fault.UNDECIDED,
    "P?F": Fault.UPSTREAM,
    "F?P": Fault.UNDECIDED,
    "F?F": Fault.BEFORE,
    "??P": Fault.UNDECIDED,
    "??F": Fault.UNDECIDED,
    "PP?": Fault.UNDECIDED,
    "PF?": Fault.LIBRARY,
    "FP?": Fault.UNDECIDED,
    "FF?": Fault.BEFORE,
    "?P?": Fault.UNDECIDED,
    "?F?": Fault.UNDECIDED,
    "P??": Fault.UNDECIDED,
    "F??": Fault.UNDECIDED,
    "???": Fault.UNDECIDED,
    "mFm": Fault.LIBRARY,
    "mPm": Fault.UNDECIDED,
}


def letter(outcome: CellOutcome) -> str:
    return {P: "P", F: "F", MISSING: "m"}.get(outcome, "?")


def expected_fault(*outcomes: CellOutcome) -> Fault:
    old, library, environment, new = outcomes
    if CellOutcome.UNSTABLE in outcomes:
        return Fault.ENVIRONMENT
    if new is not F:
        return Fault.NONE if new is P else Fault.UNDECIDED
    letters = "".join(map(letter, (old, library, environment)))
    if letters in TABLE:
        return TABLE[letters]
    if library is F and environment is MISSING and old is not F:
        return Fault.LIBRARY
    return TABLE[letters.replace("m", "?")]  # a missing test says as little as a skipped one


def test_every_combination() -> None:
    """A loop, as pytest takes a second for so many cases."""
    order = ("old", "new_library", "new_environment", "new")
    for outcomes in product(CellOutcome, repeat=4):
        fault = judge_cells(Quadrants(**dict(zip(order, outcomes, strict=True))))
        assert fault is expected_fault(*outcomes), outcomes


def run(outcome: Outcome | None = Outcome.PASSED, **changes: object) -> CellRun:
    fields = {
        "run_id": "run-1",
        "machine": "one",
        "built": True,
        "passed": outcome is Outcome.PASSED,
        "complete": True,
        "outcomes": {} if outcome is None else {"a.py::test": outcome},
        "messages": {},
    }
    return CellRun(**{**fields, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("found", "test", "outcome"),
    [
        (run(), "a.py::test", P),
        (run(Outcome.ERROR), "a.py::test", F),
        (run(Outcome.XFAILED), "a.py::test", CellOutcome.SKIPPED),
        (run(), "a.py::other", MISSING),
        (run(complete=False), "a.py::other", CellOutcome.NOT_RUN),
        (run(None, ended_in=frozenset({"a.py::test"})), "a.py::test", F),
        (run(Outcome.FAILED, recovered=frozenset({"a.py::test"})), "a.py::test", "unstable"),
        (run(built=False), "a.py::test", CellOutcome.NOT_BUILT),
        (run(built=False), BUILD, F),
        (run(built=None), BUILD, CellOutcome.NOT_RUN),
        (run(), BUILD, P),
        (run(passed=False), SUITE, F),  # as of a broken contract
        (run(Outcome.FAILED), SUITE, P),
        (run(Outcome.FAILED, complete=False), SUITE, CellOutcome.NOT_RUN),
        (run(Outcome.FAILED, broke_contract=True), SUITE, F),
        (run(), SUITE, P),
        # A file that cannot be collected fails with all its tests.
        (run(None, outcomes={"a.py": Outcome.ERROR}), "a.py::test", F),
        (run(), "a.py", P),
        (run(), "b.py", MISSING),
    ],
)
def test_what_a_run_says(found: CellRun, test: str, outcome: CellOutcome) -> None:
    assert found.outcome(test) == outcome


@pytest.mark.parametrize(
    ("outcomes", "combined"),
    [
        ([], CellOutcome.NOT_RUN),
        ([CellOutcome.SKIPPED, F], F),
        ([CellOutcome.NOT_BUILT], CellOutcome.NOT_BUILT),
        ([P, P], P),
        ([P, F], CellOutcome.UNSTABLE),
        ([F, CellOutcome.UNSTABLE], CellOutcome.UNSTABLE),
    ],
)
def test_several_runs_of_a_cell(outcomes: list[CellOutcome], combined: CellOutcome) -> None:
    assert combine_outcomes(outcomes) is combined


def test_a_failure_that_follows_the_machine() -> None:
    good, bad = run(), run(Outcome.FAILED, machine="two", messages={"a.py::test": "died"})
    cells = Quadrants(old=[good], new_library=[good], new_environment=[bad], new=[bad])
    [blamed] = blame_tests(cells)
    assert (blamed.fault, blamed.message) == (Fault.ENVIRONMENT, "died")
    # One that fails on a machine where it also passed is upstream's.
    elsewhere = run(machine="two")
    [blamed] = blame_tests(
        Quadrants(old=[elsewhere], new_library=[good], new_environment=[bad], new=[bad])
    )
    assert blamed.fault is Fault.UPSTREAM


def test_a_suite_that_fails_without_a_failing_test() -> None:
    assert (run().failed, run(passed=False).failed) == ([], [SUITE])
    assert run(built=False).failed == [BUILD]
    assert run(Outcome.FAILED, broke_contract=True).failed == ["a.py::test", SUITE]
    assert run(None, ended_in=frozenset({"a.py::test"})).failed == ["a.py::test"]


def test_what_is_skipped_since_has_no_fault_and_is_counted() -> None:
    names = ("a.py::now", "a.py::always", "a.py::fails", "a.py::gone")
    skip, good, bad = Outcome.SKIPPED, Outcome.PASSED, Outcome.FAILED
    old = run(outcomes=dict(zip(names, (good, skip, good, good), strict=True)))
    new = run(outcomes=dict(zip(names[:-1], (skip, skip, bad), strict=True)))
    cells = Quadrants(old=[old], new_library=[old], new_environment=[old], new=[new])
    assert newly_skipped(cells) == ["a.py::now"]
    report = BlameReport(
        platform="cpu",
        commits=("1" * 40, "2" * 40),
        environments=("torch==1", "torch==2"),
        tests=blame_tests(cells),
        cells=cells,
        changes=(),
    )
    page = report.markdown()
    assert "1 test that passed without the changes is skipped with both, such as a.py::now" in page
    assert "no difference between the environments was recorded" in page
    assert report.data()["newly_skipped"] == ["a.py::now"]


def test_a_broken_contract_has_a_fault_of_its_own() -> None:
    """A new torch makes tests skip that the contract expects to pass, and the library has a bug."""
    broken = run(passed=False, broke_contract=True)
    both = run(Outcome.FAILED, broke_contract=True)
    cells = Quadrants(
        old=[run()], new_library=[run(Outcome.FAILED)], new_environment=[broken], new=[both]
    )
    found = {it.test: it.fault for it in blame_tests(cells)}
    assert found == {"a.py::test": Fault.LIBRARY, SUITE: Fault.UPSTREAM}


def test_a_build_that_fails_hides_its_tests() -> None:
    bad = run(Outcome.FAILED)
    cells = Quadrants(old=[run()], new_library=[run(built=False)], new_environment=[bad], new=[bad])
    [blamed] = blame_tests(cells)
    assert blamed.outcomes.new_library is CellOutcome.NOT_BUILT
    assert blamed.fault is Fault.UPSTREAM  # which is enough to make it fail
