"""Read pytest's per-test log (pytest-reportlog).

Counts come from the per-test log alone. Every test is counted exactly once, with the worst outcome
of its phases, attempts and subtests. So a test that fails, and whose teardown then fails too, is
one failure here and "1 failed, 1 error" in pytest's summary. A test with two failed subtests is one
failure here, and two or three there. Subtests that are skipped, or fail as expected, leave the
outcome of their test as it is.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ci.facts.operators import operator_record, read_record, recorded_properties, skip_reason
from ci.model.outcomes import (
    OperatorRecord,
    Outcome,
    Processor,
    PytestLog,
    Selection,
    TestOutcome,
)
from ci.protocol.pytest_report import (
    SHARD,
    SUBTEST,
    TEST,
    damaged_report,
    parse_report,
    subtest_name,
)
from ci.protocol.pytest_status import TESTS_FAILED, worst_status
from ci.protocol.stable_names import TestNames
from ci.util.lines import LONGEST_SECONDS, TruncatedLine
from ci.util.text import counted, make_json_storable

REASON_LENGTH = 2000  # characters; an assertion on two large tensors prints megabytes
# Characters of names, reasons and properties that are kept of a log. 17,000 tests have 10 million.
LARGEST_LOG = 1 << 28
PER_TEST = 512  # characters that count for each test in addition, as it takes memory anyway
MOST_SUBTESTS = 20  # of a test, whose names and reasons are kept
MOST_DAMAGED = 20  # tests of damaged lines that are named

# The record that pytest-xdist writes for a worker process that died.
_WORKER_CRASH = re.compile(r"^worker '[^']+' crashed while running ")
_WORKER_CRASH_PHASE = "???"

# A line of a message in a traceback that was recorded as text.
_ERROR_LINE = re.compile(r"^E {3}(.*)", re.MULTILINE)
# pytest gives a test this reason if only its subtests failed.
_CONTAINS = re.compile(r"contains \d+ failed subtests?")

_SEVERITY = {outcome: rank for rank, outcome in enumerate(Outcome)}


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
    subtests: list[tuple[Outcome, str]] = field(default_factory=list)
    """Outcomes and descriptions of the subtests that did not pass."""
    repeated: list[tuple[Outcome, str]] = field(default_factory=list)
    """Those of earlier attempts, which a plugin repeated."""
    failing: int = 0
    """Number of ``subtests`` that failed."""

    def add(self, report: Mapping[str, Any], properties: Mapping[str, Any]) -> Outcome | None:
        """Add a phase, and return the outcome that it alone gives the test."""
        # The sum of many durations within bounds may exceed them.
        self.seconds = min(self.seconds + (report.get("duration") or 0.0), LONGEST_SECONDS)
        self.ended |= report.get("when") in ("teardown", _WORKER_CRASH_PHASE)
        if report.get("outcome") == "rerun":
            self.rerun = True
            self.repeated, self.subtests = self.repeated + self.subtests, []
            self.failing = 0
        if properties:
            self.operator = operator_record(properties)
            reference = properties.get("quarantine")
            self.quarantine = reference if isinstance(reference, str) else None
        outcome = _phase_outcome(report)
        self.keep(outcome, _reason(report))
        return outcome

    def result(self, node_id: str) -> TestOutcome | None:
        """Return the test; ``None`` if a missing phase could still change its outcome."""
        outcome, reason = self.outcome, self.reason
        if failed := [text for it, text in self.subtests if it.bad]:
            if outcome and outcome.bad and reason and not _CONTAINS.fullmatch(reason):
                failed.append(f"the test: {reason}")
            outcome, reason = Outcome.FAILED, _joined(failed)
        elif self.subtests and outcome and outcome.good:
            reason = _joined([text for _, text in self.subtests])
        if outcome is None or not (self.ended or outcome.bad):
            return None
        skipped = outcome is Outcome.SKIPPED
        return TestOutcome(
            node_id=node_id,
            outcome=outcome,
            seconds=self.seconds,
            reason=reason,
            skip_reason=skip_reason(self.operator, reason) if skipped else None,
            operator=self.operator,
            quarantine=self.quarantine,
        )

    def add_subtest(self, report: Mapping[str, Any]) -> None:
        """Add a subtest. Its time is a part of that of the test's call."""
        outcome = _phase_outcome(report)
        if outcome is not None and not outcome.good:
            how = "" if outcome.bad else f"{outcome}: "
            text = f"subtest {subtest_name(report)}: {how}{_reason(report) or outcome}"
            self.failing += outcome.bad
            number = self.failing if outcome.bad else len(self.subtests) - self.failing + 1
            is_shown = number <= MOST_SUBTESTS
            self.subtests.append((outcome, text[:REASON_LENGTH] if is_shown else ""))

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


def _joined(texts: Sequence[str]) -> str:
    """Join the descriptions of subtests: each has a share of the length of a reason."""
    shown = [text for text in texts if text]
    length = REASON_LENGTH // max(len(shown), 1)
    lines = [text[:length].replace("\n", "\n  ") for text in shown]
    if len(shown) < len(texts):
        lines.append(f"and {counted(len(texts) - len(shown), 'more subtest')}")
    return "\n".join(lines)


@dataclass
class _LogReader:
    """Collects the records of a log, one after the other."""

    stable_name: Callable[[str], str]
    """Returns the name of a test without the path of the run's folder."""
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
    reports: dict[int, dict[str, int]] = field(default_factory=dict)
    """Numbers of reports by shard and by the word of pytest's closing summary."""
    subtests: dict[int, dict[str, int]] = field(default_factory=dict)
    damaged: dict[str, None] = field(default_factory=dict)

    def add(self, record: Mapping[str, Any]) -> None:
        kind = record["$report_type"]
        if kind == TEST:
            self._test(record)
        elif kind == SUBTEST:
            self._subtest(record)
        elif kind == "CollectReport" and record["outcome"] != "passed":
            attempt = self._attempt(self.stable_name(record["nodeid"]), ended=True)
            outcome = Outcome.ERROR if record["outcome"] == "failed" else Outcome.SKIPPED
            attempt.keep(outcome, _reason(record))
            self._count(self.reports, outcome)
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

    def _count(self, counts: dict[int, dict[str, int]], outcome: Outcome) -> None:
        # A Counter takes a tenth of the reader's time.
        own = counts.setdefault(self.shard, {})
        own[outcome] = own.get(outcome, 0) + 1

    def _take_room(self, characters: int) -> None:
        if characters > self.room:
            raise ValueError("a log of more tests than any suite has")
        self.room -= characters

    def add_damaged(self, line: str) -> None:
        """Count a line that is no valid record, and keep which test it is of, if it shows that.

        A failure counts in spite of the damage.
        """
        self.unreadable += 1
        if isinstance(line, TruncatedLine):
            self.longest = max(self.longest, line.length)
        record = damaged_report(line)
        if record is None:
            return
        record = make_json_storable(line, record)
        name = self.stable_name(record["nodeid"])
        if len(self.damaged) < MOST_DAMAGED:
            self.damaged[name] = None
        with suppress(ValueError):  # of more tests than any suite has
            if record["outcome"] == "failed":
                self.add(record)
            elif record["when"] == "teardown":
                self._attempt(name).ended = True

    def _subtest(self, report: Mapping[str, Any]) -> None:
        attempt = self._attempt(self.stable_name(report["nodeid"]))
        if outcome := _phase_outcome(report):
            self._take_room(0 if outcome.good else PER_TEST)
            attempt.add_subtest(report)
            self._count(self.subtests, outcome)

    def _test(self, report: Mapping[str, Any]) -> None:
        node_id = self.stable_name(report["nodeid"])
        known = self._attempt(node_id)
        if self.begun.setdefault(node_id, self.shard) != self.shard:
            self.repeated[node_id] = None
        if report["when"] == "setup":
            if known.rerun:
                # The plugin may write the subtests of this attempt before its setup.
                known = _Attempt(subtests=known.subtests, repeated=known.repeated)
                self.attempts[node_id] = known
            else:
                known.ended = False  # run again: the worse outcome counts
        properties = recorded_properties(report)
        self._take_room(sum(len(it) for it in properties.values() if isinstance(it, str)))
        if (outcome := known.add(report, properties)) is not None:
            self._count(self.reports, outcome)
        self.processor = self.processor or read_record("processor", properties)
        self.selection = self.selection or read_record("selection", properties)
        message = report.get("longrepr")
        if isinstance(message, str) and _WORKER_CRASH.match(message):
            test = report["nodeid"]
            known.reason = known.reason and known.reason.replace(f"{test!r}", f"{node_id!r}")
            cause = message.partition("\n")[0].partition(f"{test!r}: ")[2][:REASON_LENGTH]
            self._take_room(len(node_id) + len(cause))
            self.crashed[f"{node_id} ({cause})" if cause else node_id] += 1

    def result(self) -> PytestLog:
        attempts = self.attempts.items()
        tests = {node_id: attempt.result(node_id) for node_id, attempt in attempts}
        if any(TESTS_FAILED in found for found in self.statuses.values()) and not any(
            test.outcome.bad for test in tests.values() if test is not None
        ):
            # Some plugins that repeat a failed test do not take back that its subtests failed.
            for node_id, attempt in attempts:
                if attempt.repeated:
                    attempt.subtests = attempt.repeated + attempt.subtests
                    tests[node_id] = attempt.result(node_id)
        running = tuple(node_id for node_id, attempt in attempts if not attempt.ended)
        statuses = [status for found in self.statuses.values() for status in found or [None]]
        ended = [status for status in statuses if status is not None]
        return PytestLog(
            tests=tuple(test for test in tests.values() if test is not None),
            warnings=self.warnings,
            exit_status=worst_status(ended) if len(ended) == len(statuses) > 0 else None,
            running=running,
            crashed_again=any(count > 1 for count in self.crashed.values()),
            crashed=tuple(
                name if count == 1 else f"{name} ({count} times)"
                for name, count in self.crashed.items()
            ),
            begun=len(self.begun),
            lost=tuple(
                name
                for name, attempt in attempts
                if tests[name] is None and attempt.ended and name in self.begun
            ),
            shards={it: self.begun[it] for it in running if self.begun.get(it)},
            repeated=tuple(self.repeated),
            processor=self.processor,
            selection=self.selection,
            unreadable_lines=self.unreadable,
            longest_line=self.longest,
            sessions=max([1, *map(len, self.statuses.values())]),
            damaged=tuple(self.damaged),
            failed_subtests=sum(it.bad for _, at in attempts for it, _ in at.subtests),
            reports=self.reports,
            subtests=self.subtests,
        )


def parse_log(lines: Iterable[str], folders: Sequence[str] = ()) -> PytestLog:
    """Read the lines of ``pytest.jsonl``; unreadable lines are counted and skipped.

    ``folders`` are those of ``RunStarted``: see ``TestNames``.
    """
    reader = _LogReader(stable_name=TestNames(folders))
    for line in lines:
        if not line.strip():
            continue
        try:
            reader.add(make_json_storable(line, parse_report(line)))
        except ValueError:
            reader.add_damaged(line)
    return reader.result()
