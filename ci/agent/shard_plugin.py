"""A pytest plugin: run one shard of the collected tests.

It is copied out of the agent's archive, into a folder for each shard, and imported by the pytest
of that shard. No shard knows what the others do: all of them compute the same assignment from the
tests that they collect and the times beside this file. So each test runs in exactly one shard if
all of them collect the same tests. The file ``report/collected`` lets the verdict check that.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any, Generator, List, Mapping, Sequence, Tuple

import pytest

FOLDER = Path(__file__).resolve().parent
REPORT = FOLDER / "report"
# A test costs pytest a millisecond beside its setup, call and teardown: 10,000 empty tests with a
# per-test log took 19 s, of which their durations are 7 s.
OVERHEAD_US = 1000
# Tests of one file stay together, which share its fixtures, up to this part of a shard's fair
# share: an eighth keeps the longest shard within 4/3 of the shortest possible one.
PARTS = 8

Job = Tuple[int, List[str]]  # tests that stay together, with their cost


def assign_shards(
    tests: Mapping[str, str], recorded: Mapping[str, float], shards: int
) -> dict[str, int]:
    """Return the shard of each test, from 0 on: the longest jobs first, to the emptiest shard.

    The result depends neither on the order of the tests nor on the process.

    Args:
        tests: Node ids. Tests of one group, a value that is not empty, get the same shard.
        recorded: Seconds of earlier runs by node id. Any other test counts as the median of these.
        shards: Number of shards.
    """
    costs = _costs(tests, recorded)
    # Integers: their sums do not depend on the order.
    limit = sum(costs.values()) // (shards * PARTS)
    jobs = sorted(_jobs(_units(tests, costs), limit), key=lambda job: (-job[0], job[1]))
    loads = [0] * shards
    found: dict[str, int] = {}
    for cost, names in jobs:
        shard = loads.index(min(loads))
        loads[shard] += cost
        found.update((name, shard) for name in names)
    return found


def _costs(tests: Mapping[str, str], recorded: Mapping[str, float]) -> dict[str, int]:
    """Return the microseconds of each test."""
    known = {name: round(recorded[name] * 1e6) for name in tests if name in recorded}
    usual = sorted(known.values())[(len(known) - 1) // 2] if known else OVERHEAD_US
    return {name: known.get(name, usual) + OVERHEAD_US for name in tests}


def _units(tests: Mapping[str, str], costs: Mapping[str, int]) -> list[Job]:
    """Return what cannot be split: single tests and groups, in the order of their first tests."""
    units: dict[tuple[bool, str], list[str]] = {}
    for name in sorted(tests):
        group = tests[name]
        units.setdefault((True, group) if group else (False, name), []).append(name)
    return [(sum(costs[name] for name in names), names) for names in units.values()]


def _jobs(units: Sequence[Job], limit: int) -> list[Job]:
    """Join consecutive units of one file, as long as they cost at most ``limit``."""
    jobs: list[Job] = []
    last = ""
    for cost, names in units:
        file = names[0].partition("::")[0]
        if jobs and file == last and jobs[-1][0] + cost <= limit:
            jobs[-1] = (jobs[-1][0] + cost, jobs[-1][1] + names)
        else:
            jobs.append((cost, names))
        last = file
    return jobs


@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config: Any, items: list[Any]) -> Generator[None, None, None]:
    """Select the tests of this shard, after all other plugins and conftest files have."""
    yield
    content = json.loads((FOLDER / "shard.json").read_text(encoding="utf-8"))
    shard, shards, recorded, rules = content
    names = {item: _stable(item.nodeid, rules) for item in items}
    tests = {names[item]: _group(item) for item in items}
    found = assign_shards(tests, recorded, shards)
    kept = [item for item in items if found[names[item]] == shard]
    others = [item for item in items if found[names[item]] != shard]
    _write_report(len(items), len(kept), sorted((it, tests[it]) for it in names.values()))
    items[:] = kept
    if others:
        config.hook.pytest_deselected(items=others)


def _stable(name: str, rules: Sequence[tuple[str, str]]) -> str:
    """Return the name of a test that recorded times have, without the path of a run's folder."""
    for rule, place in rules:
        name = re.sub(rule, place, name)
    return name


def _group(item: Any) -> str:
    """Return the group of a test that pytest-xdist would run in one process; empty: none."""
    mark = item.get_closest_marker("xdist_group")
    if mark is None:
        return ""
    return str(mark.args[0] if mark.args else mark.kwargs.get("name", "default"))


def _write_report(collected: int, selected: int, tests: Sequence[tuple[str, str]]) -> None:
    """Write the counts and a digest of all tests with their groups; workers of a shard agree."""
    content = json.dumps(tests).encode()
    text = f"{collected} {selected} {hashlib.sha256(content).hexdigest()}"
    temporary = REPORT / str(os.getpid())
    with suppress(OSError):  # then the verdict reports that it is missing
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(REPORT / "collected")
