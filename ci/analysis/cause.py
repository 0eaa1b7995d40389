"""Why the cost of a run changed: a list of contributors, the largest first. Pure.

Logs show the share of some contributors in the change: new or slower translation units, tests,
stages. The others only changed at the same time, and no log gives them a number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from statistics import median
from typing import Any, NamedTuple

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
from ci.facts.environment_key import ComponentChange, environment_key
from ci.facts.measures import IMAGE, TOTAL, AnyQuantity, Benchmark, Quantity, pytest_stages
from ci.facts.suite import operator_of
from ci.model.details import UnitKind
from ci.model.results import Grade, PlatformResult
from ci.util.text import counted, join_names

MOST = 5  # shares in a text, so that it stays one sentence; the contributors are complete
LISTED = 0.05  # of the change; a smaller share explains too little and is added to the rest
SPREAD = 0.1  # of the change; twice LISTED, as a change spread over many is mostly noise
_LAST = (CauseKind.REST, CauseKind.UNEXPLAINED)  # listed last, even if their shares are large


class Contributor(NamedTuple):
    """One reason for a change."""

    kind: CauseKind
    text: str
    """The text after the amount: ``in 4 new units of the triton backend``."""
    share: float | None = None
    """Its part of the change, in the unit of the measure; ``None`` if no log shows it."""
    names: tuple[str, ...] = ()
    """The names of its units, files, tests, flags or parts of the environment."""

    @property
    def amount(self) -> float:
        return self.share or 0.0

    @property
    def grade(self) -> Grade:
        """A fact if logs show it; only likely if it changed at the same time."""
        if self.kind is CauseKind.UNEXPLAINED:
            return Grade.UNKNOWN
        is_fact = self.share is not None or self.kind in (CauseKind.CACHE_RATE, CauseKind.TRACE)
        return Grade.FACT if is_fact else Grade.LIKELY


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """A change of one measure and its contributors, the largest first."""

    measure: str
    before: float | None
    after: float | None
    contributors: tuple[Contributor, ...] = ()

    @property
    def change(self) -> float:
        return 0.0 if self.before is None or self.after is None else self.after - self.before

    @property
    def headline(self) -> str:
        """``compile +38 s (+21 %)``."""
        if self.before is None or self.after is None:
            return f"{self.measure} was not measured on both sides"
        return measures.headline(self.measure, self.before, self.after)

    @property
    def causes(self) -> str:
        """The text after the headline; empty if no cause is known."""
        contexts = [each for each in self.contributors if each.share is None]
        facts = [each.text for each in contexts if each.grade is Grade.FACT]
        likely = "; ".join(each.text for each in contexts if each.grade is Grade.LIKELY)
        parts = [", ".join(self._shares()), *facts, likely and f"at the same time: {likely}"]
        return "; ".join(filter(None, parts))

    @property
    def text(self) -> str:
        between = ", " if self._listed() else "; "
        return between.join(filter(None, [self.headline, self.causes]))

    def _listed(self) -> list[Contributor]:
        """The contributors whose shares are large enough to be listed."""
        return [
            each
            for each in self.contributors
            if abs(each.amount) > abs(self.change) * (SPREAD if each.kind in _LAST else LISTED)
        ]

    def _shares(self) -> Iterator[str]:
        """``31 s of it in 4 new units``; with signs if the shares have different ones."""
        _, quantity = measures.stage_and_quantity(self.measure)
        listed = self._listed()
        one_way = all(each.amount * self.change > 0 for each in listed)
        # No amount where the text already counts units, or where the whole change is unexplained.
        in_words = quantity is Quantity.UNITS
        in_words |= [each.kind for each in listed] == [CauseKind.UNEXPLAINED]
        # Unlisted noise of the other sign must not make the listed shares exceed the change.
        total = sum(abs(each.amount) for each in listed)
        scale = min(1.0, abs(self.change) / total) if one_way and total else 1.0
        for index, each in enumerate(listed[:MOST]):
            size = abs(each.amount) * scale if one_way else each.amount
            amount = measures.amount(size, quantity, "" if one_way else "+")
            of_it = " of it" if one_way and not index else ""
            yield each.text.removeprefix("in ") if in_words else f"{amount}{of_it} {each.text}"
        if len(listed) > MOST:
            yield f"and {len(listed) - MOST} more"


def explain(name: str, before: BuildSide, after: BuildSide) -> Explanation:
    """Explain why the measure ``name``, such as ``compile.wall_s``, changed."""
    then, now = before.value(name), after.value(name)
    if then is None or now is None or then == now:
        return Explanation(measure=name, before=then, after=now)
    stage, quantity = measures.stage_and_quantity(name)
    pair = _MeasurePair(sides=(before, after), stage=stage, quantity=quantity)
    found = [*pair.shares(), *_circumstances(pair)]
    if all(each.grade is not Grade.LIKELY for each in found):
        suffix = {CauseKind.UNIFORM: ": because of the machine, or of something they all share"}
        found = [each._replace(text=each.text + suffix.get(each.kind, "")) for each in found]
    return Explanation(measure=name, before=then, after=now, contributors=tuple(found))


# Contributors whose shares the logs show

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
class _MeasurePair:
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


def _stage_row(text: str, stage: _MeasurePair) -> Contributor:
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

    pair: _MeasurePair
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
    return sorted(rows, key=lambda each: (each.kind in _LAST, -abs(each.amount)))


# Contributors without a share: they changed at the same time

NAMES = 3  # names of each kind in a text, so that it stays one sentence
RATE = 0.05  # of all compilations; same as LISTED
LINES = 0.01  # relative; same as POLICY.exact_minimum, from which the history reports changes
LONGEST = 80  # characters of a trace's name, one terminal line: template names fill screens
TRACED = 0.05  # of the total growth of all units; same as LISTED

# In addition to those of the environment key: build tools, and packages whose speed matters.
_PACKAGES = ("numpy", "Cython", "scikit-build-core", "setuptools", "meson-python")
# The cache's hit rate reports the first, a comparison of two platforms the second.
_REPORTED_ELSEWHERE = ("cache", "platform")


def _circumstances(pair: _MeasurePair) -> Iterator[Contributor]:
    """Yield changes that may have affected a measure of the stage."""
    stage, quantity, is_of_tests = pair.stage, pair.quantity, pair.is_of_tests
    before, after = pair.sides
    is_built = stage not in (IMAGE, "generate", CONFIGURE)  # uses the compiler's flags
    if quantity.is_time and is_built and stage != LINK and not is_of_tests:
        yield from _cache_rate(before, after)
        yield from _traces(before, after)
    if quantity is Quantity.WHEEL:
        yield from _units(before, after)
    is_benchmark = isinstance(quantity, Benchmark)
    if quantity is not Quantity.LINES and stage != IMAGE and not (is_of_tests or is_benchmark):
        yield from _lines(before.details.generated, after.details.generated)
    if quantity not in (Quantity.LINES, Quantity.UNITS) and is_built:
        yield from _flags({*before.details.flags}, {*after.details.flags})
    if stage != IMAGE:
        yield from _packages(before.result, after.result)
    for change in environment_key(after.result).changes(environment_key(before.result)):
        name = change.component
        if name not in _REPORTED_ELSEWHERE:
            yield Contributor(CauseKind.ENVIRONMENT, str(change), names=(name,))
    for change in host_changes(before.machines, after.machines):
        yield Contributor(CauseKind.ENVIRONMENT, str(change), names=(change.component,))


_HOST = {"hostname": "host", "kernel": "kernel", "os": "operating system"}


def host_changes(
    before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]
) -> Iterator[ComponentChange]:
    """Yield what differs between the machines of all runs before and all runs after a change.

    These facts are in no environment key: the runs of several equal machines are compared. A host
    name that differs in nearly every run is one of a container, and is no machine's.
    """
    for fact, name in _HOST.items():
        sides = [[str(it[fact]) for it in some if it.get(fact)] for some in (before, after)]
        then, now = (dict.fromkeys(side) for side in sides)
        is_lasting = all(2 * len({*side}) <= len(side) for side in sides)
        if then and now and then.keys().isdisjoint(now) and (is_lasting or fact != "hostname"):
            yield ComponentChange(name, join_names([*then]), join_names([*now]))


def _cache_rate(before: BuildSide, after: BuildSide) -> Iterator[Contributor]:
    then, now = _hit_rate(before), _hit_rate(after)
    if then is not None and now is not None and abs(now - then) >= RATE:
        verb = "fell" if now < then else "rose"
        text = f"cache hits {verb} from {measures.percent(then)} to {measures.percent(now)}"
        yield Contributor(CauseKind.CACHE_RATE, text)


def _hit_rate(side: BuildSide) -> float | None:
    rate = side.result.facts("compiler_cache").get("hit_rate")
    if isinstance(rate, int | float):
        return float(rate)
    parts = side.outputs(UnitKind.COMPILE).values()
    known = [part.cached for part in parts if part.cached is not None]
    return sum(known) / len(known) if known else None


def _traces(before: BuildSide, after: BuildSide) -> Iterator[Contributor]:
    """Yield growth in compiler traces, without a share: the units' seconds already include it."""
    then, now = _traced(before), _traced(after)
    if not then or not now:  # with traces of one side only, everything would look like growth
        return
    # Only the most expensive traces are kept: a missing one took less than all that are listed.
    least_then, least_now = min(then.values()), min(now.values())
    growth = {name: now.get(name, least_now) - then.get(name, least_then) for name in {*then, *now}}
    work = after.work(UnitKind.COMPILE) - before.work(UnitKind.COMPILE)
    least = max(TRACED * abs(work), LEAST_S)
    grown = (name for name in growth if growth[name] > least)
    names = sorted(grown, key=lambda name: (-growth[name], name))
    if names:
        shown = [
            f"{name[:LONGEST]}{'...' if name[LONGEST:] else ''} (+{growth[name]:.1f} s)"
            for name in names
        ]
        text = f"the compiler's time traces grew in {join_names(shown, NAMES)}"
        yield Contributor(CauseKind.TRACE, text, names=tuple(names))


def _traced(side: BuildSide) -> Mapping[str, float]:
    traces = [trace for build in side.builds for trace in build.traced.items()]
    found = group_by(traces, itemgetter(0))
    return {name: median(seconds for _, seconds in traces) for name, traces in found.items()}


def _units(before: BuildSide, after: BuildSide) -> Iterator[Contributor]:
    """Yield new and removed units of a size, without shares: how much each adds is unknown."""
    then, now = units_of(before, after, UnitKind.COMPILE)
    if then and now:
        for group in group_names(sorted(now.keys() - then.keys())):
            yield Contributor(CauseKind.ADDED, group.text("new unit"), names=group.names)
        for group in group_names(sorted(then.keys() - now.keys())):
            yield Contributor(CauseKind.REMOVED, group.text("removed unit"), names=group.names)


def _lines(before: Mapping[str, int], after: Mapping[str, int]) -> Iterator[Contributor]:
    then, now = sum(before.values()), sum(after.values())
    if not then or not now or abs(now / then - 1) < LINES:
        return
    growth = {name: after.get(name, 0) - before.get(name, 0) for name in {**before, **after}}
    names = sorted((name for name in growth if growth[name]), key=lambda n: (-abs(growth[n]), n))
    changes = [(sum(growth[name] for name in group.names), group) for group in group_names(names)]
    change, largest = max(changes, key=lambda pair: abs(pair[0]))
    text = f"{now - then:+,.0f} generated lines, {change:+,.0f} in {largest.text('file')}"
    yield Contributor(CauseKind.LINES, text, names=largest.names)


def _flags(before: set[str], after: set[str]) -> Iterator[Contributor]:
    if not before or not after:
        return
    changes = {"added": sorted(after - before), "removed": sorted(before - after)}
    parts = [f"{verb} {join_names(flags)}" for verb, flags in changes.items() if flags]
    if parts:
        names = (*changes["added"], *changes["removed"])
        text = f"compiler flags changed: {', '.join(parts)}"
        yield Contributor(CauseKind.FLAGS, text, names=names)


def _packages(before: PlatformResult, after: PlatformResult) -> Iterator[Contributor]:
    then, now = before.facts("packages"), after.facts("packages")
    changed = [name for name in _PACKAGES if then.get(name) != now.get(name)]
    if then and now and changed:
        shown = [f"{name} {then.get(name, 'none')} -> {now.get(name, 'none')}" for name in changed]
        text = f"packages changed: {join_names(shown)}"
        yield Contributor(CauseKind.PACKAGES, text, names=tuple(changed))
