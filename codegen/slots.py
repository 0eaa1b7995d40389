"""The slots of an operator, defined only here, and the order in which calls try them.

``slot.h`` and ``slot_order.h`` in ``src/include/infini/ops`` are generated from this module
(``python -m codegen headers``). The order comes from measured times, in ``slot_times.json``, which
``python -m bench --only kernels-cuda --slot-times FILE`` writes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from math import log
from pathlib import Path
from statistics import fmean
from typing import Any

from codegen.devices import platforms

SLOT_TIMES = Path(__file__).with_name("slot_times.json")


class Slot(IntEnum):
    """An implementation index. 0 to 7 are free for native and vendor code."""

    NATIVE_FIRST = 0
    NATIVE_LAST = 7
    TORCH = 8
    TRITON = 9


SLOT_COUNT = max(Slot) + 1


@dataclass(frozen=True, kw_only=True)
class SlotOrder:
    """The measured slots of an operator on one platform, the fastest first."""

    operator: str
    enumerator: str  # of the platform
    slots: tuple[int, ...]


def measured_orders(times: Mapping[str, Any]) -> list[SlotOrder]:
    """The order of every operator with several slots in the contents of ``slot_times.json``.

    A slot's place depends on the mean of its times relative to each other slot's, over all cases.
    """
    enumerator = next(each.enumerator for each in platforms() if each.name == times["platform"])
    by_operator: dict[str, list[Mapping[str, float]]] = {}
    for case in times["cases"]:
        by_operator.setdefault(case["operator"], []).append(case["microseconds"])
    return [
        SlotOrder(operator=operator, enumerator=enumerator, slots=_fastest_first(cases))
        for operator, cases in sorted(by_operator.items())
    ]


def _fastest_first(cases: Sequence[Mapping[str, float]]) -> tuple[int, ...]:
    """Sort the slots that every case has."""
    slots = sorted(set.intersection(*(set(case) for case in cases)), key=int)
    return tuple(map(int, sorted(slots, key=lambda slot: fmean(log(case[slot]) for case in cases))))


def read_slot_times() -> dict[str, Any]:
    """The measured times that are part of this source tree."""
    times: dict[str, Any] = json.loads(SLOT_TIMES.read_text(encoding="utf-8"))
    return times
