"""Every exit code of the test command, with every state of pytest's log."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ci.facts.sentences import on_harness, on_tests
from ci.facts.sentences.on_tests import Reporter
from ci.facts.sentences.sentence import Exit
from ci.model.verdicts import Evidence, Harness, Product
from tools.faults.findings import (
    BOTH_PASSED,
    CUT,
    CUT_IN_COLLECTION,
    LAST_LINES,
    SECOND_FAILED,
    SECOND_RUNNING,
    after_summary,
    no_log,
)
from tools.faults.model import Fault

KIND = "Exit codes and logs"
# pytest's own codes with their meaning, and those of SIGABRT, SIGKILL, SIGSEGV and SIGTERM.
MEANINGS = {
    2: "interrupted", 3: "internal error", 4: "usage error", 5: "no tests collected",
}  # fmt: skip
CODES = (0, 1, *MEANINGS, 134, 137, 139, 143)

PASSING = "def test_a(): pass\ndef test_b(): pass\n"
FAILING = "def test_a(): pass\ndef test_b(): assert False\n"
DIES = "import os\ndef test_a(): pass\ndef test_b(): os._exit(0)\n"
DIES_BEFORE_TESTS = "import os\ndef pytest_runtestloop(session): os._exit(0)\n"
OPENS_LOG = 'for word; do case $word in --report-log=*) : > "${word#*=}";; esac; done\n'
RUNS = 'python -m pytest -s {folder} "$@"\n'
QUIET = 'python -m pytest -p no:terminal {folder} "$@"\n'

Finding = Callable[[int], Evidence]
"""A finding by the exit code."""


def always(evidence: Evidence) -> Finding:
    return lambda _: evidence


def ended(code: int, detail: str = "") -> Evidence:
    meaning = f", in pytest's terms: {MEANINGS[code]}" if code in MEANINGS else ""
    return on_tests.bad_exit(Reporter.COMMAND, code, None, meaning + detail)


def ended_without_log(code: int) -> Evidence:
    return ended(code, f"; {no_log(code).text}")


def ended_early(code: int) -> Evidence:
    return ended(code, on_tests.before_end(Reporter.COMMAND))


def pytest_ended(code: int) -> Evidence:
    return on_tests.bad_exit(Reporter.WRAPPER, code, 0, "")


def nothing(code: int) -> Evidence:
    return on_harness.pytest_unseen(Exit(code))


def no_end(code: int) -> Evidence:
    return on_harness.left_session(Exit(code), is_wrapped=True)


def no_summary(code: int) -> Evidence:
    return on_harness.no_summary(Exit(code))


def ended_after_log(code: int) -> Evidence:
    return on_tests.ended_after_log("pytest", Exit(code), has_summary=False)


LINES, GREEN, RED = map(always, (LAST_LINES, BOTH_PASSED, SECOND_FAILED))


@dataclass(frozen=True)
class Expected:
    """A verdict."""

    product: Product
    harness: Harness
    evidence: tuple[Finding, ...]


@dataclass(frozen=True, kw_only=True)
class State:
    """A state of the log: how the test command gets there, and the verdict by exit code."""

    script: str
    files: Mapping[str, str] = field(default_factory=dict)
    results: str = ""
    kept: tuple[str, ...] = ("pytest.log", "pytest.jsonl")
    zero: Expected
    one: Expected
    unfinished: Expected
    """Codes 2 to 5."""
    signal: Expected

    def after(self, code: int) -> Expected:
        if code in MEANINGS:
            return self.unfinished
        return {0: self.zero, 1: self.one}.get(code, self.signal)


INCOMPLETE, FAILED, PASSED = Product.INCOMPLETE, Product.FAILED, Product.PASSED
CRASHED, CLEAN, AFTER = Harness.CRASHED, Harness.CLEAN, Harness.EXIT_AFTER_SUMMARY


def cut(script: str, files: Mapping[str, str], results: str, *running: Finding) -> State:
    """Return the state of a log without an end; pytest exits by itself with 0."""
    unfinished = always(CUT if results else CUT_IN_COLLECTION)
    return State(
        script=script,
        files=files,
        results=results,
        zero=Expected(INCOMPLETE, CRASHED, (unfinished, no_end, *running)),
        one=Expected(FAILED, CRASHED, (ended_early, LINES, no_end, *running)),
        unfinished=Expected(INCOMPLETE, CRASHED, (ended, LINES, no_end, *running)),
        signal=Expected(INCOMPLETE, CRASHED, (unfinished, no_end, *running)),
    )


def without_log(script: str) -> State:
    """Return the state in which nothing was written."""
    return State(
        script=script,
        kept=("pytest.log",),
        zero=Expected(INCOMPLETE, CRASHED, (no_log, nothing)),
        one=Expected(FAILED, CRASHED, (ended_without_log, nothing)),
        unfinished=Expected(INCOMPLETE, CLEAN, (ended_without_log,)),
        signal=Expected(INCOMPLETE, CRASHED, (no_log, nothing)),
    )


COMPLETE = ("pytest.log", "pytest.jsonl", "junit.xml")
RED_AND_CLEAN = Expected(FAILED, CLEAN, (RED,))
STATES = {
    "no log": without_log(""),
    "an empty log": without_log(OPENS_LOG),
    "a log that ends after the collection": cut(
        RUNS, {"conftest.py": DIES_BEFORE_TESTS, "test_it.py": PASSING}, ""
    ),
    "a log that is cut in the middle": cut(
        RUNS, {"test_it.py": DIES}, "1 passed", always(SECOND_RUNNING)
    ),
    "a complete green log": State(
        script=RUNS,
        files={"test_it.py": PASSING},
        results="2 passed",
        kept=COMPLETE,
        zero=Expected(PASSED, CLEAN, (GREEN,)),
        one=Expected(FAILED, CLEAN, (pytest_ended, LINES)),
        unfinished=Expected(INCOMPLETE, CLEAN, (pytest_ended, LINES)),
        signal=Expected(PASSED, AFTER, (GREEN, lambda code: after_summary(code, inner=0))),
    ),
    "a complete red log": State(
        script=RUNS,
        files={"test_it.py": FAILING},
        results="1 passed, 1 failed",
        kept=COMPLETE,
        zero=RED_AND_CLEAN,
        one=RED_AND_CLEAN,
        unfinished=RED_AND_CLEAN,
        signal=Expected(FAILED, AFTER, (RED, after_summary)),
    ),
    "a complete log but no summary": State(
        script=QUIET,
        files={"test_it.py": PASSING},
        results="2 passed",
        kept=COMPLETE,
        zero=Expected(PASSED, CRASHED, (GREEN, no_summary)),
        one=Expected(FAILED, CRASHED, (pytest_ended, no_summary)),
        unfinished=Expected(INCOMPLETE, CRASHED, (pytest_ended, no_summary)),
        signal=Expected(INCOMPLETE, CRASHED, (ended_after_log, no_summary)),
    ),
}


def ending(code: int, name: str) -> Fault:
    """Return the fault of a test command that exits with ``code``."""
    state = STATES[name]
    expected = state.after(code)
    return Fault(
        name=f"exit code {code} with {name}",
        kind=KIND,
        files={**state.files, "end.sh": f"{state.script}exit {code}\n"},
        tests="sh {folder}/end.sh",
        product=expected.product,
        harness=expected.harness,
        evidence=tuple(finding(code) for finding in expected.evidence),
        exits=(0 if expected.product is PASSED else 1,),
        results=state.results,
        kept=state.kept,
    )


FAULTS = tuple(ending(code, name) for name in STATES for code in CODES)
