"""The findings that faults expect, by their sentences in the catalogue.

A ``…`` in a parameter matches any text, and ``ANY`` any number.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ci.facts.sentences import on_harness, on_stages, on_tests
from ci.facts.sentences.on_tests import Reporter
from ci.facts.sentences.sentence import Exit
from ci.model.verdicts import Evidence

GAP = "\N{HORIZONTAL ELLIPSIS}"
Expected = Evidence | tuple[Evidence, ...]
"""A finding, or those of which one is expected."""


class AnyNumber(float):
    """A number that differs between runs, which a text shows as a gap."""

    def __new__(cls) -> AnyNumber:
        return super().__new__(cls, 1e6)

    def __format__(self, _: str) -> str:
        return GAP

    def __sub__(self, _: float) -> AnyNumber:
        return self


ANY: Any = AnyNumber()
SECOND_TEST = f"{GAP}/test_it.py::test_b"
BOTH_PASSED = on_tests.suite_passed(2, 0, ended=True)
SECOND_FAILED = on_tests.failed_tests(1, 0, 0, [SECOND_TEST])
SECOND_RUNNING = on_tests.running_tests([SECOND_TEST])
CUT = on_tests.session_unfinished(1)
CUT_IN_COLLECTION = on_tests.session_unfinished(0)
LAST_LINES = on_tests.last_lines("pytest", [GAP])
INTERNAL_ERROR = on_tests.bad_exit(Reporter.PYTEST, 3, None, ": internal error")
DIED_IN_WORKER = on_tests.worker_died([SECOND_TEST])
AGENT_TERMINATED = on_harness.agent_signalled(15)


def failed(stage: str, code: int, signal: int | None = None) -> Evidence:
    """Return the finding of a command that failed."""
    return on_stages.command_failed(stage, Exit(code, signal))


def killed(stage: str, signal: int) -> Evidence:
    """Return the finding of a stage that a signal ended."""
    return on_stages.stage_killed(stage, Exit(128 + signal, signal), ANY)


def no_log(code: int | None) -> Evidence:
    """Return the finding of a suite without a log, whose stage ended with ``code``."""
    return on_tests.no_log("pytest", None if code is None else Exit(code), is_lost=False)


def agent_died(code: int) -> Evidence:
    """Return the finding of an agent that ended before it reported the run's end."""
    return on_harness.agent_ended(code, started=True)


def after_summary(code: int, inner: int | None = None) -> Evidence:
    """Return the finding of an exit code that contradicts pytest's summary."""
    return on_harness.exit_after_summary(code, inner, by_agent=False)


def matches(template: str, text: str) -> bool:
    """Return whether a text is the template, with any text in its gaps."""
    parts = (re.escape(part) for part in template.split(GAP))
    return re.fullmatch(".*".join(parts), text, re.DOTALL) is not None


def is_expected(found: Evidence, expected: Expected) -> bool:
    """Return whether a finding has the sentence and the parameters of an expected one."""
    options = expected if isinstance(expected, tuple) else (expected,)
    return any(it.code == found.code and matches(it.text, found.text) for it in options)


def as_text(expected: Sequence[Expected]) -> list[str]:
    """Return the texts of expected findings, in which ``or`` divides those of a choice."""
    choices = (it if isinstance(it, tuple) else (it,) for it in expected)
    return [" or ".join(option.text for option in choice) for choice in choices]
