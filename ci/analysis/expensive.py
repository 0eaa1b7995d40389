"""What the time of a suite goes into: tests, operators and functions, families. Pure.

The seconds are those of all phases of a test, added up: more than the wall time where several
worker processes share the work.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import NamedTuple

from ci.analysis.outcomes import Outcomes
from ci.analysis.suite import OperatorTest, suite_name

LEAST_FAMILY = 3  # operators
OTHERS = "other operators"

_FIRST_WORD = re.compile(r"_*([a-z0-9]+)_(?=[a-z0-9])", re.ASCII)


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
    names = {node_id: suite_name(node_id, outcomes.device) for node_id in took}
    operators = {
        node_id: name.overload.partition(".")[0]
        for node_id, name in names.items()
        if isinstance(name, OperatorTest)
    }
    functions = {node_id: node_id.partition("[")[0] for node_id in took} | operators
    families = {node_id: node_id.partition("::")[0] for node_id in took}
    families |= _families(operators)
    return Costs(
        tests=tuple(
            Share(node_id, 1, seconds)
            for node_id, seconds in sorted(took.items(), key=itemgetter(1), reverse=True)
        ),
        functions=_shares(took, functions),
        families=_shares(took, families),
    )


def _families(operators: Mapping[str, str]) -> dict[str, str]:
    """``fft_`` for ``fft_fft``, ``foreach_`` for ``_foreach_add``."""
    words = {name: _FIRST_WORD.match(name) for name in set(operators.values())}
    sizes = Counter(found[1] for found in words.values() if found)
    family = {
        name: f"{found[1]}_" if found and sizes[found[1]] >= LEAST_FAMILY else OTHERS
        for name, found in words.items()
    }
    return {node_id: family[name] for node_id, name in operators.items()}


def _shares(took: Mapping[str, float], groups: Mapping[str, str]) -> tuple[Share, ...]:
    seconds: dict[str, float] = defaultdict(float)
    tests = Counter(groups.values())
    for node_id, group in groups.items():
        seconds[group] += took[node_id]
    shares = [Share(name, tests[name], seconds[name]) for name in tests]
    return tuple(sorted(shares, key=lambda share: (-share.seconds, share.name)))
