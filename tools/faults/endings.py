"""Every exit code of the test command, with every state of pytest's log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ci.model.results import Harness, Product
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

ENDED = "the test command exited with {code}"
IN_TERMS = f"{ENDED}, in pytest's terms: {{meaning}}"
PYTEST_ENDED = "pytest exited with 0, and the test command with {code}"
LAST_LINES = "last lines of pytest.log: …"
NO_LOG = (
    "there is no per-test log; stage pytest ended with exit code {code}; its output is pytest.log"
)
NOTHING = "nothing shows that pytest ran: exit code {code}, no log and no summary"
NO_END = "pytest did not end its session, and the test command ended with exit code {code}"
NO_SUMMARY = "pytest printed no closing summary, exit code {code}: it crashed or called os._exit, …"
UNFINISHED = "pytest did not finish; its log has {count}"
EARLY = f"{ENDED} before the end of pytest's session"
GREEN = "pytest ended with status 0: 2 passed, 0 skipped"
RED = "1 failed, 0 errors: …/test_it.py::test_b"


@dataclass(frozen=True)
class Expected:
    """A verdict; ``{code}`` and ``{meaning}`` in its evidence are those of the exit code."""

    product: Product
    harness: Harness
    evidence: tuple[str, ...]


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


def cut(script: str, files: Mapping[str, str], results: str, *running: str) -> State:
    """Return the state of a log without an end; pytest exits by itself with 0."""
    unfinished = UNFINISHED.format(count="1 result" if results else "0 results")
    return State(
        script=script,
        files=files,
        results=results,
        zero=Expected(INCOMPLETE, CRASHED, (unfinished, NO_END, *running)),
        one=Expected(FAILED, CRASHED, (EARLY, LAST_LINES, NO_END, *running)),
        unfinished=Expected(INCOMPLETE, CRASHED, (IN_TERMS, LAST_LINES, NO_END, *running)),
        signal=Expected(INCOMPLETE, CRASHED, (unfinished, NO_END, *running)),
    )


def without_log(script: str) -> State:
    """Return the state in which nothing was written."""
    return State(
        script=script,
        kept=("pytest.log",),
        zero=Expected(INCOMPLETE, CRASHED, (NO_LOG, NOTHING)),
        one=Expected(FAILED, CRASHED, (f"{ENDED}; {NO_LOG}", NOTHING)),
        unfinished=Expected(INCOMPLETE, CLEAN, (f"{IN_TERMS}; {NO_LOG}",)),
        signal=Expected(INCOMPLETE, CRASHED, (NO_LOG, NOTHING)),
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
        RUNS, {"test_it.py": DIES}, "1 passed", "pytest was running …/test_it.py::test_b"
    ),
    "a complete green log": State(
        script=RUNS,
        files={"test_it.py": PASSING},
        results="2 passed",
        kept=COMPLETE,
        zero=Expected(PASSED, CLEAN, (GREEN,)),
        one=Expected(FAILED, CLEAN, (PYTEST_ENDED, LAST_LINES)),
        unfinished=Expected(INCOMPLETE, CLEAN, (PYTEST_ENDED, LAST_LINES)),
        signal=Expected(
            PASSED,
            AFTER,
            (GREEN, "exit code {code} after the pytest summary, though pytest exited with 0"),
        ),
    ),
    "a complete red log": State(
        script=RUNS,
        files={"test_it.py": FAILING},
        results="1 passed, 1 failed",
        kept=COMPLETE,
        zero=RED_AND_CLEAN,
        one=RED_AND_CLEAN,
        unfinished=RED_AND_CLEAN,
        signal=Expected(FAILED, AFTER, (RED, "exit code {code} after the pytest summary")),
    ),
    "a complete log but no summary": State(
        script=QUIET,
        files={"test_it.py": PASSING},
        results="2 passed",
        kept=COMPLETE,
        zero=Expected(PASSED, CRASHED, (GREEN, NO_SUMMARY)),
        one=Expected(FAILED, CRASHED, (PYTEST_ENDED, NO_SUMMARY)),
        unfinished=Expected(INCOMPLETE, CRASHED, (PYTEST_ENDED, NO_SUMMARY)),
        signal=Expected(
            INCOMPLETE,
            CRASHED,
            (
                "stage pytest ended with exit code {code} after the end of the log, and pytest"
                " printed no closing summary",
                NO_SUMMARY,
            ),
        ),
    ),
}


def ending(code: int, name: str) -> Fault:
    """Return the fault of a test command that exits with ``code``."""
    state = STATES[name]
    expected = state.after(code)
    meaning = MEANINGS.get(code)
    return Fault(
        name=f"exit code {code} with {name}",
        kind=KIND,
        files={**state.files, "end.sh": f"{state.script}exit {code}\n"},
        tests="sh {folder}/end.sh",
        product=expected.product,
        harness=expected.harness,
        evidence=tuple(it.format(code=code, meaning=meaning) for it in expected.evidence),
        exits=(0 if expected.product is PASSED else 1,),
        results=state.results,
        kept=state.kept,
    )


FAULTS = tuple(ending(code, name) for name in STATES for code in CODES)
