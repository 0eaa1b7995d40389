"""Reading the further attempts at failed tests, and what they add up to.

They are evidence of flaky tests; no verdict, count or time of a run hangs on them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from ci.facts.pytest_log import parse_log
from ci.model.details import Rerun
from ci.model.events import RerunFinished, RunRecord
from ci.model.tests import Outcome, PytestLog
from ci.util.lines import LONGEST_REPORT, lines_of_file
from ci.util.text import counted

_LOG = re.compile(r"pytest\.rerun-([1-9][0-9]*)\.jsonl", re.ASCII)


def read_reruns(folder: Path, log: PytestLog | None, record: RunRecord) -> tuple[Rerun, ...]:
    """The reruns in a platform's results folder; ``log`` and ``record`` are of the run itself."""
    if log is None:
        return ()
    failed = frozenset(log.named(Outcome.FAILED, Outcome.ERROR))
    found = {int(match[1]): path for path in folder.glob("pytest.rerun-*") if (match := _log(path))}
    return tuple(
        rerun
        for attempt in sorted(found)
        for rerun in _attempt(attempt, found[attempt], record.reruns.get(attempt))
        if rerun.node_id in failed
    )


def _log(path: Path) -> re.Match[str] | None:
    return _LOG.fullmatch(path.name) if path.is_file() else None


def _attempt(attempt: int, path: Path, end: RerunFinished | None) -> Iterator[Rerun]:
    log = parse_log(lines_of_file(path, LONGEST_REPORT))
    for test in log.tests:
        yield Rerun(
            node_id=test.node_id,
            attempt=attempt,
            outcome=test.outcome,
            seconds=test.seconds,
            reason=test.reason,
        )
    told = {test.node_id for test in log.tests}
    if end is not None and end.crashed:
        for node_id in log.running:
            if node_id not in told:
                yield _died(node_id, attempt, end)


def _died(node_id: str, attempt: int, end: RerunFinished) -> Rerun:
    """A test that its process did not live to tell of."""
    reason = f"the process died in it (signal {end.signal})"
    return Rerun(
        node_id=node_id, attempt=attempt, outcome=Outcome.FAILED, seconds=0.0, reason=reason
    )


def rerun_notes(reruns: Sequence[Rerun], failed: Iterable[str], record: RunRecord) -> list[str]:
    """What a row of the table says of the reruns of its ``failed`` tests."""
    if not record.reruns and record.reruns_ended is None:
        return []
    attempts: dict[str, list[bool]] = {node_id: [] for node_id in failed}
    for rerun in reruns:
        if rerun.outcome.good or rerun.outcome.bad:
            attempts[rerun.node_id].append(rerun.outcome.good)
    notes = [_note(ending, tests) for ending, tests in _endings(attempts).items()]
    ended = record.reruns_ended
    return [
        *notes,
        *([f"no {'more ' if record.reruns else ''}reruns: {ended.reason}"] if ended else []),
    ]


def _endings(attempts: Mapping[str, list[bool]]) -> dict[str, list[list[bool]]]:
    endings: dict[str, list[list[bool]]] = defaultdict(list)
    for passed in attempts.values():
        endings[_ending(passed)].append(passed)
    return dict(sorted(endings.items()))


FLAKY = "flaky"
ALONE = "flaky, or dependent on the tests before"  # which a rerun does without
FAILS = "fails"
UNKNOWN = "unknown"


def _ending(passed: Sequence[bool]) -> str:
    if not passed:
        return UNKNOWN
    if all(passed):
        return ALONE
    return FLAKY if any(passed) else FAILS


def _note(ending: str, tests: Sequence[Sequence[bool]]) -> str:
    """``3 failed tests passed in 5 of 6 reruns: flaky``; the reruns of all of them together."""
    which = counted(len(tests), "failed test")
    reruns = sum(map(len, tests))
    if ending == UNKNOWN:
        return f"{which} without a result in any rerun"
    if ending == FAILS:
        return f"{which} failed again in all {counted(reruns, 'rerun')}"
    passed = sum(map(sum, tests))
    share = "all" if passed == reruns else f"{passed:,} of"
    return f"{which} passed in {share} {counted(reruns, 'rerun')}: {ending}"
