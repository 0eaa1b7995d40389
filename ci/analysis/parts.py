"""The parts of a run: units, files and tests, and how each changed between two runs. Pure."""

from __future__ import annotations

import math
import posixpath
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from itertools import accumulate
from statistics import median
from typing import Any, NamedTuple, TypeVar

from ci.facts.measures import measures_of
from ci.model.details import BuildDetails, Unit, UnitKind
from ci.model.platforms import PLATFORMS
from ci.model.results import PlatformResult
from ci.util.text import counted, join_names

Item = TypeVar("Item")
Key = TypeVar("Key")


class Part(NamedTuple):
    """One part of a total: its amount, and whether it came from the compiler cache."""

    amount: float
    cached: bool | None = None


Parts = Mapping[str, Part]


def parts_of(amounts: Mapping[str, float]) -> Parts:
    """Make parts of which only the amounts are known."""
    return {name: Part(value) for name, value in amounts.items()}


def group_by(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Group items by key; both keep their order."""
    found: dict[Key, list[Item]] = defaultdict(list)
    for item in items:
        found[key(item)].append(item)
    return found


# The two sides of a comparison


@dataclass(frozen=True, kw_only=True)
class BuildSide:
    """One side of a comparison: a run, or several of the same sources and environment."""

    result: PlatformResult
    builds: tuple[BuildDetails, ...] = ()
    """The build of the result comes first; the medians of several builds are steadier."""
    tests: Mapping[str, float] = field(default_factory=dict)
    """The seconds of tests, by node id."""
    values: Mapping[str, float] = field(default_factory=dict)
    """Levels of series, which are better known than the measures of one run."""
    machines: tuple[Mapping[str, Any], ...] = ()
    """The recorded facts of the machines of several runs."""

    def value(self, measure: str) -> float | None:
        return self.values.get(measure, self.own(measure))

    def own(self, measure: str) -> float | None:
        """The measure of the result itself, to which the first build and the tests belong."""
        return measures_of(self.result).get(measure)

    def work(self, *kinds: UnitKind) -> float:
        """The total seconds of the result's build commands, as if they ran one after another."""
        return sum(unit.seconds for unit in self.details.units if unit.kind in kinds)

    def outputs(self, kind: UnitKind) -> Parts:
        """The cost of build commands of one kind, by their output."""
        units = (unit for build in self.builds for unit in build.units if unit.kind is kind)
        found = group_by(units, lambda unit: unit.output)
        most = len(self.builds) / 2
        return {name: _median_part(units) for name, units in found.items() if len(units) > most}

    @property
    def details(self) -> BuildDetails:
        """The build of the result."""
        return self.builds[0] if self.builds else BuildDetails()


def _median_part(units: list[Unit]) -> Part:
    """The median of the cached units, or of the compiled ones if they are more."""
    [(cached, _)] = Counter(unit.cached for unit in units).most_common(1)
    return Part(median(unit.seconds for unit in units if unit.cached is cached), cached)


# Names of units and files

_OBJECTS = (".o", ".obj", ".lo")


def units_of(before: BuildSide, after: BuildSide, kind: UnitKind) -> tuple[Parts, Parts]:
    """The units of both sides, by source if that is unique, since targets can be renamed."""
    sides = before.outputs(kind), after.outputs(kind)
    names = {output: source_name(output) for side in sides for output in side}
    counts = [Counter(names[output] for output in side) for side in sides]
    twice = {name for count in counts for name, number in count.items() if number > 1}
    names |= {output: output for output, name in names.items() if name in twice}
    first, second = ({names[output]: part for output, part in side.items()} for side in sides)
    return first, second


@cache  # both sides have nearly the same outputs
def source_name(output: str) -> str:
    """The source file of a build's output, as far as the path of the output shows it.

    ``src/CMakeFiles/ops.dir/__/generated/add.cc.o`` becomes ``generated/add.cc``: CMake inserts the
    folder of the target and spells ``..`` with underscores. The folders of Meson end in ``.p``, and
    setuptools puts everything below ``build/temp.<platform>``.
    """
    parts = [".." if part == "__" else part for part in output.split("/")]
    below = next((n + 1 for n, part in enumerate(parts[:-1]) if part.startswith("temp.")), 0)
    kept = [it for it in parts[below:] if it != "CMakeFiles" and not it.endswith((".dir", ".p"))]
    name = posixpath.normpath("/".join(kept))
    for suffix in _OBJECTS:
        name = name.removesuffix(suffix)
    return name


# Names that are listed together

FOLDERS = 3  # more are listed as their common folder, to keep a sentence short
EXAMPLES = 3  # names in parentheses, enough to recognize the group

# Folders that name the backend of a file, at any place in its path.
_BACKENDS = frozenset({"cuda", "torch", "triton", *PLATFORMS})


class Group(NamedTuple):
    """Names that belong together; ``where`` describes it: ``of the triton backend``."""

    names: tuple[str, ...]
    where: str = ""

    def text(self, noun: str) -> str:
        """``4 new units of the triton backend (add.c, mul.c, driver.c and 1 more)``."""
        if len(self.names) == 1:
            return f"1 {noun}, {self.names[0]}"
        short = [posixpath.basename(name) or name for name in self.names]
        names = short if len({*short}) == len(short) else self.names
        parts = [counted(len(self.names), noun), self.where, f"({join_names(names, EXAMPLES)})"]
        return " ".join(part for part in parts if part)


def group_names(names: Iterable[str]) -> Iterator[Group]:
    """Group names by backend, and the others by a few common folders, in their order."""
    paths = {name: tuple(posixpath.dirname(name).split("/")) for name in names}
    backends = group_by(
        paths, lambda name: next((folder for folder in paths[name] if folder in _BACKENDS), None)
    )
    others = {name: paths[name] for name in backends.pop(None, [])}
    for backend, found in backends.items():
        yield Group(tuple(found), f"of the {backend} backend")
    # The deepest level with few enough folders to list each of them.
    depths = range(max(map(len, others.values()), default=0), -1, -1)
    depth = next(n for n in depths if len({path[:n] for path in others.values()}) <= FOLDERS)
    for found in group_by(others, lambda name: others[name][:depth]).values():
        folder = "/".join(posixpath.commonprefix([others[name] for name in found]))
        yield Group(tuple(found), f"in {folder}" if folder else "")


# How parts moved

ALIKE = 5  # parts: among fewer, a single outlier would decide what "all of them" did
UNIFORM = 0.05  # relative; a smaller common factor is reported as spread over all
OUTLIER = 0.2  # relative; a smaller change belongs to the rest, even if the others changed less
# The limit for an outlier if all parts scatter: this many times the first quartile of the changes,
# which is 4 standard deviations of normal noise. Half of the parts may scatter more without moving
# it. Measured with six builds of 16 units on 2 cores that 6 processes used at the same time: half
# of the units moved by more than 20 % against the others.
QUARTERS = 12.6


class CauseKind(StrEnum):
    """The kind of a contributor: first the ways in which parts change, then other causes."""

    ADDED = "added"
    REMOVED = "removed"
    GREW = "grew"
    SHRANK = "shrank"
    CACHE_LOST = "cache lost"
    CACHE_GAINED = "cache gained"
    UNIFORM = "uniform"  # all parts alike: no single one is the cause
    REST = "rest"
    PARALLEL = "parallel"  # the same work with fewer commands at a time
    STAGE = "stage"  # another part of the same total
    UNEXPLAINED = "unexplained"
    CACHE_RATE = "cache rate"
    TRACE = "trace"
    LINES = "lines"
    FLAGS = "flags"
    PACKAGES = "packages"
    ENVIRONMENT = "environment"


def classify_parts(before: Parts, after: Parts, *, noisy: bool = True) -> dict[str, CauseKind]:
    """Classify how each part changed: as an outlier, as all others did, or as the rest.

    Together, the parts make up the whole difference. The amounts of ``noisy`` parts also vary
    without a cause.
    """
    kinds = dict.fromkeys(sorted(after.keys() - before.keys()), CauseKind.ADDED)
    kinds |= dict.fromkeys(sorted(before.keys() - after.keys()), CauseKind.REMOVED)
    common = sorted(before.keys() & after.keys())
    lost = [name for name in common if before[name].cached and after[name].cached is False]
    gained = [name for name in common if after[name].cached and before[name].cached is False]
    kinds |= dict.fromkeys(lost, CauseKind.CACHE_LOST)
    kinds |= dict.fromkeys(gained, CauseKind.CACHE_GAINED)
    pairs = {name: (before[name].amount, after[name].amount) for name in common}
    pairs = {name: pair for name, pair in pairs.items() if name not in kinds}
    resized = (CauseKind.SHRANK, CauseKind.GREW)
    if not noisy:
        differing = {name: now > then for name, (then, now) in pairs.items() if now != then}
        return kinds | {name: resized[is_more] for name, is_more in differing.items()}
    ratios = {name: now / then for name, (then, now) in pairs.items() if then > 0 and now > 0}
    center, limit = _scatter(ratios, {name: pairs[name][0] for name in ratios})
    outliers = {
        name: resized[ratio > center]
        for name, ratio in ratios.items()
        if abs(math.log(ratio / center)) > math.log1p(limit)
    }
    others = [name for name in pairs if name not in outliers]
    together = CauseKind.UNIFORM if center != 1 else CauseKind.REST
    return kinds | outliers | dict.fromkeys(others, together)


def _scatter(ratios: Mapping[str, float], weights: Mapping[str, float]) -> tuple[float, float]:
    """The common factor of all parts, else 1, and the distance from it that makes an outlier.

    The factor is a weighted median: hundreds of small parts are mostly noise and count little.
    """
    if len(ratios) < ALIKE:
        return 1.0, OUTLIER
    order = sorted(ratios, key=ratios.__getitem__)
    total = sum(weights.values())
    heavier = [*accumulate(weights[name] for name in order)]
    center = ratios[order[min(bisect_left(heavier, total / 2), len(order) - 1)]]
    if abs(center - 1) < UNIFORM:
        center = 1.0
    else:
        along = [name for name, ratio in ratios.items() if (ratio - 1) / (center - 1) > 0.5]
        # The factor is common if parts with most of the weight, and most of the parts by number,
        # moved at least half of the way.
        heavy = sum(weights[name] for name in along) >= 0.75 * total
        center = center if heavy and len(along) >= 0.6 * len(ratios) else 1.0
    moved = sorted(abs(ratio / center - 1) for ratio in ratios.values())
    return center, max(OUTLIER, QUARTERS * moved[len(moved) // 4])
