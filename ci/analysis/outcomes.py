"""The tests of a run on one platform as the store keeps them: columns in one order.

A comparison of all platforms looks at hundreds of thousands of tests, nearly all of which are
what they were. So columns are decoded only when somebody asks for them, equal ones are known by
their digests, and no test becomes an object of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from ci.analysis.suite import State, main_device
from ci.pytest_log import Outcome, TestOutcome


class Ending(NamedTuple):
    """How a test ended, and what it said."""

    state: State
    message: str | None = None


@dataclass(frozen=True, kw_only=True)
class Columns:
    """How to get at each column; ``digest`` is of names and endings, ``None``: nobody knows."""

    names: Callable[[], Sequence[str]]
    endings: Callable[[], Sequence[Ending]]
    seconds: Callable[[], Sequence[float]]
    digest: tuple[str, str] | None = None


class Outcomes:
    """All tests of a run on one platform."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns

    def ended_as(self, other: Outcomes) -> bool:
        """Whether every test ended as in the other run, with the same words."""
        digest = self._columns.digest
        return digest is not None and digest == other._columns.digest

    @cached_property
    def names(self) -> Sequence[str]:
        return self._columns.names()

    @cached_property
    def endings(self) -> Sequence[Ending]:
        return self._columns.endings()

    @cached_property
    def seconds(self) -> Sequence[float]:
        return self._columns.seconds()

    @cached_property
    def device(self) -> str | None:
        """Of the operator tests; ``None``: there are none."""
        return main_device(self.names)

    @cached_property
    def states(self) -> Mapping[str, State]:
        """By node id."""
        states = [ending.state for ending in self.endings]
        return dict(zip(self.names, states, strict=True))

    @cached_property
    def bad(self) -> Sequence[str]:
        """The node ids of those that failed or erred; tests that ended alike share an ending."""
        known = {id(ending): ending for ending in self.endings}
        bad = {key for key, ending in known.items() if ending.state.outcome.bad}
        rows = zip(self.names, self.endings, strict=True)
        return [name for name, ending in rows if id(ending) in bad] if bad else []

    @cached_property
    def passed_seconds(self) -> Mapping[str, float]:
        """By node id, of those that passed: nothing else took its whole time."""
        rows = zip(self.names, self.endings, self.seconds, strict=True)
        return {name: seconds for name, (state, _), seconds in rows if state.outcome is _PASSED}

    def messages(self, names: Iterable[str]) -> dict[str, str | None]:
        """What these tests said."""
        wanted = frozenset(names)
        rows = zip(self.names, self.endings, strict=True)
        return {name: ending.message for name, ending in rows if name in wanted}


_PASSED = Outcome.PASSED


def outcomes_of(tests: Iterable[TestOutcome]) -> Outcomes:
    """Tests that are objects already."""
    ordered = list({test.node_id: test for test in tests}.values())
    endings = [Ending(State(test.outcome, test.skip_reason), test.reason) for test in ordered]
    return Outcomes(
        Columns(
            names=lambda: [test.node_id for test in ordered],
            endings=lambda: endings,
            seconds=lambda: [test.seconds for test in ordered],
        )
    )
