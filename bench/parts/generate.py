"""The generator alone, as the build runs it."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

from bench.context import Context
from bench.rows import Measurement
from bench.usage import Usage

ROUNDS = 3


def measure(context: Context) -> Iterator[Measurement]:
    """Into an empty folder, and into one where everything is up to date; the median of three."""
    cold: list[Usage] = []
    unchanged: list[Usage] = []
    for index in range(ROUNDS):
        folder = context.scratch / f"generated-{index}"
        command = [context.python, "-m", "codegen", "torch", "--output-dir", str(folder)]
        for usages in (cold, unchanged):
            usages.append(context.measured(command, context.environment(), log="generate.log"))
    yield _measurement("generate-cold", cold)
    yield _measurement("generate-unchanged", unchanged)


def _measurement(key: str, usages: Sequence[Usage]) -> Measurement:
    return Measurement(
        key=key,
        value=statistics.median(usage.cpu_s for usage in usages),
        note=usages[0].note(),
        detail={"rounds": [usage.detail() for usage in usages]},
    )
