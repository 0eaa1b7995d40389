"""Every exit code of the test command, with every state of pytest's log."""

from __future__ import annotations

from ci.model.results import Harness, Product
from tests.faults.model import WRAPPED, Fault

KIND = "Exit codes"
GREEN = {"test_it.py": "def test_a(): pass\ndef test_b(): pass\n"}
PASSED = "pytest ended with status 0: 2 passed, 0 skipped"


def wrapped(command: str) -> str:
    """Return the command of a stage that runs a line of a shell."""
    return f"sh -c '{command}' tests"


FAULTS = (
    Fault(
        name="exit code 0 after a green suite",
        kind=KIND,
        files=GREEN,
        tests=wrapped(f"{WRAPPED}; exit 0"),
        product=Product.PASSED,
        harness=Harness.CLEAN,
        evidence=(PASSED,),
        exits=(0,),
        results="2 passed",
    ),
    Fault(
        name="exit code 137 after a green suite",
        kind=KIND,
        files=GREEN,
        tests=wrapped(f"{WRAPPED}; exit 137"),
        product=Product.PASSED,
        harness=Harness.EXIT_AFTER_SUMMARY,
        evidence=(PASSED, "exit code 137 after the pytest summary, though pytest exited with 0"),
        exits=(0,),
        results="2 passed",
    ),
)
