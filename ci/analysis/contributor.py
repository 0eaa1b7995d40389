"""What a change is made of, and the two sides that it is between."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from ci.analysis.measures import Quantity, measure, measures_of
from ci.analysis.places import source_name
from ci.analysis.shifts import Kind, Part, Parts
from ci.details import BuildDetails, Unit, UnitKind
from ci.results import Grade, PlatformResult


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
