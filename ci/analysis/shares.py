"""The shares that parts of a run have in the change of one of its measures. Pure."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ci.analysis.contributor import (
    BuildSide,
    Contributor,
    Group,
    Pair,
    groups,
    pytest_stages,
    units_of,
)
from ci.analysis.shifts import Kind, Part, Parts, Shift, shifts
from ci.facts.measures import TOTAL, Quantity, amount, measure, percent
from ci.facts.suite import operator_of
from ci.model.details import UnitKind
from ci.model.results import Grade, PlatformResult
from ci.util.text import counted

LISTED = 0.05  # of the change; what is less is part of the rest
FOLDED = 0.02  # of the change; a unit that grew by less is not named
ALONE = 0.25  # of the change
GROUPS = 4
LEAST_S = 0.1  # what a unit must have grown by to be named
PARALLEL = 0.02  # relative; how many run at a time is never quite the same
TIMES = 2  # from which on a ratio is no percentage
SIDE_BY_SIDE = 0.9  # wall seconds for each of the work, where more than one runs at a time
COMPILE, LINK, CONFIGURE = "compile", "link", "configure"

_NO_UNITS = "log of Ninja's (artifacts of ci.yaml: `ninja_log: build/.ninja_log`)"
_NO_LINES = "copy of the generated files (artifacts of ci.yaml: `generated: <their folder>`)"

_NOUNS = {UnitKind.COMPILE: "unit", UnitKind.LINK: "link step", UnitKind.OTHER: "build step"}
_STAGES = {UnitKind.COMPILE: COMPILE, UnitKind.LINK: LINK}
_RESIZED = frozenset({Kind.GREW, Kind.SHRANK})
_ALONE = _RESIZED | {Kind.ADDED, Kind.REMOVED}
_FOLDABLE = _ALONE | {Kind.REST}


@dataclass(frozen=True, kw_only=True)
class _Subject:
    """What is told of: what it is called, how it is grouped, what one of its seconds is worth."""

    noun: str
    quantity: Quantity
    grouped: Callable[[Iterable[str]], Iterator[Group]] = groups
    scale: float = 1.0
    least: float = 0.0
    """What a part must have changed by to be named."""
    alone: float = math.inf
    """What it must have changed by to be told apart from all that are like it."""


def shares(pair: Pair, stage: str, change: float) -> list[Contributor]:
    """What the change of a stage is made of; nothing where no log can say it."""
    if not change:
        return []
    if pair.quantity is Quantity.UNITS:
        return _settled(_unit_counts(pair), change, _missing(pair, _has_units, _NO_UNITS))
    if pair.quantity is Quantity.LINES:
        return _settled(_line_counts(pair), change, _missing(pair, _has_lines, _NO_LINES))
    if not pair.quantity.is_time:
        return []
    if stage == TOTAL:
        return _settled(_of_total(pair), change)
    if stage in (COMPILE, LINK) or stage == _building_stage(pair):
        found = _of_build(pair, stage, change)
        return _settled(found, change, _missing(pair, _has_units, _NO_UNITS))
    is_pytest = stage in pytest_stages(pair.after.result)
    if is_pytest and pair.before.tests and pair.after.tests:
        return _settled(_of_tests(pair, stage, change), change)
    return []


# What measures are made of


def _unit_counts(pair: Pair) -> Iterator[Contributor]:
    sides = units_of(pair.before, pair.after, UnitKind.COMPILE)
    if all(map(_has_units, pair.sides)):
        parts = [{name: Part(amount=1.0) for name in side} for side in sides]
        yield from _told(shifts(*parts), _Subject(noun="unit", quantity=pair.quantity))


def _line_counts(pair: Pair) -> Iterator[Contributor]:
    sides = [side.generated for side in pair.sides]
    if all(sides):
        parts = [{name: Part(amount=lines) for name, lines in side.items()} for side in sides]
        found = shifts(*parts, noisy=False)
        yield from _told(found, _Subject(noun="file", quantity=pair.quantity))


def _of_total(pair: Pair) -> Iterator[Contributor]:
    building = _building_stage(pair)
    for stage in {**_stages(pair.before.result), **_stages(pair.after.result)}:
        then, now = (side.value(measure(stage, pair.quantity)) or 0.0 for side in pair.sides)
        if stage == building:
            yield from shares(pair, stage, now - then)
        else:
            yield _stage(f"in the {stage} stage", now - then, stage)


def _of_build(pair: Pair, stage: str, change: float) -> Iterator[Contributor]:
    only = {COMPILE: [UnitKind.COMPILE], LINK: [UnitKind.LINK]}
    for kind in only.get(stage, UnitKind):
        yield from _of_units(pair, stage, kind, change)
    if stage not in only and pair.quantity is Quantity.WALL:
        yield _stage("in CMake's configuration", pair.change(CONFIGURE) or 0.0, CONFIGURE)


def _stage(text: str, share: float, name: str) -> Contributor:
    return Contributor(kind=Kind.STAGE, text=text, share=share, names=(name,))


def _of_units(pair: Pair, stage: str, kind: UnitKind, change: float) -> Iterator[Contributor]:
    parts = units_of(pair.before, pair.after, kind)
    if not all(map(_has_units, pair.sides)):
        return
    paces = [_unit_pace(side, stage, kind, pair.quantity) for side in pair.sides]
    scale = sum(paces) / 2
    least = max(FOLDED * abs(change), LEAST_S) / scale
    alone = ALONE * abs(change) / scale
    noun = _NOUNS[kind]
    subject = _Subject(noun=noun, quantity=pair.quantity, scale=scale, least=least, alone=alone)
    yield from _told(shifts(*parts), subject)
    if pair.quantity is Quantity.WALL:
        yield from _at_a_time(sum(map(_work, parts)) / 2, paces, change)


def _unit_pace(side: BuildSide, stage: str, kind: UnitKind, quantity: Quantity) -> float:
    """What a second of Ninja's is worth: of the wall time less, by what runs at a time; of the CPU
    time less where commands wait for a core."""
    if quantity is Quantity.WALL:
        known = side.own(measure(_STAGES[kind], quantity)) if kind in _STAGES else None
        return _ratio(known, side.work(kind))
    return min(1.0, _ratio(side.own(measure(stage, quantity)), side.work(*UnitKind)))


def _ratio(known: float | None, work: float) -> float:
    return known / work if known and work else 1.0


def _at_a_time(work: float, paces: list[float], change: float) -> Iterator[Contributor]:
    share = work * (paces[1] - paces[0])
    if share * change > 0 and abs(paces[1] / paces[0] - 1) > PARALLEL:
        then, now = (1 / pace for pace in paces)
        text = f"because {'fewer' if now < then else 'more'} ran at a time"
        text += f" ({then:.2f} -> {now:.2f})"
        yield Contributor(kind=Kind.PARALLEL, text=text, share=share)


def _of_tests(pair: Pair, stage: str, change: float) -> Iterator[Contributor]:
    """By tests that are new or gone, and of those on both sides by their operators or files."""
    before, after = (side.tests for side in pair.sides)
    scale = sum(_test_pace(side, stage, pair.quantity) for side in pair.sides) / 2
    least = max(FOLDED * abs(change), LEAST_S) / scale
    subject = _Subject(noun="test", quantity=pair.quantity, scale=scale, least=least)
    targets = {name: operator_of(name) or name.partition("::")[0] for name in {**before, **after}}

    def by_target(names: Iterable[str]) -> Iterator[Group]:
        for target, members in _by(targets, names).items():
            yield Group(names=tuple(members), where=f"of {target}")

    one_sided = [
        {name: Part(amount=seconds) for name, seconds in side.items() if name not in other}
        for side, other in ((before, after), (after, before))
    ]
    yield from _told(shifts(*one_sided), replace(subject, grouped=by_target))
    common = _by(targets, (name for name in before if name in after))
    together = [
        {
            f"tests of {target}": Part(amount=sum(side[name] for name in names))
            for target, names in common.items()
        }
        for side in (before, after)
    ]
    yield from _told(shifts(*together), replace(subject, noun="test group"))


def _by(targets: Mapping[str, str], names: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for name in names:
        found[targets[name]].append(name)
    return found


def _test_pace(side: BuildSide, stage: str, quantity: Quantity) -> float:
    """At most 1: what pytest takes beside the tests is not theirs."""
    work = sum(side.tests.values())
    return min(1.0, _ratio(side.own(measure(stage, quantity)), work))


# The stages of a run


def _building_stage(pair: Pair) -> str | None:
    """The stage that compiles: the longest that is no test."""
    result = pair.after.result
    stages = _stages(result)
    return max(stages.keys() - pytest_stages(result), key=stages.__getitem__, default=None)


def _stages(result: PlatformResult) -> dict[str, float]:
    return {
        stage.name: stage.seconds
        for stage in result.stages
        if stage.in_total and stage.seconds is not None
    }


# From shifts to contributors


def _work(parts: Parts) -> float:
    return sum(part.amount for part in parts.values())


def _told(found: Iterable[Shift], subject: _Subject) -> Iterator[Contributor]:
    """One contributor for each group of what is alike."""
    kinds: dict[Kind, list[Shift]] = defaultdict(list)
    for shift in found:
        small = shift.kind in _RESIZED and abs(shift.amount) < subject.least
        kinds[Kind.REST if small else shift.kind].append(shift)
    for kind, members in kinds.items():
        if kind in _ALONE:
            by_name = {shift.names[0]: shift for shift in sorted(members, key=_by_size)}
            for group in _grouped(by_name, subject):
                shift = _merged(kind, [by_name[name] for name in group.names])
                yield _contributor(shift, _text(shift, group, subject), subject)
        else:
            shift = _merged(kind, members)
            everything = kinds.keys() <= {Kind.ADDED, Kind.REMOVED, Kind.UNIFORM}
            yield _contributor(shift, _text_of_all(shift, subject, everything), subject)


def _by_size(shift: Shift) -> tuple[float, str]:
    return -abs(shift.amount), shift.names[0]


def _grouped(shifted: Mapping[str, Shift], subject: _Subject) -> Iterator[Group]:
    """Groups, the largest first, and few of them; what is large in itself is one."""
    large = [
        name
        for name, shift in shifted.items()
        if shift.kind in _RESIZED and abs(shift.amount) > subject.alone
    ]
    yield from (Group(names=(name,), where="") for name in large)
    found = [*subject.grouped(name for name in shifted if name not in large)]
    found.sort(key=lambda group: -abs(sum(shifted[name].amount for name in group.names)))
    few = found if len(found) <= GROUPS + 1 else found[:GROUPS]
    yield from few
    if others := [name for group in found[len(few) :] for name in group.names]:
        yield Group(names=tuple(others), where="elsewhere")


def _merged(kind: Kind, members: Sequence[Shift]) -> Shift:
    return Shift(
        kind=kind,
        names=tuple(name for shift in members for name in shift.names),
        before=sum(shift.before for shift in members),
        after=sum(shift.after for shift in members),
    )


def _contributor(shift: Shift, text: str, subject: _Subject) -> Contributor:
    share = shift.amount * subject.scale
    return Contributor(kind=shift.kind, text=text, share=share, names=shift.names)


def _text(shift: Shift, group: Group, subject: _Subject) -> str:
    if shift.kind is Kind.ADDED:
        return f"in {group.text(f'new {subject.noun}')}"
    if shift.kind is Kind.REMOVED:
        return f"in {group.text(f'removed {subject.noun}')}"
    sizes = [amount(size, subject.quantity) for size in (shift.before, shift.after)]
    if len(group.names) == 1:
        # Of a share that is less than they differ by, the reason.
        pace = f", {1 / subject.scale:.1f} at a time" if subject.scale < SIDE_BY_SIDE else ""
        return f"in {group.names[0]} ({' -> '.join(sizes)}{pace})"
    return f"in {group.text(subject.noun)} that {'grew' if shift.amount > 0 else 'shrank'}"


def _text_of_all(shift: Shift, subject: _Subject, everything: bool) -> str:
    parts = counted(len(shift.names), subject.noun)
    if shift.kind is Kind.CACHE_LOST:
        return f"in {parts} that the compiler cache had before"
    if shift.kind is Kind.CACHE_GAINED:
        return f"in {parts} that the compiler cache has now"
    if shift.kind is Kind.REST:
        return f"spread over {parts}"
    alike = f"in {'all ' if everything else ''}{parts} alike"
    return f"{alike}, each about {_relative(shift.after / shift.before)}"


def _relative(ratio: float) -> str:
    if ratio >= TIMES:
        return f"{ratio:.1f} times as long"
    return f"{percent(abs(ratio - 1))} {'longer' if ratio > 1 else 'shorter'}"


# From contributors to the whole change


def _settled(found: Iterable[Contributor], change: float, missing: str = "") -> list[Contributor]:
    """Contributors that add up to the change, the largest first; no more than it is claimed."""
    fitted = _fitted(list(found), change)
    small = [each for each in fitted if each.kind in _FOLDABLE and _is_small(each, change)]
    kept = [each for each in fitted if each not in small and each.share]
    if len(small) == 1:
        kept += small
    elif small:
        kept.append(_rest(small))
    left = change - sum(each.share or 0.0 for each in kept)
    if abs(left) > 1e-6 * abs(change):
        text = f"unexplained{missing}"
        kept.append(Contributor(kind=Kind.UNEXPLAINED, text=text, share=left, grade=Grade.UNKNOWN))
    return sorted(kept, key=lambda each: (each.kind in _LAST, -abs(each.share or 0.0)))


_LAST = (Kind.REST, Kind.UNEXPLAINED)


def _fitted(found: list[Contributor], change: float) -> list[Contributor]:
    """Scaled down where the parts have changed by more than the whole."""
    explained = sum(each.share or 0.0 for each in found)
    scale = min(1.0, change / explained) if explained * change > 0 else 1.0
    return [replace(each, share=(each.share or 0.0) * scale) for each in found]


def _is_small(contributor: Contributor, change: float) -> bool:
    return contributor.kind is Kind.REST or abs(contributor.share or 0.0) < LISTED * abs(change)


def _rest(small: Sequence[Contributor]) -> Contributor:
    names = tuple(name for each in small for name in each.names)
    share = sum(each.share or 0.0 for each in small)
    text = f"spread over {len(names):,} others"
    return Contributor(kind=Kind.REST, text=text, share=share, names=names)


# What is not there to be read


def _missing(pair: Pair, has: Callable[[BuildSide], bool], remedy: str) -> str:
    """Which side does not have what is needed, and how it would."""
    names = [
        name for name, side in zip(("before", "after"), pair.sides, strict=True) if not has(side)
    ]
    if len(names) == len(pair.sides):
        return f", as neither run has a {remedy}"
    return f", as the run {names[0]} has no {remedy}" if names else ""


def _has_units(side: BuildSide) -> bool:
    return any(build.units for build in side.builds)


def _has_lines(side: BuildSide) -> bool:
    return bool(side.generated)
