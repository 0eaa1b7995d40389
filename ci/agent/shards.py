"""A pytest stage whose tests several processes share: its shards, which run side by side.

``shard_plugin`` is the pytest plugin that selects the tests of a shard. ``ci.facts.shards`` later
merges the files of the shards.
"""

from __future__ import annotations

import json
import os
import re
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Callable, Iterable, Iterator, NamedTuple, Sequence, TypeVar

from ci.agent.artifacts import open_regular
from ci.agent.pytest_stage import PytestRuns, plugin_folder, with_plugin
from ci.agent.user import Handover
from ci.protocol.events import CommandEnd
from ci.protocol.job import StagePlan
from ci.protocol.pytest_status import NO_TESTS, severity, worst_status
from ci.protocol.stable_names import name_rules

Number = TypeVar("Number", int, float)

PLUGIN = "infini_ci_shard"
# What the plugin writes, in a folder of the code under test: two counts and a digest.
_REPORT = re.compile(r"(\d{1,9}) (\d{1,9}) ([0-9a-f]{64})", re.ASCII)
LONGEST_REPORT = 100  # bytes


class ShardCollection(NamedTuple):
    """The numbers of tests that a shard collected and selected, and a digest of the former."""

    collected: int | None = None
    selected: int | None = None
    digest: str | None = None


def processors_of(shard: int, shards: int) -> list[int]:
    """Return the processors of a shard, counted from 0, if there are enough for all.

    So `-n auto`, and libraries that start a thread for each processor, do not start too many.
    """
    own = sorted(os.sched_getaffinity(0))
    if shards == 1 or len(own) < shards:
        return []
    return own[shard * len(own) // shards : (shard + 1) * len(own) // shards]


@contextmanager
def only_shard(
    stage: StagePlan,
    shard: int,
    folders: Sequence[str],
    handover: Handover,
) -> Iterator[tuple[StagePlan, Path]]:
    """Yield the stage with the tests of one shard, counted from 0, and the folder of its plugin.

    ``folders`` are those of ``run_folders``.
    """
    with plugin_folder(handover, PLUGIN, "shard_plugin.py", written="report") as folder:
        content = [shard, stage.shards, dict(stage.seconds), name_rules(folders)]
        (folder / "shard.json").write_text(json.dumps(content), encoding="utf-8")
        yield with_plugin(stage, PLUGIN, folder), folder


def read_collection(folder: Path | None) -> ShardCollection:
    """Read what the plugin of a shard wrote; empty if it wrote nothing, or there is none."""
    text = b""
    if folder is not None:
        with suppress(OSError), open_regular(folder / "report/collected", os.O_NOFOLLOW) as file:
            text = file.read(LONGEST_REPORT)
    found = _REPORT.fullmatch(text.decode(errors="replace"))
    return ShardCollection(int(found[1]), int(found[2]), found[3]) if found else ShardCollection()


def combined_end(ends: Sequence[CommandEnd]) -> CommandEnd:
    """Return the end of a stage from those of its shards: the worst one, and the longest time.

    Memory counters are those of the control group, which all shards share.
    """
    worst = max(ends, key=lambda it: (it.ended_early, it.crashed, severity(it.exit_code)))
    return replace(
        worst,
        seconds=max(end.seconds for end in ends),
        cpu_user_s=_known(sum, (end.cpu_user_s for end in ends)),
        cpu_system_s=_known(sum, (end.cpu_system_s for end in ends)),
        peak_rss_bytes=_known(max, (end.peak_rss_bytes for end in ends)),
        oom_kills=_known(max, (end.oom_kills for end in ends)),
        memory_limit_hits=_known(max, (end.memory_limit_hits for end in ends)),
    )


def _known(
    how: Callable[[Iterable[Number]], Number], values: Iterable[Number | None]
) -> Number | None:
    known = [value for value in values if value is not None]
    return how(known) if known else None


def combined_runs(shards: Sequence[PytestRuns]) -> PytestRuns:
    """Return the runs of pytest in the wrappers of the shards, of which each may have one.

    A failed one counts, even if the exit status of another shard is unknown.
    """
    known = [it.pytest_status for it in shards if it.pytest_status is not None]
    worst = worst_status(known) if known else 0
    is_unknown = worst in (0, NO_TESTS) and len(known) < len(shards)
    number = _known(max, (it.pytest_runs for it in shards))
    return PytestRuns(None if is_unknown else worst, number)
