"""How the parts of a whole shifted between two sides: added, removed, grown, all alike. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

ALIKE = 5  # parts, from which on all of them can be said to have moved together
UNIFORM = 0.05  # relative; less is not worth a word
OUTLIER = 0.2  # relative; a part that moved by less is not worth its name
# How far a part has to move if all scatter, by the quarter that moved least: 4 standard deviations,
# whatever half of the others did. Six builds of 16 units on 2 cores that 6 processes
# used at the same time: half of the units moved by more than 20 % against the others.
QUARTERS = 12.6


class Kind(StrEnum):
    """In what way parts shifted; further down, what else is a reason of a change."""

    ADDED = "added"
    REMOVED = "removed"
    GREW = "grew"
    SHRANK = "shrank"
    CACHE_LOST = "cache lost"
    CACHE_GAINED = "cache gained"
    UNIFORM = "uniform"  # all alike: no single one is the cause
    REST = "rest"
    PARALLEL = "parallel"  # the same work, less of it at a time
    STAGE = "stage"  # another part of the same total
    UNEXPLAINED = "unexplained"
    CACHE_RATE = "cache rate"
    TRACE = "trace"
    LINES = "lines"
    FLAGS = "flags"
    PACKAGES = "packages"
    ENVIRONMENT = "environment"


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """One part of a whole."""

    amount: float
    cached: bool | None = None


@dataclass(frozen=True, kw_only=True)
class Shift:
    """Parts that shifted in one way."""

    kind: Kind
    names: tuple[str, ...]
    before: float
    after: float

    @property
    def amount(self) -> float:
        return self.after - self.before


Parts = Mapping[str, Part]


def shifts(before: Parts, after: Parts, *, noisy: bool = True) -> Iterator[Shift]:
    """One shift of each part that stands out, one of all alike, and one of the rest.

    Together they are all of the difference. The amounts of a part that is ``noisy`` differ
    without a cause.
    """
    yield from _each(Kind.ADDED, after.keys() - before.keys(), before, after)
    yield from _each(Kind.REMOVED, before.keys() - after.keys(), before, after)
    common = before.keys() & after.keys()
    lost = {name for name in common if before[name].cached and after[name].cached is False}
    gained = {name for name in common if after[name].cached and before[name].cached is False}
    yield from _each(Kind.CACHE_LOST, lost, before, after)
    yield from _each(Kind.CACHE_GAINED, gained, before, after)
    same = common - lost - gained
    pairs = {name: (before[name].amount, after[name].amount) for name in same}
    yield from _of_same(pairs) if noisy else _every(pairs)


def _each(kind: Kind, names: Collection[str], before: Parts, after: Parts) -> Iterator[Shift]:
    nothing = Part(amount=0.0)
    for name in sorted(names):
        then, now = before.get(name, nothing).amount, after.get(name, nothing).amount
        yield Shift(kind=kind, names=(name,), before=then, after=now)


Pairs = Mapping[str, tuple[float, float]]


def _every(pairs: Pairs) -> Iterator[Shift]:
    for name, (then, now) in sorted(pairs.items()):
        if then != now:
            kind = Kind.GREW if now > then else Kind.SHRANK
            yield Shift(kind=kind, names=(name,), before=then, after=now)


def _of_same(pairs: Pairs) -> Iterator[Shift]:
    ratios = {name: now / then for name, (then, now) in pairs.items() if then > 0 and now > 0}
    center = _common_factor(ratios, pairs)
    limit = _limit(ratios, center)
    outliers = {
        name for name, ratio in ratios.items() if abs(math.log(ratio / center)) > math.log1p(limit)
    }
    moved = tuple(sorted(pairs.keys() - outliers))
    then = sum(pairs[name][0] for name in moved)
    now = sum(pairs[name][1] for name in moved)
    for name in sorted(outliers):
        kind = Kind.GREW if pairs[name][1] > pairs[name][0] * center else Kind.SHRANK
        yield Shift(kind=kind, names=(name,), before=pairs[name][0], after=pairs[name][1])
    if moved:
        kind = Kind.UNIFORM if center != 1 else Kind.REST
        yield Shift(kind=kind, names=moved, before=then, after=now)


def _common_factor(ratios: Mapping[str, float], pairs: Pairs) -> float:
    """What all parts were multiplied by, if nearly all of them were; else 1.

    Told by weight: hundreds of small parts, whose times are mostly noise, say little.
    """
    if len(ratios) < ALIKE:
        return 1.0
    center = _weighted_median(ratios, pairs)
    if abs(center - 1) < UNIFORM:
        return 1.0
    along = [name for name, ratio in ratios.items() if (ratio - 1) / (center - 1) > 0.5]
    weight = sum(pairs[name][0] for name in along) / sum(pairs[name][0] for name in ratios)
    return center if weight >= 0.75 and len(along) >= 0.6 * len(ratios) else 1.0


def _weighted_median(ratios: Mapping[str, float], pairs: Pairs) -> float:
    half = sum(pairs[name][0] for name in ratios) / 2
    weight = 0.0
    for name in sorted(ratios, key=ratios.__getitem__):
        weight += pairs[name][0]
        if weight >= half:
            break
    return ratios[name]


def _limit(ratios: Mapping[str, float], center: float) -> float:
    """How far a part has to move from all others to stand out, by how much they scatter."""
    if len(ratios) < ALIKE:
        return OUTLIER
    moved = sorted(abs(ratio / center - 1) for ratio in ratios.values())
    return max(OUTLIER, QUARTERS * moved[len(moved) // 4])
