"""What has changed between two suites: pure, and grouped so that a person can read it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeVar

from ci.analysis.suite import OperatorTest, State, Suite, abbreviated
from ci.text import counted, first_names

LINES = 10

Name = TypeVar("Name", bound=OperatorTest | str)


class Kind(StrEnum):
    """A way to change; in the order in which they are told."""

    VANISHED = "vanished"
    NEWLY_FAILING = "newly failing"
    PASS_TO_SKIP = "pass -> skip"  # noqa: S105
    NEWLY_SKIPPED = "newly skipped"  # new, or failing before
    CHANGED_REASON = "skipped for another reason"
    SKIP_TO_PASS = "skip -> pass"  # noqa: S105
    ADDED = "added"
    FIXED = "fixed"

    @property
    def regression(self) -> bool:
        return self in _REGRESSIONS


_REGRESSIONS = frozenset({Kind.VANISHED, Kind.NEWLY_FAILING, Kind.PASS_TO_SKIP, Kind.NEWLY_SKIPPED})


@dataclass(frozen=True, kw_only=True)
class Change:
    """One test that changed, or ``count`` tests of a function that are only counted."""

    kind: Kind
    test: OperatorTest | str
    before: State | None
    after: State | None
    count: int = 1
    whole_slot: bool = False
    """The other side has no test of this slot at all."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """All changes between two suites."""

    changes: tuple[Change, ...]
    unchanged: int

    def of(self, kind: Kind) -> list[Change]:
        return [change for change in self.changes if change.kind is kind]

    def count(self, kind: Kind) -> int:
        return sum(change.count for change in self.of(kind))

    @property
    def regression(self) -> bool:
        return any(change.kind.regression for change in self.changes)


def difference(base: Suite, head: Suite) -> Difference:
    """Compare two suites; devices differ where platforms do, and are no part of it."""
    changes = [*_by_operator(base.operators, head.operators)]
    if base.others is None or head.others is None:
        changes += _by_count(base.functions, head.functions)
    else:
        changes += _by_name(base.others, head.others)
    changed = sum(change.count for change in changes if change.before is not None)
    return Difference(changes=tuple(changes), unchanged=base.counts().total() - changed)


def _by_operator(
    base: Mapping[OperatorTest, State], head: Mapping[OperatorTest, State]
) -> Iterator[Change]:
    one_sided = {test[:2] for test in base} ^ {test[:2] for test in head}  # function and slot
    for change in _by_name(base, head):
        yield replace(change, whole_slot=True) if change.test[:2] in one_sided else change


def _by_name(base: Mapping[Name, State], head: Mapping[Name, State]) -> Iterator[Change]:
    for name in sorted({*base, *head}):
        before, after = base.get(name), head.get(name)
        if kind := _kind(before, after):
            yield Change(kind=kind, test=name, before=before, after=after)


def _by_count(
    base: Mapping[str, Counter[State]], head: Mapping[str, Counter[State]]
) -> Iterator[Change]:
    """Tests of one function are alike: what is missing there is what is too much here."""
    for name in sorted({*base, *head}):
        here, there = base.get(name, Counter()), head.get(name, Counter())
        for before, after, count in _pairs(here - there, there - here):
            if kind := _kind(before, after):
                yield Change(kind=kind, test=name, before=before, after=after, count=count)


def _pairs(
    lost: Counter[State], gained: Counter[State]
) -> Iterator[tuple[State | None, State | None, int]]:
    """Take as many as possible from both at once; what one has too many of has no partner."""
    while lost or gained:
        before, after = _first(lost), _first(gained)
        counts = [lost[before]] if before else []
        counts += [gained[after]] if after else []
        count = min(counts)
        yield before, after, count
        lost = lost - Counter({before: count} if before else {})
        gained = gained - Counter({after: count} if after else {})


def _first(states: Counter[State]) -> State | None:
    return min(states, key=lambda state: (state.outcome, str(state)), default=None)


def _kind(before: State | None, after: State | None) -> Kind | None:
    if before == after:
        return None
    if after is None:
        return Kind.VANISHED
    if after.outcome.bad:
        return None if before and before.outcome.bad else Kind.NEWLY_FAILING
    if before is None:
        return Kind.NEWLY_SKIPPED if after.idle else Kind.ADDED
    if before.outcome.bad:
        return Kind.NEWLY_SKIPPED if after.idle else Kind.FIXED
    if before.idle and after.idle:
        return Kind.CHANGED_REASON
    if before.idle:
        return Kind.SKIP_TO_PASS
    return Kind.PASS_TO_SKIP if after.idle else None


# For people


def lines_of(changes: Sequence[Change], most: int = LINES) -> list[str]:
    """The changes in groups, the largest first, each with its count if it is not the only one."""
    groups = sorted(_groups(changes), key=lambda group: (-group[0], group[1]))
    if len(groups) == 1:
        return [groups[0][1]]
    lines = [f"{counted(count, 'test')}: {text}" for count, text in groups[:most]]
    if left := groups[most:]:
        tests = sum(count for count, _ in left)
        lines.append(f"and {counted(tests, 'test')} more, in {counted(len(left), 'group')}")
    return lines


@dataclass
class _Function:
    """Tests of one function that changed in the same way."""

    first: str
    count: int = 0


_Place = tuple[str, bool, int, str]  # how it changed, whether the whole slot did, slot, function


def _groups(changes: Sequence[Change]) -> Iterator[tuple[int, str]]:
    operators: dict[_Place, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    others: dict[tuple[str, ...], dict[str, _Function]] = defaultdict(dict)
    for change in changes:
        how = _how(change)
        if isinstance(change.test, OperatorTest):
            place = (how, change.whole_slot, change.test.slot, change.test.function)
            operators[place][change.test.overload].add(change.test.variant)
        else:
            file, _, name = change.test.partition("::")
            function = others[how, file].setdefault(name.partition("[")[0], _Function(name or file))
            function.count += change.count
    for (how, whole, slot, _), overloads in operators.items():
        groups = _slot_groups if whole else _operator_groups
        yield from groups(overloads, slot, how)
    for (how, file), functions in others.items():
        yield _function_group(functions, file, how)


def _slot_groups(
    overloads: Mapping[str, set[str]], slot: int, how: str
) -> Iterator[tuple[int, str]]:
    """Of a slot that is there or is not, the dtypes are no news."""
    count = sum(map(len, overloads.values()))
    yield count, f"{first_names([*overloads])} (all of slot {slot}; {how})"


def _operator_groups(
    overloads: Mapping[str, set[str]], slot: int, how: str
) -> Iterator[tuple[int, str]]:
    """Overloads of which the same dtypes have changed are told together."""
    alike: dict[str, list[str]] = defaultdict(list)
    for overload, variants in overloads.items():
        alike[abbreviated(variants)].append(overload)
    for dtypes, names in alike.items():
        count = sum(len(overloads[name]) for name in names)
        yield count, f"{dtypes} of {first_names(names)} (slot {slot}; {how})"


def _function_group(functions: Mapping[str, _Function], file: str, how: str) -> tuple[int, str]:
    told = [
        f"{name} ({function.count:,})" if function.count > 1 else function.first
        for name, function in functions.items()
    ]
    count = sum(function.count for function in functions.values())
    return count, f"{file}: {first_names(told)} ({how})"


def _how(change: Change) -> str:
    if change.after is None:
        return f"was {change.before}"
    return f"{change.before} -> {change.after}" if change.before else str(change.after)


def headline(kind: Kind, found: Difference) -> str:
    """``3 tests vanished``."""
    return f"{counted(found.count(kind), 'test')} {kind}"
