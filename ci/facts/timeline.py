"""When the stages, the build's commands and the tests of one platform ran, from its files.

The clocks are the agent's, Ninja's and pytest's. All are of one machine, so that seconds since the
epoch order them. The stages are placed by the agent's monotonic clock.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from ci.facts.build import NINJA_LOG, NinjaCommand, parse_ninja_log
from ci.facts.files import read_text_file
from ci.facts.record import RunRecord
from ci.facts.result_files import ResultFiles
from ci.protocol.agent_files import PYTEST_LOG
from ci.protocol.events import StageFinished, StageStarted
from ci.protocol.pytest_report import SHARD, SUBTEST, TEST, parse_report
from ci.protocol.stable_names import TestNames
from ci.util.lines import LONGEST_REPORT, lines_of_file

STAGES = "stages"  # the lane of the stages
SHORT_TESTS = "short tests"  # the kind of a span of many
MOST_TESTS = 500  # that are shown one by one: the longest. More would make pages of megabytes
MOST_LANES = 64  # of compilers or workers side by side; a build on 128 cores is folded
_WORST = ("failed", "skipped")


class TimeSpan(NamedTuple):
    """Something that ran; times are seconds since the first stage began."""

    lane: str
    name: str
    kind: str
    """``stage``, a kind of a build command, an outcome of a test, or ``SHORT_TESTS``."""
    start: float
    end: float


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """The spans of one platform, in order of their lanes and times."""

    spans: tuple[TimeSpan, ...]
    left_out: tuple[str, ...] = ()
    """What is not placed, and why."""


def read_timeline(folder: Path) -> Timeline | None:
    """Read the files of a platform's results folder; ``None`` without a record of its stages."""
    record = ResultFiles(folder=folder).record
    stages, epoch = _stages(record)
    if not stages:
        return None
    end = max(span.end for span in stages)
    left_out = []
    units = [*_units(parse_ninja_log(read_text_file(folder / NINJA_LOG) or ""), epoch)]
    if not all(_is_within(span, end) for span in units):
        left_out.append("build commands: Ninja's log does not record when the build began")
        units = []
    tests = [*_shorten([*_tests(folder / PYTEST_LOG, epoch, TestNames(record.folders))])]
    if not all(_is_within(span, end) for span in tests):
        left_out.append("tests: their log has times outside of the stages")
        tests = []
    return Timeline(spans=(*stages, *units, *tests), left_out=tuple(left_out))


def stages_in_order(stages: Iterable[tuple[str, float | None]]) -> Timeline:
    """Place stages one after the other, where only their seconds are known."""
    spans, begin = [], 0.0
    for name, seconds in stages:
        if seconds is not None:
            spans.append(TimeSpan(STAGES, name, "stage", begin, begin + seconds))
            begin += seconds
    missing = "build commands and tests: the files of this run are not in the folder of results"
    return Timeline(spans=tuple(spans), left_out=(missing,))


def _is_within(span: TimeSpan, end: float) -> bool:
    """Whether a span is within the run; clocks of file systems are late by some milliseconds."""
    return -1 <= span.start <= span.end <= end + 1


def _stages(record: RunRecord) -> tuple[list[TimeSpan], float]:
    """The stages, and when the first of them began in seconds since the epoch."""
    begun: dict[str, float] = {}
    spans, zero, epoch = [], 0.0, 0.0
    for event, time in zip(record.events, record.times, strict=True):
        now = time.monotonic
        match event:
            case StageStarted(stage=name):
                if not begun:
                    zero, epoch = now, time.epoch
                begun.setdefault(name, now)
            case StageFinished(stage=name) if name in begun and now >= begun[name]:
                spans.append(TimeSpan(STAGES, name, "stage", begun[name] - zero, now - zero))
    return spans, epoch


def _units(commands: Sequence[NinjaCommand], epoch: float) -> Iterator[TimeSpan]:
    """Place the commands of each invocation of Ninja, in as few lanes as ran side by side."""
    ordered = sorted(commands, key=lambda it: (it.invocation, it.start, it.end))
    for _, group in groupby(ordered, key=lambda it: it.invocation):
        own = [*group]
        # Some rewrite their output's time, to a later one. The earliest is when Ninja started.
        known = [it.begun - it.start / 1000 for it in own if it.begun]
        begin = min(known) - epoch if known else -float("inf")
        free: list[tuple[float, int]] = []  # the end of the last command of each lane
        for command in own:
            start, end = begin + command.start / 1000, begin + command.end / 1000
            lane = len(free)
            if free and (free[0][0] <= start or lane == MOST_LANES):
                _, lane = heapq.heappop(free)
            heapq.heappush(free, (end, lane))
            yield TimeSpan(f"build {lane + 1}", command.output, command.kind, start, end)


def _tests(path: Path, epoch: float, stable_name: TestNames) -> Iterator[TimeSpan]:
    """The tests by shard and worker; a test that was repeated in one process is one span."""
    found: dict[tuple[str, str], TimeSpan] = {}
    failed: set[tuple[str, str]] = set()  # by a subtest, which may have no times of its own
    shard = ""
    for line in lines_of_file(path, LONGEST_REPORT) if path.is_file() else ():
        if '"when": ' not in line and f'"{SHARD}"' not in line:
            continue
        try:
            report = parse_report(line)
        except ValueError:
            continue
        if report["$report_type"] == SHARD:
            shard = f" {report['shard']}"
            continue
        if report["$report_type"] not in (TEST, SUBTEST):
            continue
        start, stop = report.get("start"), report.get("stop")
        if not isinstance(start, int | float) or not isinstance(stop, int | float):
            continue
        worker = report.get("worker_id")
        lane = f"tests{shard} {worker}" if type(worker) is str else f"tests{shard}"
        place, outcome = (lane, stable_name(report["nodeid"])), report["outcome"]
        if report["$report_type"] == SUBTEST:
            if outcome == "failed":
                failed.add(place)
            continue
        span = TimeSpan(*place, outcome, start - epoch, stop - epoch)
        if before := found.get(place):
            kind = next((it for it in _WORST if it in (before.kind, outcome)), before.kind)
            span = span._replace(kind=kind, start=before.start)
        found[place] = span
    for place in failed & found.keys():
        found[place] = found[place]._replace(kind="failed")
    yield from sorted(found.values(), key=lambda it: (it.lane, it.start))


def _shorten(tests: Sequence[TimeSpan]) -> Iterator[TimeSpan]:
    """Keep the longest tests and the failed ones; combine those between them."""
    longest = {*heapq.nlargest(MOST_TESTS, tests, key=lambda it: it.end - it.start)}
    for _, lane in groupby(tests, key=lambda it: it.lane):
        for is_kept, group in groupby(lane, key=lambda it: it in longest or it.kind == "failed"):
            spans = [*group]
            if is_kept or len(spans) == 1:
                yield from spans
            else:
                many = spans[0]._replace(name=f"{len(spans):,} short tests", kind=SHORT_TESTS)
                yield many._replace(end=max(it.end for it in spans))
