"""Compare two suites: changed tests, and groups of them for reports."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import TypeVar

from ci.facts.suite import (
    UNSELECTED,
    Outcomes,
    abbreviate_variants,
    families,
    suite_from,
    suite_name,
)
from ci.gates.regression import ChangeKind, change_kind
from ci.model.outcomes import OperatorTest, State, Suite
from ci.util.text import counted, first_line, join_names, shorten

LINES = 10  # groups that are shown, the largest; readers do not read more
SHOWN_OPERATORS = 5  # as in `join_names`
MESSAGE_LENGTH = 100  # characters; with the test name it takes two terminal lines
ANY_DEVICE = "any"  # in the names of tests of two platforms

_NUMBER = re.compile(r"0x[0-9a-f]+|\d+(?:\.\d+)?(?:e[+-]?\d+)?", re.IGNORECASE)

Name = TypeVar("Name", bound=OperatorTest | str)


@dataclass(frozen=True, kw_only=True)
class ChangedTest:
    """One changed test, or ``count`` changed tests of a function that are only counted."""

    kind: ChangeKind
    test: OperatorTest | str
    before: State | None
    after: State | None
    count: int = 1
    whole_slot: bool = False
    """The other suite has no test of this slot."""
    message: str | None = None
    """The message of a failure."""
    flaky: str | None = None
    """Evidence, as text, that a newly failing test is flaky; it still counts as failing."""
    seconds: tuple[float, float] | None = None
    """Of a slower test: its longest time before, scaled to the later run's speed, and its time."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """All changes between two suites."""

    changes: tuple[ChangedTest, ...]
    unchanged: int

    def of(self, kind: ChangeKind) -> list[ChangedTest]:
        return [change for change in self.changes if change.kind is kind]

    def count(self, kind: ChangeKind) -> int:
        return sum(change.count for change in self.of(kind))

    def headline(self, kind: ChangeKind) -> str:
        """``3 tests vanished``."""
        return f"{counted(self.count(kind), 'test')} {kind}"

    @property
    def regression(self) -> bool:
        return any(change.kind.regression for change in self.changes)


def compare_suites(base: Suite, head: Suite) -> Difference:
    """Compare two suites; differences of the device do not count."""
    here, there = ({test[:2] for test in suite.operators} for suite in (base, head))
    changes = _changes(base, head, here ^ there)
    changed = sum(change.count for change in changes if change.before is not None)
    return Difference(changes=tuple(changes), unchanged=base.counts().total() - changed)


def common_changes(found: Difference) -> Difference:
    """Keep only changes of tests in both runs, for runs with different selected operators."""
    changes = (change for change in found.changes if change.before and change.after)
    states = ((change, {change.before, change.after}) for change in changes)
    return replace(found, changes=tuple(change for change, two in states if UNSELECTED not in two))


def compare_outcomes(base: Outcomes, head: Outcomes) -> Difference:
    """Compare two runs; looks only at changed tests, so 17,000 tests take 15 ms."""
    if base.ended_like(head):
        return Difference(changes=(), unchanged=len(base.names))
    has_same_tests = base.has_tests_of(head)
    device = base.device if has_same_tests or base.device == head.device else ANY_DEVICE
    if has_same_tests:
        here, there = _differing_states(base, head)
    else:
        here, there = _rename_device(base, device), _rename_device(head, device)
    changed = {name for name, state in here.items() if there.get(name) != state}
    changed.update(there.keys() - here.keys())
    before, after = (
        suite_from({name: side[name] for name in changed if name in side}, device)
        for side in (here, there)
    )
    changes = _changes(before, after, _one_sided(here, there, changed, device))
    known = sum(change.before is not None for change in changes)
    failing = {change.test for change in changes if change.kind is ChangeKind.NEWLY_FAILING}
    messages = head.failures.items() if failing else ()
    message_of = {suite_name(name, head.device): text for name, text in messages}
    with_messages = (
        replace(change, message=message_of.get(change.test)) if change.test in failing else change
        for change in changes
    )
    return Difference(changes=tuple(with_messages), unchanged=len(base.names) - known)


def _differing_states(
    base: Outcomes, head: Outcomes
) -> tuple[Mapping[str, State], Mapping[str, State]]:
    """The states of the tests that ended differently, of two runs with the same tests.

    Tests of the store that ended alike share one ending, whatever their run.
    """
    rows = zip(base.names, base.endings, head.endings, strict=True)
    unequal = ((name, a.state, b.state) for name, a, b in rows if a is not b)
    found = [(name, before, after) for name, before, after in unequal if before != after]
    return {name: state for name, state, _ in found}, {name: state for name, _, state in found}


def _rename_device(side: Outcomes, device: str | None) -> Mapping[str, State]:
    """Return states by node id, with the device in the names replaced by ``device``."""
    if side.device == device or side.device is None:
        return side.states
    old, new = f"-{side.device}-slot", f"-{device}-slot"
    return {name.replace(old, new): state for name, state in side.states.items()}


def _one_sided(
    here: Mapping[str, State],
    there: Mapping[str, State],
    changed: Iterable[str],
    device: str | None,
) -> Set[tuple[str, int]]:
    """Return the functions and slots of which one side has no test."""
    one_sided = (name for name in changed if name not in here or name not in there)
    tests = [suite_name(name, device) for name in one_sided]
    found = set()
    for function, slot in {test[:2] for test in tests if isinstance(test, OperatorTest)}:
        start, end = f"{function}[", f"-{device}-slot{slot}]"
        for side in (here, there):
            # Fast: as a rule one of the first names matches.
            if not any(name.endswith(end) and name.startswith(start) for name in side):
                found.add((function, slot))
    return found


def _changes(base: Suite, head: Suite, one_sided: Container[tuple[str, int]]) -> list[ChangedTest]:
    """Return all changes; ``one_sided`` has the functions and slots that one side lacks."""
    found = [
        replace(change, whole_slot=True) if change.test[:2] in one_sided else change
        for change in _compare_by_name(base.operators, head.operators)
    ]
    if base.others is None or head.others is None:
        return [*found, *_compare_by_count(base.functions, head.functions)]
    return [*found, *_compare_by_name(base.others, head.others)]


def _compare_by_name(
    base: Mapping[Name, State], head: Mapping[Name, State]
) -> Iterator[ChangedTest]:
    for name in sorted({*base, *head}):
        before, after = base.get(name), head.get(name)
        if kind := change_kind(before, after):
            yield ChangedTest(kind=kind, test=name, before=before, after=after)


def _compare_by_count(
    base: Mapping[str, Counter[State]], head: Mapping[str, Counter[State]]
) -> Iterator[ChangedTest]:
    """Compare counts of tests by function.

    Tests of one function cannot be distinguished, so a lost state is paired with a gained one. A
    surplus on one side has no partner. Pairs are counted, not listed one by one: a contract may
    state any count.
    """
    for name in sorted({*base, *head}):
        here, there = base.get(name, Counter()), head.get(name, Counter())
        lost, gained = here - there, there - here
        while lost or gained:
            before, after = _first(lost), _first(gained)
            count = min(side[state] for side, state in ((lost, before), (gained, after)) if state)
            if kind := change_kind(before, after):
                yield ChangedTest(kind=kind, test=name, before=before, after=after, count=count)
            lost = lost - Counter({before: count} if before else {})
            gained = gained - Counter({after: count} if after else {})


def _first(states: Counter[State]) -> State | None:
    return min(states, key=lambda state: (state.outcome, str(state)), default=None)


# For people


def group_lines(changes: Sequence[ChangedTest], most: int = LINES) -> list[str]:
    """Return one line per group of changes, the largest first; several have their counts."""
    groups = sorted(_groups(changes), key=lambda group: (-group[0], group[1]))
    groups += _slower_groups(changes)
    if len(groups) == 1:
        return [groups[0][1]]
    lines = [f"{counted(count, 'test')}: {text}" for count, text in groups[:most]]
    if left := groups[most:]:
        tests = sum(count for count, _ in left)
        lines.append(f"and {counted(tests, 'test')} more, in {counted(len(left), 'group')}")
    return lines


def _groups(changes: Iterable[ChangedTest]) -> Iterator[tuple[int, str]]:
    """Yield the number of tests and the text of each group, slower tests excluded."""
    # By change, whether the whole slot changed, slot and function: variants by overload.
    operators: dict[tuple[str, bool, int, str], dict[str, set[str]]] = {}
    # By change and file: tests by function.
    others: dict[tuple[str, str], dict[str, Counter[str]]] = {}
    shown: dict[str, str] = {}
    for change in changes:
        if change.seconds is not None:
            continue
        # Of messages that differ only in numbers, the first is shown.
        how = _describe_change(change)
        how = shown.setdefault(_NUMBER.sub("#", how), how)
        if isinstance(change.test, OperatorTest):
            place = (how, change.whole_slot, change.test.slot, change.test.function)
            overloads = operators.setdefault(place, defaultdict(set))
            overloads[change.test.overload].add(change.test.variant)
        else:
            file, _, name = change.test.partition("::")
            functions = others.setdefault((how, file), defaultdict(Counter))
            functions[name.partition("[")[0]][name or file] += change.count
    for (how, whole, slot, _), overloads in operators.items():
        # Overloads with the same changed dtypes share a line. If a whole slot appeared or vanished,
        # the dtypes are not shown.
        alike: dict[str, list[str]] = defaultdict(list)
        for overload, variants in overloads.items():
            alike["" if whole else f"{abbreviate_variants(variants)} of "].append(overload)
        where = f"all of slot {slot}" if whole else f"slot {slot}"
        for dtypes, names in alike.items():
            count = sum(len(overloads[name]) for name in names)
            yield count, f"{dtypes}{_operator_names(names)} ({where}; {how})"
    for (how, file), functions in others.items():
        counts = {function: tests.total() for function, tests in functions.items()}
        names = [
            f"{function} ({count:,})" if count > 1 else next(iter(functions[function]))
            for function, count in counts.items()
        ]
        yield sum(counts.values()), f"{file}: {join_names(names)} ({how})"


def _slower_groups(changes: Iterable[ChangedTest]) -> Iterator[tuple[int, str]]:
    """Yield groups of slower tests by operator or function, the largest slowdown first."""
    grown: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for change in changes:
        if change.seconds is not None:
            test = change.test
            if isinstance(test, OperatorTest):
                name = f"{test.overload} (slot {test.slot})"
            else:
                name = test.partition("[")[0]
            grown[name].append(change.seconds)
    totals = {name: tuple(map(sum, zip(*pairs, strict=True))) for name, pairs in grown.items()}
    for name, (before, after) in sorted(totals.items(), key=lambda it: it[1][0] - it[1][1]):
        yield len(grown[name]), f"{name}: {before:.1f} s -> {after:.1f} s"


def _operator_names(names: Sequence[str]) -> str:
    """``add.out, mul.out``; long lists are grouped by first word: ``fft_* (12)``."""
    if len(names) <= SHOWN_OPERATORS:
        return ", ".join(names)
    words = families(names)
    sizes = Counter(words.values()).most_common()
    shown = [f"{word}* ({size:,})" for word, size in sizes[:SHOWN_OPERATORS]]
    single, left = [name for name in names if name not in words], SHOWN_OPERATORS - len(shown)
    rest = sum(size for _, size in sizes[SHOWN_OPERATORS:]) + len(single[left:])
    return ", ".join([*shown, *single[:left]]) + (f" and {rest:,} more" if rest else "")


def _describe_change(change: ChangedTest) -> str:
    if change.after is None:
        return f"was {change.before}"
    ending = f"{change.before} -> {change.after}" if change.before else str(change.after)
    message = shorten(first_line(change.message or ""), MESSAGE_LENGTH)
    text = f"{ending}: {message}" if message else ending
    return f"{text}; {change.flaky}" if change.flaky else text
