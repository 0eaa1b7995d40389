"""What the time of a suite goes into: tests, operators and functions, families. Pure.

The seconds are those of all phases of a test, added up: more than the wall time where several
worker processes share the work.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import NamedTuple

from ci.analysis.outcomes import Outcomes
from ci.analysis.suite import families, operator_of

OTHERS = "other operators"


class Share(NamedTuple):
    """Tests that are counted together."""

    name: str
    tests: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Costs:
    """The costs of a suite, each list with what costs most first, and complete."""

    tests: tuple[Share, ...]
    functions: tuple[Share, ...]
    """Operators, over all overloads, dtypes and slots; of other tests, functions."""
    families: tuple[Share, ...]
    """Operators by the first word of their names, where several share it; other tests by file."""

    @cached_property
    def seconds(self) -> float:
        return sum(share.seconds for share in self.families)

    def share(self, shares: Iterable[Share]) -> float:
        """How much of all time these took, from 0 to 1."""
        return sum(share.seconds for share in shares) / self.seconds if self.seconds else 0.0


def costs_of(outcomes: Outcomes) -> Costs:
    """Add up what tests took."""
    took = dict(zip(outcomes.names, outcomes.seconds, strict=True))
    operators = {node_id: name for node_id in took if (name := operator_of(node_id))}
    functions = {node_id: node_id.partition("[")[0] for node_id in took} | operators
    words = families(operators.values())
    files = {node_id: node_id.partition("::")[0] for node_id in took}
    named = {node_id: words.get(name, OTHERS) for node_id, name in operators.items()}
    return Costs(
        tests=tuple(
            Share(node_id, 1, seconds)
            for node_id, seconds in sorted(took.items(), key=itemgetter(1), reverse=True)
        ),
        functions=_shares(took, functions),
        families=_shares(took, files | named),
    )


def _shares(took: Mapping[str, float], groups: Mapping[str, str]) -> tuple[Share, ...]:
    seconds: dict[str, float] = defaultdict(float)
    tests = Counter(groups.values())
    for node_id, group in groups.items():
        seconds[group] += took[node_id]
    shares = [Share(name, tests[name], seconds[name]) for name in tests]
    return tuple(sorted(shares, key=lambda share: (-share.seconds, share.name)))
