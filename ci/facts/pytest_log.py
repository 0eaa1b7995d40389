"""Read pytest's per-test log (pytest-reportlog) and its terminal output.

Counts come from the per-test log alone. Every test is counted exactly once, with the worst outcome
of its phases and attempts. So a test that fails, and whose teardown then fails too, is one failure
here and "1 failed, 1 error" in pytest's summary.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ci.agent.pytest_report import ANSI, SHARD, collected_tests, parse_report, worst_status
from ci.facts.operators import (
    operator_record,
    read_record,
    recorded_properties,
    skip_reason,
)
from ci.model.tests import (
    ClosingSummary,
    OperatorRecord,
    Outcome,
    Processor,
    PytestLog,
    Selection,
    TestOutcome,
)
from ci.util.lines import LONGEST_SECONDS, TruncatedLine
from ci.util.text import make_json_storable

REASON_LENGTH = 2000  # characters; an assertion on two large tensors prints megabytes
# Characters of names, reasons and properties that are kept of a log. 17,000 tests have 10 million.
LARGEST_LOG = 1 << 28
PER_TEST = 512  # characters that count for each test in addition, as it takes memory anyway

# The record that pytest-xdist writes for a worker process that died.
_WORKER_CRASH = re.compile(r"^worker '[^']+' crashed while running ")
_WORKER_CRASH_PHASE = "???"

# A line of a message in a traceback that was recorded as text.
_ERROR_LINE = re.compile(r"^E {3}(.*)", re.MULTILINE)
_SUMMARY = re.compile(
    r"^=*\s*((?:no tests ran|\d{1,9} [a-z]+(?:, \d{1,9} [a-z ]+)*)"
    r" in (\d{1,9}(?:\.\d{1,9})?)s(?: \([^)]*\))?)\s*=*$"
)

_HEADER = re.compile(r"=+ test session starts =+")
_LISTED = re.compile(r"=*\s*(?:no|\d{1,9}(?:/\d{1,9})?) tests? collected\b.* in \d[\d.]*s\b.*")
_CONFIG_FILE = re.compile(r"(?:rootdir: .*, )?(?:configfile|inifile): ([^,]+)")
# Why a session ended, in a line of its own: pytest.exit, and pytest-xdist that gives up.
_ENDING = re.compile(
    r"!+ (?:_pytest\.outcomes\.(Exit: .*?)|xdist\.\w+\.Interrupted: (.*?))(?: !+)?"
)
_GAVE_UP = re.compile(r"=+ xdist: (.*?) =+")
_TRACEBACK = re.compile(r"^_pytest\.outcomes\.(Exit: .+)")
_EARLY_EXIT = re.compile(r"(?:^|[\].sFExX])(Exit: .+)")  # before pytest writes such lines
NEAR_SUMMARY = 5  # lines from the reason, which may have several, to the summary

_SEVERITY = {outcome: rank for rank, outcome in enumerate(Outcome)}


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


@dataclass
class _Attempt:
    """The phases of one test that were reported so far."""

    outcome: Outcome | None = None
    reason: str | None = None
    seconds: float = 0.0
    ended: bool = False
    rerun: bool = False
    operator: OperatorRecord | None = None
    quarantine: str | None = None

    def add(self, report: Mapping[str, Any], properties: Mapping[str, Any]) -> None:
        # The sum of many durations within bounds may exceed them.
        self.seconds = min(self.seconds + (report.get("duration") or 0.0), LONGEST_SECONDS)
        self.ended |= report.get("when") in ("teardown", _WORKER_CRASH_PHASE)
        self.rerun |= report.get("outcome") == "rerun"
        if properties:
            self.operator = operator_record(properties)
            reference = properties.get("quarantine")
            self.quarantine = reference if isinstance(reference, str) else None
        self.keep(_phase_outcome(report), _reason(report))

    def result(self, node_id: str) -> TestOutcome | None:
        """Return the test; ``None`` if a missing phase could still change its outcome."""
        outcome = self.outcome
        if outcome is None or not (self.ended or outcome.bad):
            return None
        skipped = outcome is Outcome.SKIPPED
        return TestOutcome(
            node_id=node_id,
            outcome=outcome,
            seconds=self.seconds,
            reason=self.reason,
            skip_reason=skip_reason(self.operator, self.reason) if skipped else None,
            operator=self.operator,
            quarantine=self.quarantine,
        )

    def keep(self, outcome: Outcome | None, reason: str | None) -> None:
        """Keep an outcome that is worse than the one before; ``None`` is no outcome yet."""
        if outcome is not None and (
            self.outcome is None or _SEVERITY[outcome] < _SEVERITY[self.outcome]
        ):
            self.outcome, self.reason = outcome, reason


def _phase_outcome(report: Mapping[str, Any]) -> Outcome | None:
    """Return the outcome that one phase gives the test; ``None``: none yet."""
    phase, outcome = report.get("when"), report.get("outcome")
    if outcome == "failed":
        return Outcome.ERROR if phase in ("setup", "teardown") else Outcome.FAILED
    if outcome == "skipped":
        return Outcome.XFAILED if "wasxfail" in report else Outcome.SKIPPED
    if outcome == "passed" and phase == "call":
        return Outcome.XPASSED if "wasxfail" in report else Outcome.PASSED
    return None


def _reason(report: Mapping[str, Any]) -> str | None:
    """Return the message of a failure or a skip, without the traceback."""
    detail = report.get("longrepr")
    if isinstance(detail, Mapping):
        crash = detail.get("reprcrash") or {}
        detail = crash.get("message") if isinstance(crash, Mapping) else None
    elif isinstance(detail, list) and detail:  # a skip: file, line, message
        detail = str(detail[-1]).removeprefix("Skipped: ")
    elif isinstance(detail, str) and not _WORKER_CRASH.match(detail):
        # A file or fixture that is missing, with the code around it.
        detail = "\n".join(_ERROR_LINE.findall(detail)) or detail
    if report.get("outcome") == "skipped" and report.get("wasxfail"):
        detail = report["wasxfail"]
    return str(detail)[:REASON_LENGTH] if detail else None


@dataclass
class _LogReader:
    """Collects the records of a log, one after the other."""

    attempts: dict[str, _Attempt] = field(default_factory=dict)
    crashed: Counter[str] = field(default_factory=Counter)
    warnings: int = 0
    statuses: dict[int, list[int | None]] = field(default_factory=dict)
    """The exit status of each pytest session, by shard; ``None``: the session did not finish."""
    shard: int = 0
    """The shard of the next records, from 1 on; 0: of no shard."""
    begun: dict[str, int] = field(default_factory=dict)
    """The first shard of each test that began."""
    repeated: dict[str, None] = field(default_factory=dict)
    processor: Processor | None = None
    selection: Selection | None = None
    unreadable: int = 0
    longest: int = 0
    room: int = field(default_factory=lambda: LARGEST_LOG)

    def add(self, record: Mapping[str, Any]) -> None:
        kind = record["$report_type"]
        if kind == "TestReport":
            self._test(record)
        elif kind == "SubtestReport" and record["outcome"] == "failed":
            self._add_to(self._attempt(record["nodeid"]), record)
        elif kind == "CollectReport" and record["outcome"] != "passed":
            attempt = self._attempt(record["nodeid"], ended=True)
            failed = record["outcome"] == "failed"
            attempt.keep(Outcome.ERROR if failed else Outcome.SKIPPED, _reason(record))
        elif kind == "WarningMessage":
            # All shards collect all tests, with the same warnings.
            self.warnings += self.shard <= 1 or record.get("when") == "runtest"
        elif kind == "SessionStart":
            self.statuses.setdefault(self.shard, []).append(None)
        elif kind == "SessionFinish":
            sessions = self.statuses.setdefault(self.shard, [])
            if None in sessions:
                sessions.remove(None)
            sessions.append(record["exitstatus"])
        elif kind == SHARD:
            self.shard = record["shard"]
            self.statuses.setdefault(self.shard, [])

    def _attempt(self, node_id: str, *, ended: bool = False) -> _Attempt:
        """Return a test's attempt, or a new one; ``ValueError`` if too much is kept already."""
        known = self.attempts.get(node_id)
        if known is None:
            self._take_room(PER_TEST + len(node_id))
            self.attempts[node_id] = known = _Attempt(ended=ended)
        return known

    def _take_room(self, characters: int) -> None:
        if characters > self.room:
            raise ValueError("a log of more tests than any suite has")
        self.room -= characters

    def _add_to(self, attempt: _Attempt, report: Mapping[str, Any]) -> Mapping[str, Any]:
        """Add a report to an attempt, and return its properties."""
        properties = recorded_properties(report)
        self._take_room(sum(len(it) for it in properties.values() if isinstance(it, str)))
        attempt.add(report, properties)
        return properties

    def _test(self, report: Mapping[str, Any]) -> None:
        node_id = report["nodeid"]
        known = self._attempt(node_id)
        if self.begun.setdefault(node_id, self.shard) != self.shard:
            self.repeated[node_id] = None
        if report["when"] == "setup":
            if known.rerun:
                self.attempts[node_id] = known = _Attempt()
            else:
                known.ended = False  # run again: the worse outcome counts
        properties = self._add_to(known, report)
        self.processor = self.processor or read_record("processor", properties)
        self.selection = self.selection or read_record("selection", properties)
        message = report.get("longrepr")
        if isinstance(message, str) and _WORKER_CRASH.match(message):
            cause = message.partition("\n")[0].partition(f"{node_id!r}: ")[2][:REASON_LENGTH]
            self._take_room(len(node_id) + len(cause))
            self.crashed[f"{node_id} ({cause})" if cause else node_id] += 1

    def result(self) -> PytestLog:
        attempts = self.attempts.items()
        tests = (attempt.result(node_id) for node_id, attempt in attempts)
        running = tuple(node_id for node_id, attempt in attempts if not attempt.ended)
        statuses = [status for found in self.statuses.values() for status in found or [None]]
        ended = [status for status in statuses if status is not None]
        return PytestLog(
            tests=tuple(test for test in tests if test is not None),
            warnings=self.warnings,
            exit_status=worst_status(ended) if len(ended) == len(statuses) > 0 else None,
            running=running,
            crashed=tuple(
                name if count == 1 else f"{name} ({count} times)"
                for name, count in self.crashed.items()
            ),
            begun=len(self.begun),
            shards={it: self.begun[it] for it in running if self.begun.get(it)},
            repeated=tuple(self.repeated),
            processor=self.processor,
            selection=self.selection,
            unreadable_lines=self.unreadable,
            longest_line=self.longest,
            sessions=max([1, *map(len, self.statuses.values())]),
        )


def parse_log(lines: Iterable[str]) -> PytestLog:
    """Read the lines of ``pytest.jsonl``; unreadable lines are counted and skipped."""
    reader = _LogReader()
    for line in lines:
        if not line.strip():
            continue
        try:
            reader.add(make_json_storable(line, parse_report(line)))
        except ValueError:
            reader.unreadable += 1
            if isinstance(line, TruncatedLine):
                reader.longest = max(reader.longest, line.length)
    return reader.result()


def read_output(lines: Iterable[str]) -> PytestOutput:
    """Find the facts of pytest's terminal output."""
    collected = summary = ending = gave_up = config = None
    since_ending = depth = sessions = 0
    listed, last = False, ""
    for line in lines:
        collected = collected_tests(line) if collected is None else collected
        text = ANSI.sub("", line).strip()
        last = text or last
        since_ending += 1
        if found := _SUMMARY.match(text):
            summary = found
            if since_ending > NEAR_SUMMARY:
                ending = None
            sessions += depth == 1 and text.startswith("=")
            depth = max(depth - 1, 0)
        elif text.startswith("!") and (found := _ENDING.fullmatch(text)):
            ending, since_ending = found[1] or found[2], 0
        elif _HEADER.fullmatch(text):
            depth += 1
        elif found := _GAVE_UP.fullmatch(text):
            gave_up = found[1]
        elif config is None and (found := _CONFIG_FILE.match(text)):
            config = found[1]
        else:
            listed |= _LISTED.fullmatch(text) is not None
    early = _TRACEBACK if summary is not None else _EARLY_EXIT
    if ending is None and (found := early.search(last)):
        ending = found[1]
    return PytestOutput(
        collected=collected,
        summary=summary and ClosingSummary(text=summary[1], seconds=float(summary[2])),
        ending=ending or gave_up,
        sessions=sessions,
        only_listed=listed and summary is None,
        config_file=config,
    )
