"""The contributors whose shares of a change the logs show. Pure.

They are new or slower translation units, tests and stages, and the number of parallel commands.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ci.analysis.explanation import LAST, LISTED, Contributor
from ci.analysis.parts import (
    BuildSide,
    CauseKind,
    Group,
    Part,
    Parts,
    classify_parts,
    group_by,
    group_names,
    parts_of,
    units_of,
)
from ci.facts import measures
from ci.facts.measures import TOTAL, AnyQuantity, Quantity, pytest_stages
from ci.facts.suite import operator_of
from ci.model.details import UnitKind
from ci.model.results import PlatformResult
from ci.util.text import counted

COMPILE, LINK, CONFIGURE = "compile", "link", "configure"
FOLDED = 0.02  # of the change; a unit that grew by less is not named, but counted in the rest
LEAST_S = 0.1  # seconds are printed with one digit: less would read as 0.0 or 0.1 s
ALONE = 0.25  # of the change; a unit that grew by more is listed alone: at most 3 can
PARALLEL = 0.02  # relative; the number of parallel commands always varies by about this much

_NO_UNITS = "Ninja log (set `ninja_log: build/.ninja_log` in `artifacts` of ci.yaml)"
_NO_LINES = (
    "copy of the generated files (set `generated: <their folder>` in `artifacts` of ci.yaml)"
)
_NOUNS = {UnitKind.COMPILE: "unit", UnitKind.LINK: "link step", UnitKind.OTHER: "build step"}
_STAGES = {UnitKind.COMPILE: COMPILE, UnitKind.LINK: LINK}
_KINDS = {stage: [kind] for kind, stage in _STAGES.items()}


@dataclass(frozen=True, kw_only=True)
class MeasurePair:
    """One measure on both sides."""

    sides: tuple[BuildSide, BuildSide]
    stage: str
    quantity: AnyQuantity

    @property
    def name(self) -> str:
        return measures.measure_key(self.stage, self.quantity)

    @property
    def change(self) -> float:
        then, now = (side.value(self.name) or 0.0 for side in self.sides)
        return now - then

    @property
    def is_of_tests(self) -> bool:
        return self.stage in pytest_stages(self.sides[1].result)

    @property
    def building(self) -> str | None:
        """The stage that compiles: the longest one without tests."""
        result = self.sides[1].result
        seconds, testing = _stages(result), pytest_stages(result)
        others = [stage for stage in seconds if stage not in testing]
        return max(others, key=seconds.__getitem__, default=None)

    def shares(self) -> list[Contributor]:
        """The contributors with a share of the change; none if no log shows any."""
        if not self.change:
            return []
        is_lines = self.quantity is Quantity.LINES
        has = [
            bool(side.details.generated) if is_lines else any(it.units for it in side.builds)
            for side in self.sides
        ]
        missing = _missing(has, _NO_LINES if is_lines else _NO_UNITS)
        found: Iterable[Contributor] = ()
        if self.quantity in (Quantity.LINES, Quantity.UNITS):
            found = self._count_rows() if all(has) else ()
        elif not self.quantity.is_time:
            return []
        elif self.stage == TOTAL:
            found, missing = self._stage_rows(), ""
        elif self.stage in (COMPILE, LINK, self.building):
            found = self._build_rows(has_units=all(has))
        elif self.is_of_tests and all(side.tests for side in self.sides):
            found, missing = self._test_rows(), ""
        else:
            return []
        return _balance(found, self.change, missing)

    def _count_rows(self) -> Iterator[Contributor]:
        if self.quantity is Quantity.LINES:
            noun, sides = "file", [side.details.generated for side in self.sides]
        else:
            units = units_of(*self.sides, UnitKind.COMPILE)
            noun, sides = "unit", [dict.fromkeys(side, 1) for side in units]
        return _PartSubject(pair=self, noun=noun).rows(*map(parts_of, sides))

    def _stage_rows(self) -> Iterator[Contributor]:
        before, after = (_stages(side.result) for side in self.sides)
        building = self.building
        for stage in (name for name in before if name in after):
            part = replace(self, stage=stage)
            if stage == building:
                yield from part.shares()
            else:
                yield _stage_row(f"in the {stage} stage", part)
        removed = [name for name in before if name not in after]
        new = [name for name in after if name not in before]
        rows = [_stage_row(f"in the removed {it} stage", replace(self, stage=it)) for it in removed]
        rows += [_stage_row(f"in the new {it} stage", replace(self, stage=it)) for it in new]
        # Probably another name: the difference of the two matters, rather than each of them.
        places = [[*before].index(name) for name in removed], [[*after].index(name) for name in new]
        if len(rows) == 2 and places[0] == places[1]:
            text = f"in the {new[0]} stage, which has the place of {removed[0]}"
            share = sum(row.amount for row in rows)
            rows = [Contributor(CauseKind.STAGE, text, share, (new[0], removed[0]))]
        yield from rows

    def _build_rows(self, *, has_units: bool) -> Iterator[Contributor]:
        for kind in _KINDS.get(self.stage, UnitKind) if has_units else ():
            yield from self._unit_rows(kind)
        configure = replace(self, stage=CONFIGURE)
        known = all(side.value(configure.name) is not None for side in self.sides)
        if self.stage not in _KINDS and self.quantity is Quantity.WALL and known:
            yield _stage_row("in CMake's configuration", configure)

    def _unit_rows(self, kind: UnitKind) -> Iterator[Contributor]:
        units = units_of(*self.sides, kind)
        paces = [self._pace(side, kind) for side in self.sides]
        subject = _PartSubject(pair=self, noun=_NOUNS[kind], scale=sum(paces) / 2, alone=ALONE)
        yield from subject.rows(*units)
        if self.quantity is not Quantity.WALL:
            return
        work = sum(part.amount for side in units for part in side.values()) / 2
        share = work * (paces[1] - paces[0])
        if share * self.change > 0 and abs(paces[1] / paces[0] - 1) > PARALLEL:
            then, now = (1 / pace for pace in paces)
            text = f"because {'fewer' if now < then else 'more'} ran at a time"
            text += f" ({then:.2f} -> {now:.2f})"
            yield Contributor(CauseKind.PARALLEL, text, share)

    def _pace(self, side: BuildSide, kind: UnitKind) -> float:
        """The seconds of the measure per second in the Ninja log.

        Wall time is less, since commands run in parallel. CPU time is less where commands wait
        for a core.
        """
        if self.quantity is not Quantity.WALL:
            return min(1.0, _ratio(side.own(self.name), side.work(*UnitKind)))
        if kind not in _STAGES:
            return 1.0
        own = side.own(measures.measure_key(_STAGES[kind], Quantity.WALL))
        return _ratio(own, side.work(kind))

    def _test_rows(self) -> Iterator[Contributor]:
        """Yield new and removed tests, then the common tests grouped by operator or file."""
        before, after = (side.tests for side in self.sides)
        # At most 1: the time that pytest takes outside the tests is not theirs.
        paces = [
            min(1.0, _ratio(side.own(self.name), sum(side.tests.values()))) for side in self.sides
        ]
        subject = _PartSubject(pair=self, noun="test", scale=sum(paces) / 2, grouped=_by_target)
        gone = {name: seconds for name, seconds in before.items() if name not in after}
        new = {name: seconds for name, seconds in after.items() if name not in before}
        yield from subject.rows(parts_of(gone), parts_of(new))
        common = [*_by_target(name for name in before if name in after)]
        sides = (
            {f"tests {it.where}": sum(side[name] for name in it.names) for it in common}
            for side in (before, after)
        )
        subject = replace(subject, noun="test group", grouped=group_names)
        yield from subject.rows(*map(parts_of, sides))


def _by_target(tests: Iterable[str]) -> Iterator[Group]:
    """Group tests by operator; tests without one by file."""
    found = group_by(tests, lambda name: operator_of(name) or name.partition("::")[0])
    return (Group(tuple(names), f"of {target}") for target, names in found.items())


def _stage_row(text: str, stage: MeasurePair) -> Contributor:
    return Contributor(CauseKind.STAGE, text, stage.change, (stage.stage,))


def _ratio(known: float | None, work: float) -> float:
    return known / work if known and work else 1.0


def _stages(result: PlatformResult) -> dict[str, float]:
    return {
        stage.name: stage.seconds
        for stage in result.stages
        if stage.in_total and stage.seconds is not None
    }


def _missing(has: Sequence[bool], remedy: str) -> str:
    """Why a share is unexplained: the run without the data, and how to record the data."""
    if not any(has):
        return f": neither run has a {remedy}"
    return "" if all(has) else f": the run {'after' if has[0] else 'before'} has no {remedy}"


# From parts to rows

GROUPS = 4  # of one kind; with the group "elsewhere" they are MOST
TIMES = 2  # from this ratio on, "2.1 times as long" is easier to read than "110 % longer"
SIDE_BY_SIDE = 0.9  # wall seconds per second of work; above it, "1.1 at a time" explains nothing

_RESIZED = frozenset({CauseKind.GREW, CauseKind.SHRANK})
_GROUPED = _RESIZED | {CauseKind.ADDED, CauseKind.REMOVED}


@dataclass(frozen=True, kw_only=True)
class _PartSubject:
    """The noun for parts, their grouping, and the worth of one of their seconds."""

    pair: MeasurePair
    noun: str
    grouped: Callable[[Iterable[str]], Iterator[Group]] = group_names
    scale: float = 1.0
    alone: float = math.inf
    """Share of the change; a part that grew or shrank by more is listed alone."""

    def rows(self, before: Parts, after: Parts) -> Iterator[Contributor]:
        """Yield a contributor for each group of parts that moved alike."""
        nothing = Part(0.0)
        sizes = {
            name: (before.get(name, nothing).amount, after.get(name, nothing).amount)
            for name in {**before, **after}
        }
        growth = {name: now - then for name, (then, now) in sizes.items()}
        is_time, change = self.pair.quantity.is_time, abs(self.pair.change) / self.scale
        least = max(FOLDED * change, LEAST_S / self.scale) if is_time else 0.0
        moved = classify_parts(before, after, noisy=is_time)
        small = [name for name in moved if moved[name] in _RESIZED and abs(growth[name]) < least]
        moved |= dict.fromkeys(small, CauseKind.REST)
        kinds = group_by(moved, moved.__getitem__)
        all_alike = kinds.keys() <= {CauseKind.ADDED, CauseKind.REMOVED, CauseKind.UNIFORM}
        for kind, names in kinds.items():
            found = [Group(tuple(names))]
            if kind in _GROUPED:
                alone = self.alone * change if kind in _RESIZED else math.inf
                found = self._groups({name: growth[name] for name in names}, alone)
            for group in found:
                then, now = (sum(sizes[name][side] for name in group.names) for side in (0, 1))
                text = self._text(kind, group, then, now, all_alike=all_alike)
                share = (now - then) * self.scale
                yield Contributor(kind, text, share, group.names)

    def _groups(self, growth: Mapping[str, float], alone: float) -> list[Group]:
        """Form a few groups, largest first; a part that moved by more than ``alone`` is alone."""
        names = sorted(growth, key=lambda name: (-abs(growth[name]), name))
        large = [Group((name,)) for name in names if abs(growth[name]) > alone]
        found = [*self.grouped(name for name in names if abs(growth[name]) <= alone)]
        found.sort(key=lambda group: -abs(sum(growth[name] for name in group.names)))
        if len(found) > GROUPS + 1:
            others = [name for group in found[GROUPS:] for name in group.names]
            found[GROUPS:] = [Group(tuple(others), "elsewhere")]
        return large + found

    def _text(
        self, kind: CauseKind, group: Group, then: float, now: float, *, all_alike: bool
    ) -> str:
        parts = counted(len(group.names), self.noun)
        match kind:
            case CauseKind.ADDED:
                return f"in {group.text(f'new {self.noun}')}"
            case CauseKind.REMOVED:
                return f"in {group.text(f'removed {self.noun}')}"
            case CauseKind.CACHE_LOST:
                return f"in {parts} that came from the compiler cache before"
            case CauseKind.CACHE_GAINED:
                return f"in {parts} that now come from the compiler cache"
            case CauseKind.REST:
                return f"spread over {parts}"
            case CauseKind.UNIFORM:
                size = f"{now / then:.1f} times as long"
                if now / then < TIMES:
                    word = "longer" if now > then else "shorter"
                    size = f"{measures.percent(abs(now / then - 1))} {word}"
                return f"in {'all ' if all_alike else ''}{parts} alike, each about {size}"
        if len(group.names) > 1:
            return f"in {group.text(self.noun)} that {'grew' if now > then else 'shrank'}"
        # Explains why the share is smaller than the difference of the two sizes.
        pace = f", {1 / self.scale:.1f} at a time" if self.scale < SIDE_BY_SIDE else ""
        sizes = " -> ".join(measures.amount(size, self.pair.quantity) for size in (then, now))
        return f"in {group.names[0]} ({sizes}{pace})"


def _balance(found: Iterable[Contributor], change: float, missing: str) -> list[Contributor]:
    """Make the contributors add up to the change, the largest first; small ones become the rest."""
    rows = [*found]
    explained = sum(each.amount for each in rows)
    # If the parts changed by more than the whole, scale them down to the whole.
    scale = min(1.0, change / explained) if explained * change > 0 else 1.0
    rows = [each._replace(share=each.amount * scale) for each in rows]
    least = {CauseKind.REST: math.inf} | dict.fromkeys(_GROUPED, LISTED * abs(change))
    small = [each for each in rows if abs(each.amount) < least.get(each.kind, 0.0)]
    rows = [each for each in rows if each.amount and each not in small]
    if len(small) > 1:
        names = tuple(name for each in small for name in each.names)
        share = sum(each.amount for each in small)
        text = f"spread over {len(names):,} others"
        small = [Contributor(CauseKind.REST, text, share, names)]
    rows += small
    left = change - sum(each.amount for each in rows)
    if abs(left) > 1e-6 * abs(change):  # more than rounding
        text = f"unexplained{missing}"
        rows.append(Contributor(CauseKind.UNEXPLAINED, text, left))
    return sorted(rows, key=lambda each: (each.kind in LAST, -abs(each.amount)))
