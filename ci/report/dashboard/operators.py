"""The page of the operators: what each platform did with each overload in its newest suite."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from ci.facts.suite import suite_name
from ci.model.outcomes import OperatorTest, Outcome, State
from ci.report.dashboard.collection import NO_REASON, Collection
from ci.report.document import select_attributes

if TYPE_CHECKING:
    from ci.store.store import Store


class Status(StrEnum):
    """What a platform did with an overload; the first that applies."""

    FAILED = "failed"
    PASSED = "passed"
    FELL_BACK = "fell back"
    NOT_IN_TORCH = "not in this torch"
    SKIPPED = "skipped"
    NO_TEST = "no test"


MEANINGS = {
    Status.FAILED: "a test of it failed",
    Status.PASSED: "executed, and every executed test passed",
    Status.FELL_BACK: "the device has no kernel: it would run on the CPU, so its tests skip",
    Status.NOT_IN_TORCH: "the torch of this platform does not have it",
    Status.SKIPPED: "all of its tests skipped, for the reasons given",
    Status.NO_TEST: "the suite of this platform has no test of it",
}
SYMBOLS = {
    Status.FAILED: "✗",
    Status.PASSED: "✓",
    Status.FELL_BACK: "↩",
    Status.NOT_IN_TORCH: "∅",
    Status.SKIPPED: "s",
    Status.NO_TEST: "·",
}
_BY_REASON = {
    "no kernel on this device": Status.FELL_BACK,
    "not in this torch": Status.NOT_IN_TORCH,
}


_Tests = dict[OperatorTest, State]  # of one overload on one platform


def _status(tests: _Tests) -> Status:
    outcomes = {state.outcome for state in tests.values()}
    if any(it.bad for it in outcomes):
        return Status.FAILED
    if any(it.good for it in outcomes):
        return Status.PASSED
    if not outcomes:
        return Status.NO_TEST
    reasons = {_BY_REASON.get(state.reason or "", Status.SKIPPED) for state in tests.values()}
    return reasons.pop() if len(reasons) == 1 else Status.SKIPPED


@dataclass(frozen=True, kw_only=True)
class _Column:
    """The newest suite of a platform."""

    name: str
    label: str
    run: str
    suite: Mapping[str, _Tests]
    """By overload."""

    def statuses(self, overloads: Iterable[str]) -> list[Status]:
        return [_status(self.suite.get(overload, {})) for overload in overloads]


@dataclass(frozen=True, kw_only=True)
class OperatorsPage:
    """The legend, and the data for the script."""

    runs: Mapping[str, str]
    """The run whose suite is shown, by the label of its platform."""
    overloads: int
    counts: Mapping[str, Mapping[str, int]]
    """Overloads by label and status."""
    data: Mapping[str, Any]


def operators_page(store: Store, found: Collection) -> OperatorsPage:
    columns = []
    whole = {found.platform(name) for name in found.platforms if found.is_whole(name)}
    for name in found.platforms:
        # Beside the whole suite, one of selected operators would only lack tests.
        if not found.is_whole(name) and found.platform(name) in whole:
            continue
        if run := _newest_suite(store, found, name):
            suite = _read_suite(store, run, found.platform(name))
            columns.append(_Column(name=name, label=found.label(name), run=run, suite=suite))
    overloads = sorted({overload for column in columns for overload in column.suite})
    return OperatorsPage(
        runs={it.label: it.run for it in columns},
        overloads=len(overloads),
        counts={it.label: Counter(it.statuses(overloads)) for it in columns},
        data=_data(overloads, columns),
    )


def _newest_suite(store: Store, found: Collection, name: str) -> str | None:
    """The newest run on the branch whose tests are stored."""
    for result in reversed(found.on_line(name)):
        if result.counts and store.outcomes(result.run_id, result.platform).names:
            return result.run_id
    return None


def _read_suite(store: Store, run_id: str, platform: str) -> dict[str, _Tests]:
    outcomes = store.outcomes(run_id, platform)
    suite: dict[str, _Tests] = {}
    for node_id, ending in zip(outcomes.names, outcomes.endings, strict=True):
        test = suite_name(node_id, outcomes.device)
        if isinstance(test, OperatorTest):
            suite.setdefault(test.overload, {})[test] = ending.state
    return suite


def _data(overloads: Sequence[str], columns: Sequence[_Column]) -> dict[str, Any]:
    """The statuses as digits in a text; the tests as pairs of places in two lists of texts."""
    kinds, states, tests = [*Status], _Places(), _Places()
    platforms = []
    for column in columns:
        details = []
        for overload in overloads:
            pairs: list[int] = []
            for test, state in sorted(column.suite.get(overload, {}).items()):
                function = test.function.rpartition("::")[2]
                pairs.append(tests[f"{function}\n{test.slot}\n{test.variant}"])
                pairs.append(states[_state_text(state)])
            details.append(pairs)
        digits = (str(kinds.index(it)) for it in column.statuses(overloads))
        shown = select_attributes(column, "name", "label", "run")
        platforms.append({**shown, "status": "".join(digits), "tests": details})
    return {
        "overloads": overloads,
        "statuses": [{"name": it, "symbol": SYMBOLS[it], "meaning": MEANINGS[it]} for it in kinds],
        "platforms": platforms,
        "states": [*states],
        "tests": [*tests],
    }


class _Places(dict[str, int]):
    """Numbers texts in the order in which they are first seen."""

    def __missing__(self, text: str) -> int:
        self[text] = len(self)
        return self[text]


def _state_text(state: State) -> str:
    """``skipped: no sample``."""
    if state.outcome is Outcome.SKIPPED:
        return f"skipped: {state.reason or NO_REASON}"
    return state.outcome.value
