"""Every row of the cost table with its goal, and what a measurement of it looks like."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Goal:
    """A row of the table: what is measured by which part, and the most it may cost.

    Without ``at_most`` the row informs and has no goal.
    """

    part: str
    title: str
    unit: str
    at_most: float | None = None


@dataclass(frozen=True, kw_only=True)
class Table:
    """Figures behind a row, for a reader: cells are text."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """The measured value of the row ``key``, in the unit of its goal, or why there is none."""

    key: str
    value: float | None = None
    note: str = ""
    error: str = ""
    detail: dict[str, Any] = field(default_factory=dict)
    tables: tuple[Table, ...] = ()

    @property
    def goal(self) -> Goal:
        return GOALS[self.key]

    @property
    def met(self) -> bool | None:
        """Whether the goal is met; None where nothing was measured or there is no goal."""
        if self.value is None or self.goal.at_most is None:
            return None
        return self.value <= self.goal.at_most


# CPU-s are user + system of the whole process tree, with torch installed and no compiler cache.
GOALS = {
    "install": Goal(
        part="install", title="cold `pip install`, whole surface", unit="CPU-s", at_most=45
    ),
    "first-allowlist": Goal(
        part="first-allowlist",
        title="cold `pip install`, the first allowlist",
        unit="CPU-s",
        at_most=30,
    ),
    "generate-cold": Goal(part="generate", title="generation, cold", unit="CPU-s", at_most=3),
    "generate-unchanged": Goal(
        part="generate", title="generation, nothing changed", unit="CPU-s", at_most=0.5
    ),
    "backend-stubs": Goal(
        part="backend-stubs", title="stubs of a backend of 500 operators", unit="CPU-s", at_most=3
    ),
    "backend-stubs-compile": Goal(
        part="backend-stubs", title="compiling its registrations", unit="CPU-s", at_most=30
    ),
    "backend-stubs-compile-O0": Goal(
        part="backend-stubs", title="the same without optimization", unit="CPU-s"
    ),
    "rebuild-unchanged": Goal(
        part="rebuild", title="rebuild, nothing changed", unit="CPU-s", at_most=3
    ),
    "rebuild-one-added": Goal(
        part="rebuild", title="rebuild, one operator added", unit="CPU-s", at_most=15
    ),
    "compiler-memory": Goal(
        part="profile", title="peak memory of any compiler process", unit="MB", at_most=1200
    ),
    "wheel": Goal(part="wheel", title="wheel", unit="MB", at_most=5),
    "import": Goal(part="import", title="`import infini.ops` after torch", unit="s", at_most=0.1),
    "python-call": Goal(
        part="python-call",
        title="Python call through slot 8, to torch's own with `out=`",
        unit="ratio",
        at_most=0.9,
    ),
    "python-call-default": Goal(part="python-call", title="the same without a slot", unit="ratio"),
    "cpp-call": Goal(
        part="cpp-call",
        title="C++ call through the dispatch, over `at::_ops::…::call` below autograd",
        unit="ns",
        at_most=50,
    ),
    "cpp-call-autograd": Goal(
        part="cpp-call", title="the same over `at::_ops::…::call` through autograd", unit="ns"
    ),
    # Ratios are times: 0.9 of torch's speed is 1.11 of its time.
    "kernels-cpu-memory": Goal(
        part="kernels-cpu",
        title="hand-written operators, 1 M elements, to torch's own: the slowest",
        unit="ratio",
        at_most=1.11,
    ),
    "kernels-cpu-products": Goal(
        part="kernels-cpu",
        title="products of 1024³ in float32, to torch's own: the slowest",
        unit="ratio",
        at_most=1.25,
    ),
    "kernels-cuda-native": Goal(
        part="kernels-cuda",
        title="hand-written CUDA kernels, to torch's own: the slowest",
        unit="ratio",
        at_most=1.11,
    ),
    "kernels-cuda-triton": Goal(
        part="kernels-cuda",
        title="Triton kernels, to torch's own: the slowest",
        unit="ratio",
        at_most=1.11,
    ),
    "kernels-cuda-bandwidth": Goal(
        part="kernels-cuda",
        title="memory-bound kernels, to a copy of as many bytes: the slowest",
        unit="ratio",
        at_most=1.18,
    ),
    "release-overhead": Goal(
        part="release",
        title="`python -m ci run` of one platform, beyond its stages and image",
        unit="s",
        at_most=5,
    ),
    "release-first-stage": Goal(
        part="release", title="the same unchanged, until its first stage", unit="s", at_most=3
    ),
    "release-added": Goal(
        part="release",
        title="seven platforms at once, beyond the CPU time of their stages by the cores",
        unit="%",
        at_most=20,
    ),
    "release-memory": Goal(
        part="release", title="memory of the orchestrator meanwhile", unit="MB", at_most=200
    ),
    # Of 2,000 runs on 7 platforms with 17,000 tests each; --runs makes it less.
    "history-size": Goal(
        part="history",
        title="store of 2,000 runs x 7 platforms x 17,000 tests",
        unit="GB",
        at_most=8,
    ),
    "history-save": Goal(
        part="history", title="saving one of them: the slowest", unit="s", at_most=2
    ),
    "history-compare": Goal(
        part="history", title="`compare` of two runs, one after the other", unit="s", at_most=1
    ),
    "history-compare-far": Goal(
        part="history", title="`compare` of the first run and the last", unit="s", at_most=1
    ),
    "history-history": Goal(
        part="history", title="`history` of a platform, all runs", unit="s", at_most=1
    ),
    "history-report": Goal(part="history", title="`report` of a run", unit="s", at_most=1),
    "history-export": Goal(part="history", title="`export` of the tests of one run", unit="s"),
}


def unmeasured(part: str, measured: Iterable[Measurement], error: str) -> list[Measurement]:
    """Error rows for what ``part`` owes beyond ``measured``."""
    done = {measurement.key for measurement in measured}
    return [
        Measurement(key=key, error=error)
        for key, goal in GOALS.items()
        if goal.part == part and key not in done
    ]
