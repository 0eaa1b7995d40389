"""The kinds of stages.

To add one: `ci.plan.config` checks what its configuration may have, `ci.agent.stage_runner` runs
it, and `ci.facts.case` judges it.
"""

from __future__ import annotations

from enum import Enum


class StringEnum(str, Enum):
    """An enum whose members print as their values (``enum.StrEnum``, from Python 3.11 on)."""

    __str__ = str.__str__


class StageKind(StringEnum):
    """How the agent treats a stage's command."""

    COMMAND = "command"
    PYTEST = "pytest"  # the agent adds --report-log and --junitxml
    BENCHMARK = "benchmark"  # the agent collects the result file of the benchmarks
