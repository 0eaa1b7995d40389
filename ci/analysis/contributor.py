"""What a change is made of: the parts of a build, and the two sides that they are compared on."""

from __future__ import annotations

import posixpath
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from statistics import median

from ci.analysis.shifts import Kind, Part, Parts
from ci.facts.measures import Quantity, measure, measures_of
from ci.model.details import BuildDetails, Unit, UnitKind
from ci.model.platforms import PLATFORMS
from ci.model.results import Grade, PlatformResult
from ci.util.text import counted, first_names

FOLDERS = 3  # more of them are told as the folder that has them all
BACKENDS = 3

# Folders that say which backend a file belongs to, wherever in its path they stand.
_BACKENDS = frozenset({"cuda", "torch", "triton", *PLATFORMS})
_OBJECTS = (".o", ".obj", ".lo")


@dataclass(frozen=True, kw_only=True)
class Group:
    """Names that belong together; ``where`` says it: ``of the triton backend``."""

    names: tuple[str, ...]
    where: str

    def text(self, noun: str) -> str:
        """``4 new units of the triton backend (add.c, mul.c, driver.c and 1 more)``."""
        if len(self.names) == 1:
            return f"1 {noun}, {self.names[0]}"
        short = [posixpath.basename(name) or name for name in self.names]
        names = short if len({*short}) == len(short) else self.names
        parts = [counted(len(self.names), noun), self.where, f"({first_names(names, BACKENDS)})"]
        return " ".join(part for part in parts if part)


@cache  # both sides have nearly the same ones
def source_name(output: str) -> str:
    """The source file that a build's output was made of, as far as its path says.

    ``src/CMakeFiles/ops.dir/__/generated/add.cc.o`` is ``generated/add.cc``: CMake puts a
    target's folder in between and spells ``..`` with underscores; Meson's folder ends in ``.p``;
    setuptools puts all below ``build/temp.<platform>``.
    """
    parts = [".." if part == "__" else part for part in output.split("/")]
    parts = parts[_after_setuptools(parts) :]
    kept = [part for part in parts if part != "CMakeFiles" and not part.endswith((".dir", ".p"))]
    name = posixpath.normpath("/".join(kept))
    for suffix in _OBJECTS:
        name = name.removesuffix(suffix)
    return name


def _after_setuptools(parts: list[str]) -> int:
    return next((n + 1 for n, part in enumerate(parts[:-1]) if part.startswith("temp.")), 0)


def groups(names: Iterable[str]) -> Iterator[Group]:
    """Put together what is of one backend, else what is in few common folders; in their order."""
    backends: dict[str, list[str]] = defaultdict(list)
    others = []
    for name in names:
        if backend := _backend(name):
            backends[backend].append(name)
        else:
            others.append(name)
    for backend, found in backends.items():
        yield Group(names=tuple(found), where=f"of the {backend} backend")
    for found in _by_folder(others):
        paths = [posixpath.dirname(name).split("/") for name in found]
        folder = "/".join(posixpath.commonprefix(paths))  # of whole names, as these are lists
        yield Group(names=tuple(found), where=f"in {folder}" if folder else "")


def _backend(name: str) -> str | None:
    folders = posixpath.dirname(name).split("/")
    return next((folder for folder in folders if folder in _BACKENDS), None)


def _by_folder(names: list[str]) -> list[list[str]]:
    """The deepest folders that are few enough to be told one by one."""
    paths = {name: tuple(posixpath.dirname(name).split("/")) for name in names}
    for depth in range(max(map(len, paths.values()), default=0), -1, -1):
        found: dict[tuple[str, ...], list[str]] = defaultdict(list)
        for name, path in paths.items():
            found[path[:depth]].append(name)
        if len(found) <= FOLDERS:
            break
    return list(found.values()) if names else []


@dataclass(frozen=True, kw_only=True)
class Contributor:
    """One reason of a change."""

    kind: Kind
    text: str
    """What follows the amount: ``in 4 new units of the triton backend``."""
    share: float | None = None
    """Of the change, in the measure's own unit; ``None``: the data gives it no number."""
    grade: Grade = Grade.FACT
    names: tuple[str, ...] = ()
    """Units, files, tests, flags, parts of the environment."""


@dataclass(frozen=True, kw_only=True)
class BuildSide:
    """One of the two that are compared: a run, or several of the same sources and environment."""

    result: PlatformResult
    builds: tuple[BuildDetails, ...] = ()
    """The first is the result's own; the medians of several runs are steadier."""
    tests: Mapping[str, float] = field(default_factory=dict)
    """The seconds of tests, by node id."""
    values: Mapping[str, float] = field(default_factory=dict)
    """Measures that are known better than by the one run: levels of a series."""

    def value(self, measure: str) -> float | None:
        return self.values.get(measure, self.own(measure))

    def own(self, measure: str) -> float | None:
        """As the one run has it, whose builds and tests are known."""
        return measures_of(self.result).get(measure)

    def work(self, *kinds: UnitKind) -> float:
        """Seconds of all commands of the one run, as if one ran after the other."""
        units = self.builds[0].units if self.builds else ()
        return sum(unit.seconds for unit in units if unit.kind in kinds)

    def outputs(self, kind: UnitKind) -> Parts:
        """What the commands of a kind took, by what they made."""
        found: dict[str, list[Unit]] = defaultdict(list)
        for build in self.builds:
            for unit in build.units:
                if unit.kind is kind:
                    found[unit.output].append(unit)
        most = len(self.builds) / 2
        return {name: _typical(units) for name, units in found.items() if len(units) > most}

    @property
    def generated(self) -> Mapping[str, int]:
        return self.builds[0].generated if self.builds else {}

    @property
    def flags(self) -> frozenset[str]:
        return frozenset(self.builds[0].flags if self.builds else ())


def _typical(units: Sequence[Unit]) -> Part:
    """The median of those that the cache had, or of those that it had not, if these are more."""
    [(cached, _)] = Counter(unit.cached for unit in units).most_common(1)
    seconds = median(unit.seconds for unit in units if unit.cached is cached)
    return Part(amount=seconds, cached=cached)


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Two sides, and what is measured of them."""

    before: BuildSide
    after: BuildSide
    quantity: Quantity

    @property
    def sides(self) -> tuple[BuildSide, BuildSide]:
        return self.before, self.after

    def change(self, stage: str) -> float | None:
        then, now = (side.value(measure(stage, self.quantity)) for side in self.sides)
        return None if then is None or now is None else now - then


def pytest_stages(result: PlatformResult) -> set[str]:
    """The stages that run the tests, whatever they are called."""
    return {
        stage.name for stage in result.stages if stage.seconds and stage.seconds == result.pytest_s
    }


def units_of(before: BuildSide, after: BuildSide, kind: UnitKind) -> tuple[Parts, Parts]:
    """The units of both sides, by their sources where that says enough: targets get renamed."""
    sides = before.outputs(kind), after.outputs(kind)
    counts = [Counter(map(source_name, parts)) for parts in sides]
    twice = {name for count in counts for name, number in count.items() if number > 1}

    def name_of(output: str) -> str:
        name = source_name(output)
        return output if name in twice else name

    first, second = ({name_of(name): part for name, part in parts.items()} for parts in sides)
    return first, second
