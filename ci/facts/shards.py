"""Merge the files of a suite that several processes shared into those of one suite.

Each shard has its own per-test log, output and JUnit file, on the machine that ran it. The merged
per-test log is the logs one after the other, each after a record with the number of its shard. The
shards' own files stay.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import BinaryIO

from ci.facts.pytest_output import PytestOutput
from ci.model.outcomes import ClosingSummary, Outcome, PytestLog
from ci.model.results import ShardResult
from ci.protocol.agent_files import JUNIT, PYTEST_LOG, files_of
from ci.protocol.events import ShardFinished
from ci.protocol.job import StagePlan
from ci.protocol.pytest_report import SHARD
from ci.protocol.pytest_status import USUAL, severity
from ci.util.files import copy_file, open_for_replacement
from ci.util.text import join_names

# From the first suite to the last; pytest writes one.
_SUITES = re.compile(rb"<testsuite[ >].*</testsuite>", re.DOTALL)
_JUNIT = (b'<?xml version="1.0" encoding="utf-8"?><testsuites>', b"</testsuites>\n")
LARGEST_JUNIT = 1 << 28  # bytes; one of 17,000 tests has 5 million
# In the order of pytest's closing summary.
_COUNTS = ("failed", "passed", "skipped", "deselected", "xfailed", "xpassed", "warning", "error")
_PLURALS = ("warning", "error")
Shards = Mapping[int, ShardFinished]  # that ended, by their numbers from 1 on
_MINUTE_S = 60  # from which on pytest also prints hours, minutes and seconds


def merge_files(folder: Path, stage: StagePlan) -> list[str]:
    """Merge the files of the shards of a stage, if there are any; return what went wrong."""
    problems = []
    for name, write in (
        (PYTEST_LOG, _write_log),
        (f"{stage.name}.log", _write_output),
        (JUNIT, _write_junit),
    ):
        paths = [folder / it for it in files_of(stage, name)]
        if stage.shards == 1 or not any(path.is_file() for path in paths):
            continue
        try:
            with open_for_replacement(folder / name) as target:
                write(target, paths)
        except OSError as error:  # such as a full disk
            problems.append(f"the files {name} of the shards cannot be merged: {error.strerror}")
    return problems


def _write_log(target: BinaryIO, paths: Sequence[Path]) -> None:
    for shard, path in enumerate(paths, 1):
        target.write(b'{"$report_type": "%s", "shard": %d}\n' % (SHARD.encode(), shard))
        _append(target, path)


def _write_output(target: BinaryIO, paths: Sequence[Path]) -> None:
    for shard, path in enumerate(paths, 1):
        target.write(b"===== shard %d of %d: %s =====\n" % (shard, len(paths), path.name.encode()))
        _append(target, path)


def _write_junit(target: BinaryIO, paths: Sequence[Path]) -> None:
    target.write(_JUNIT[0])
    for path in paths:
        if path.is_file() and path.stat().st_size <= LARGEST_JUNIT:
            found = _SUITES.search(path.read_bytes())
            target.write(found[0] if found else b"")
    target.write(_JUNIT[1])


def _append(target: BinaryIO, path: Path) -> None:
    """Append a file; its last line may be incomplete, if its process died."""
    if path.is_file():
        with path.open("rb") as content:
            copy_file(content, target)
        target.write(b"\n")


def merge_outputs(
    outputs: Sequence[PytestOutput], log: PytestLog | None, ends: Shards
) -> PytestOutput:
    """Return the facts of a whole suite from the outputs of its shards and their merged log."""
    selected = [end.selected for end in ends.values() if end.selected is not None]

    def badness(shard: int) -> tuple[bool, tuple[bool, int]]:
        status = ends[shard].exit_code if shard in ends else 0
        return outputs[shard - 1].summary is None, severity(status)

    worst = max(range(1, len(outputs) + 1), key=badness)
    return PytestOutput(
        collected=sum(selected) if len(selected) == len(outputs) else None,
        summary=_merge_summaries(outputs, log, ends.get(1)),
        last_lines=outputs[worst - 1].last_lines,
        ending=next((it.ending for it in outputs if it.ending is not None), None),
        sessions=max(it.sessions for it in outputs),
        only_listed=any(it.only_listed for it in outputs),
        config_file=outputs[0].config_file,
        listed=[entry for output in outputs for entry in output.listed],
    )


def _merge_summaries(
    outputs: Sequence[PytestOutput], log: PytestLog | None, first: ShardFinished | None
) -> ClosingSummary | None:
    """Return the closing summary that one process would have printed; ``None``: one is missing."""
    found = [it.summary for it in outputs if it.summary is not None]
    if len(found) < len(outputs):
        return None
    counts = {name: sum(it.count(name, f"{name}s") for it in found) for name in _COUNTS}
    if log is not None and log.exit_status is not None:
        # The sums count files that were skipped, or cannot be collected, once for each shard.
        for outcome in (Outcome.SKIPPED, Outcome.ERROR):
            counts[outcome.value] = min(counts[outcome.value], log.count(outcome))
        counts["warning"] = log.warnings
    known = {*counts, *(f"{name}s" for name in _PLURALS)}
    for name, count in sum((it.counts for it in found), Counter()).items():
        if name not in known:
            counts[name] = count
    # All shards deselect the same tests, apart from those of the others.
    others = (first.collected or 0) - (first.selected or 0) if first else 0
    counts["deselected"] = max(found[0].count("deselected") - others, 0)
    words = [
        f"{count} {name}" + ("s" if name in _PLURALS and count > 1 else "")
        for name, count in counts.items()
        if count
    ]
    seconds = max(it.seconds for it in found)
    text = f"{', '.join(words) or 'no tests ran'} in {seconds:.2f}s"
    if seconds >= _MINUTE_S:
        text += f" ({timedelta(seconds=int(seconds))})"
    return ClosingSummary(text=text, seconds=seconds)


def shard_results(stage: StagePlan, ends: Shards) -> Iterator[ShardResult]:
    """Yield the results of the shards of a stage; none without shards."""
    for shard in range(1, stage.shards + 1) if stage.shards > 1 else ():
        end = ends.get(shard)
        yield ShardResult(
            shard=shard,
            tests=end.selected if end else None,
            seconds=end.seconds if end else None,
            exit_code=end.exit_code if end else None,
        )


def division_errors(stage: StagePlan, ends: Shards, log: PytestLog | None) -> list[str]:
    """Return why the shards may not have run each test exactly once; empty: they did.

    Only shards that ended by themselves count: others fail the run anyway.
    """
    if stage.shards == 1:
        return []
    found = []
    if silent := [
        str(shard)
        for shard, end in ends.items()
        if end.exit_code in USUAL and not end.ended_early and end.digest is None
    ]:
        found.append(
            f"shard {join_names(silent)} did not record which tests it collected: the test command"
            " must pass its arguments and PYTHONPATH on to pytest"
        )
    digests = {end.digest for end in ends.values() if end.digest is not None}
    if len(digests) > 1:
        counts = ", ".join(f"{end.collected or 0:,}" for end in ends.values())
        found.append(
            f"the shards collected different tests ({counts}), so some may have run twice or not"
            " at all: the names and groups of tests must not depend on the process, such as on"
            " the order of a set"
        )
    if log is not None and log.repeated:
        found.append(f"more than one shard ran {join_names(log.repeated)}")
    return found
