"""Read pytest's terminal output."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ci.model.outcomes import ClosingSummary, Outcome, PytestLog
from ci.protocol.pytest_report import ANSI, collected_tests

# Plugins and conftest files add words of their own, in `pytest_report_teststatus`.
_SUMMARY = re.compile(
    r"^(=*)\s*((no tests ran|no tests collected|\d{1,9} [^\s=].*)"
    r" in (\d{1,9}(?:\.\d{1,9})?)s(?: \([^)]*\))?)\s*=*$"
)
LONGEST_SUMMARY = 500  # characters
# The list of failures that pytest prints above its closing summary.
_LIST = re.compile(r"=+ short test summary info =+")
_LISTED = re.compile(r"(FAILED|ERROR) |SUBFAIL|.* SUBFAIL ")
_DESCRIBED = ("SUBFAIL", "[", "(")  # the description of a subtest
MOST_LISTED = 20

_HEADER = re.compile(r"=+ test session starts =+")
_ONLY_COLLECTED = re.compile(
    r"=*\s*(?:no|\d{1,9}(?:/\d{1,9})?) tests? collected\b.* in \d[\d.]*s\b.*"
)
_CONFIG_FILE = re.compile(r"(?:rootdir: .*, )?(?:configfile|inifile): ([^,]+)")
# Why a session ended, in a line of its own: pytest.exit, and pytest-xdist that gives up.
_ENDING = re.compile(
    r"!+ (?:_pytest\.outcomes\.(Exit: .*?)|xdist\.\w+\.Interrupted: (.*?))(?: !+)?"
)
_GAVE_UP = re.compile(r"=+ xdist: (.*?) =+")
_TRACEBACK = re.compile(r"^_pytest\.outcomes\.(Exit: .+)")
_EARLY_EXIT = re.compile(r"(?:^|[\].sFExX])(Exit: .+)")  # before pytest writes such lines
NEAR_SUMMARY = 5  # lines from the reason, which may have several, to the summary


class ListedFailure(NamedTuple):
    """A failed test in the list that pytest prints at its end."""

    test: str
    message: str


@dataclass(frozen=True, kw_only=True)
class PytestOutput:
    """Facts from pytest's terminal output."""

    collected: int | None
    """Number of tests to run. It serves only to detect a session that ended early; shown counts
    come from the log."""
    summary: ClosingSummary | None
    last_lines: Sequence[str] = ()
    ending: str | None = None
    """Why the session ended early: ``Exit: reason`` of ``pytest.exit``, or that of pytest-xdist."""
    sessions: int = 0
    """Number of sessions that followed each other; those inside of another are not counted."""
    only_listed: bool = False
    """Whether pytest only collected the tests."""
    config_file: str | None = None
    """pytest's configuration file, if it printed one."""
    listed: Sequence[ListedFailure] = ()
    """The failures that pytest lists above its closing summary."""


def read_output(lines: Iterable[str], log: PytestLog | None = None, shard: int = 0) -> PytestOutput:
    """Find the facts of pytest's terminal output.

    Tests, and programs after pytest, may print a line like a summary. So the last one counts of
    those that agree best with the ``log``. Without a complete log, the last one of all counts.
    """
    reader = _OutputReader(log=log, shard=shard)
    for line in lines:
        reader.add(line)
    return reader.result()


@dataclass
class _OutputReader:
    """What was read so far."""

    log: PytestLog | None
    shard: int
    collected: int | None = None
    last: ClosingSummary | None = None
    best: ClosingSummary | None = None
    agreement: int = 1
    """How well ``best`` agrees with the log."""
    depth: int = 0
    """Sessions that began and did not end."""
    sessions: int = 0
    ending: str | None = None
    since_ending: int = 0
    gave_up: str | None = None
    only_listed: bool = False
    config_file: str | None = None
    listed: dict[str, ListedFailure] = field(default_factory=dict)
    in_list: bool = False
    last_text: str = ""

    def add(self, line: str) -> None:
        if self.collected is None:
            self.collected = collected_tests(line)
        text = ANSI.sub("", line).strip()
        self.last_text = text or self.last_text
        self.since_ending += 1
        if _LIST.fullmatch(text):
            self.listed, self.in_list = {}, True
        elif self.in_list and _LISTED.match(text):
            if (entry := _listed(text)) and len(self.listed) < MOST_LISTED:
                self.listed.setdefault(entry.test, entry)
        elif _ONLY_COLLECTED.fullmatch(text):
            self.only_listed = True
        elif match := _summary_match(text):
            self._add_summary(match)
        elif text.startswith("!") and (found := _ENDING.fullmatch(text)):
            self.ending, self.since_ending = found[1] or found[2], 0
        elif _HEADER.fullmatch(text):
            self.depth += 1
        elif found := _GAVE_UP.fullmatch(text):
            self.gave_up = found[1]
        elif self.config_file is None and (found := _CONFIG_FILE.match(text)):
            self.config_file = found[1]

    def _add_summary(self, match: re.Match[str]) -> None:
        summary = ClosingSummary(text=match[2], seconds=float(match[4]))
        if match[1] or match[3].startswith("no tests") or summary.is_usual:
            self.last = summary
        if self.log is not None:
            agreement = _agreement(summary, self.log, self.shard)
            if agreement >= self.agreement:
                self.best, self.agreement = summary, agreement
        if self.since_ending > NEAR_SUMMARY:
            self.ending = None
        self.in_list = False
        self.sessions += self.depth == 1 and bool(match[1])
        self.depth = max(self.depth - 1, 0)

    def result(self) -> PytestOutput:
        log = self.log
        ended = log is not None and log.exit_status is not None and not log.unreadable_lines
        is_complete = log is not None and ended and log.begun >= (self.collected or 0)
        summary = self.best if is_complete else self.last
        ending = self.ending
        early = _TRACEBACK if summary is not None else _EARLY_EXIT
        if ending is None and (found := early.search(self.last_text)):
            ending = found[1]
        return PytestOutput(
            collected=self.collected,
            summary=summary,
            listed=tuple(self.listed.values()),
            ending=ending or self.gave_up,
            sessions=self.sessions,
            only_listed=self.only_listed and summary is None,
            config_file=self.config_file,
        )


def _listed(text: str) -> ListedFailure | None:
    """Read an entry such as ``FAILED a.py::test_b[1] - assert 0``; a subtest has a name before."""
    word, _, entry = text.partition(" ")
    if word not in ("FAILED", "ERROR"):
        words = text.split(" ")
        names = (n for n, it in enumerate(words) if "::" in it and not it.startswith(_DESCRIBED))
        entry = " ".join(words[next(names, len(words)) :])
    test, _, message = entry.partition(" - ")
    is_test = "::" in test or (word == "ERROR" and " " not in test)
    return ListedFailure(test, message) if is_test else None


def _summary_match(text: str) -> re.Match[str] | None:
    match = _SUMMARY.match(text) if text.endswith(("s", ")", "=")) else None
    if match is None or len(match[2]) > LONGEST_SUMMARY or not match[2].isprintable():
        return None
    return match


def _agreement(summary: ClosingSummary, log: PytestLog, shard: int) -> int:
    """Return how well a summary agrees with the reports in a log, from 0 (not) to 3.

    3: pytest's own words have the counts of the log; whether subtests count depends on pytest's
    version. 2: only the sum agrees, since a plugin counts reports under other words. 1: a plugin
    hides reports.
    """
    reports, subtests = log.reports.get(shard, {}), log.subtests.get(shard, {})
    tests = summary.tests
    least = {it: reports.get(it, 0) for it in Outcome}
    most = {it: least[it] + subtests.get(it, 0) for it in Outcome}
    if all(least[it] <= tests[it] <= most[it] for it in Outcome):
        return 3
    if tests.total() <= sum(most.values()) and summary.total >= sum(least.values()):
        return 2
    return 1 if all(tests[it] <= most[it] for it in Outcome) else 0
