"""The index of all tests: what each platform's newest runs made of them. The script searches it.

A platform's operator tests have its device in their names. Here they have one name without it.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ci.facts.suite import suite_name
from ci.model.outcomes import OperatorTest, Outcome, State
from ci.report.dashboard.collection import NO_REASON, Collection
from ci.util.text import make_inert, shorten

if TYPE_CHECKING:
    from ci.store.store import Store

SHOWN_RUNS = 20
"""Newest runs of each platform with tests: a suite of 17,000 tests takes 50 ms."""
MOST_TESTS = 50_000
"""Tests in the index, those that failed first: 17,000 on seven platforms are 0.45 MB."""
LONGEST_NAME = 300  # characters
LONGEST_REASON = 100
ABSENT = -1  # the place of what a test or a run does not have

_History = tuple[int, ...]  # places of states in runs, the newest first


@dataclass(frozen=True, kw_only=True)
class SearchPage:
    """What the page says itself, and the index for the script."""

    tests: int
    left_out: int
    data: Mapping[str, Any]


class _States(dict[State, int]):
    """Numbers states in the order in which they are first seen."""

    def __missing__(self, state: State) -> int:
        self[state] = len(self)
        return self[state]


@dataclass(frozen=True, kw_only=True)
class _Tests:
    """The tests of one row of the results table in its newest runs."""

    runs: Sequence[str]
    devices: frozenset[str]
    histories: Mapping[str, _History]
    """By name."""


def search_page(store: Store, found: Collection) -> SearchPage:
    states = _States()
    rows = {name: _read(store, found, name, states) for name in found.platforms}
    every = {name for row in rows.values() for name in row.histories}
    bad = {place for state, place in states.items() if state.outcome.bad}
    failed = {
        name
        for row in rows.values()
        for name, history in row.histories.items()
        if not bad.isdisjoint(history)
    }
    kept = sorted([*sorted(failed), *sorted(every - failed)][:MOST_TESTS])
    order = {run.run_id: place for place, run in enumerate(found.runs)}
    known: dict[_History | None, int] = {None: ABSENT}
    platforms = []
    for name, row in rows.items():
        if row.runs:
            column = (known.setdefault(row.histories.get(it), len(known) - 1) for it in kept)
            entry = {
                "name": name,
                "label": found.label(name),
                "runs": [order[run_id] for run_id in row.runs],
                "tests": _numbers(column),
            }
            platforms.append(entry)
    shared, rests = _front_coded([make_inert(shorten(it, LONGEST_NAME)) for it in kept])
    return SearchPage(
        tests=len(kept),
        left_out=len(every) - len(kept),
        # Texts with many numbers: each item of a list would be checked for a stranger's text.
        data={
            "shared": _numbers(shared),
            "names": "\n".join(rests),
            "states": [_state_text(it) for it in states],
            "bad": sorted(bad),
            "histories": [_numbers(it) for it in known if it is not None],
            "platforms": platforms,
            "devices": sorted({it for row in rows.values() for it in row.devices}),
        },
    )


def _read(store: Store, found: Collection, name: str, states: _States) -> _Tests:
    tested = [it for it in found.on_line(name) if it.counts]
    runs: list[str] = []
    devices: set[str] = set()
    columns: list[Mapping[str, int]] = []
    shown: dict[int, list[str]] = {}  # runs share lists of names
    for result in tested[: -SHOWN_RUNS - 1 : -1]:
        outcomes = store.outcomes(result.run_id, result.platform)
        if not outcomes.names:
            continue
        names = shown.get(id(outcomes.names))
        if names is None:
            device = outcomes.device
            devices |= {device} if device else set()
            names = [_shown_name(it, device) for it in outcomes.names]
            shown[id(outcomes.names)] = names
        # Tests with equal endings share one object, so there are few to look up.
        endings = {id(ending): ending for ending in outcomes.endings}
        place_of = {key: states[ending.state] for key, ending in endings.items()}
        places = [place_of[id(ending)] for ending in outcomes.endings]
        columns.append(dict(zip(names, places, strict=True)))
        runs.append(result.run_id)
    every = dict.fromkeys(name for column in columns for name in column)
    histories = {it: tuple(column.get(it, ABSENT) for column in columns) for it in every}
    return _Tests(runs=runs, devices=frozenset(devices), histories=histories)


def _shown_name(node_id: str, device: str | None) -> str:
    """The name of a test on all platforms, on one line."""
    name = suite_name(node_id, device)
    if isinstance(name, OperatorTest):
        name = f"{name.function}[{name.overload}-{name.variant}-slot{name.slot}]"
    return " ".join(name.splitlines())


def _state_text(state: State) -> str:
    """``skipped: no sample``."""
    if state.outcome is not Outcome.SKIPPED:
        return state.outcome.value
    return f"skipped: {shorten(state.reason or NO_REASON, LONGEST_REASON)}"


def _numbers(numbers: Iterable[int]) -> str:
    return " ".join(map(str, numbers))


def _front_coded(names: Sequence[str]) -> tuple[list[int], list[str]]:
    """How many characters each name shares with the one before it, and the rest of it.

    A fifth of the names' size, as they are sorted. Only ASCII is shared: JavaScript counts other
    characters in another way.
    """
    shared = [0] if names else []
    for pair in pairwise(names):
        common = posixpath.commonprefix(pair)
        shared.append(len(common) if common.isascii() else 0)
    return shared, [name[count:] for name, count in zip(names, shared, strict=True)]
