"""All rows of the cost table with their goals; measurements, and statistics of timings."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


class MeasurementError(Exception):
    """A measurement failed; the message contains what failed and how."""


@dataclass(frozen=True)
class Goal:
    """A row of the table: the measured quantity, its part of the benchmark, and the maximum.

    A row without ``at_most`` is informative and has no goal.
    """

    part: str
    title: str
    unit: str
    at_most: float | None = None


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The median, and the interval that contains 95 % of the values."""

    median: float
    low: float
    high: float

    def interval(self, digits: int = 2) -> str:
        """ "0.91 to 1.07"."""
        return f"{self.low:.{digits}f} to {self.high:.{digits}f}"


def summarize(values: Sequence[float]) -> Summary:
    """Summarize at least one value; of a few values the interval contains all."""
    # Quantiles in fortieths: the outermost ones are 2.5 %. They need at least two values.
    cuts = statistics.quantiles(values, n=40, method="inclusive") if len(values) > 1 else values
    return Summary(median=statistics.median(values), low=cuts[0], high=cuts[-1])


def paired_ratios(times: Mapping[str, Sequence[float]], name: str, reference: str) -> list[float]:
    """Ratio per round: both sides of a ratio ran one after the other, under the same load."""
    pairs = zip(times[name], times[reference], strict=True)
    return [value / reference_value for value, reference_value in pairs]


def medians_by_round(series: Sequence[Sequence[float]]) -> list[float]:
    """For each round, the median over the operators; ``series`` has its values by round."""
    return [statistics.median(values) for values in zip(*series, strict=True)]


@dataclass(frozen=True, kw_only=True)
class FigureTable:
    """The details of a row; cells are text."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """The measured value of the row ``key`` in the unit of its goal, or why it failed."""

    key: str
    value: float | None = None
    note: str = ""
    error: str = ""
    detail: dict[str, Any] = field(default_factory=dict)
    table: FigureTable | None = None
    """Tables with the details."""

    @property
    def goal(self) -> Goal:
        return GOALS[self.key]

    @property
    def met(self) -> bool | None:
        """True if the goal is met; None if nothing was measured or there is no goal."""
        if self.value is None or self.goal.at_most is None:
            return None
        return self.value <= self.goal.at_most


GOALS = {
    # CPU-s: user + system time of the whole process tree, with torch installed and no compiler
    # cache.
    "install": Goal("install", "cold `pip install`, whole surface", "CPU-s", 45),
    # The unit is one `#include <torch/torch.h>`, compiled before and after: see bench/compilers.py.
    "install-units": Goal("install", "the same, in compilations of `torch/torch.h`", "units", 2),
    "install-units-without-kernels": Goal(
        "install", "the same with `WITH_CPU_KERNELS=OFF`", "units", 1.3
    ),
    "first-allowlist": Goal(
        "first-allowlist", "cold `pip install`, the first allowlist", "CPU-s", 30
    ),
    "generate-cold": Goal("generate", "generation, cold", "CPU-s", 3),
    "generate-unchanged": Goal("generate", "generation, nothing changed", "CPU-s", 0.5),
    "backend-stubs": Goal("backend-stubs", "stubs of a backend of 500 operators", "CPU-s", 3),
    "backend-stubs-compile": Goal("backend-stubs", "compiling its registrations", "CPU-s", 30),
    "backend-stubs-compile-units": Goal(
        "backend-stubs", "the same, in compilations of `torch/torch.h`", "units", 2.5
    ),
    "backend-stubs-compile-O0": Goal("backend-stubs", "the same without optimization", "CPU-s"),
    "rebuild-unchanged": Goal("rebuild", "rebuild, nothing changed", "CPU-s", 3),
    "rebuild-one-added": Goal("rebuild", "rebuild, one operator added", "CPU-s", 15),
    "compiler-memory": Goal("profile", "peak memory of any compiler process", "MB", 1200),
    "wheel": Goal("wheel", "wheel", "MB", 5),
    "import": Goal("import", "`import infini.ops` after torch", "s", 0.1),
    "python-call": Goal(
        "python-call", "Python call through slot 8, to torch's own with `out=`", "ratio", 0.9
    ),
    "python-call-default": Goal("python-call", "the same without a slot", "ratio"),
    "cpp-call": Goal(
        "cpp-call",
        "C++ call through the dispatch, over `at::_ops::…::call` below autograd",
        "ns",
        50,
    ),
    "cpp-call-autograd": Goal(
        "cpp-call", "the same, relative to `at::_ops::…::call` through autograd", "ns"
    ),
    # Ratios are of times: 0.9 of torch's speed is a ratio of 1.11. Two timings of the same kernel
    # differ by 5 %.
    "kernels-cpu-memory": Goal(
        "kernels-cpu",
        "hand-written operators, 1 k to 16 M elements, to torch's own: the slowest",
        "ratio",
        1.05,
    ),
    "kernels-cpu-products": Goal(
        "kernels-cpu", "products of 16³ to 1024³, to torch's own: the slowest", "ratio", 1.05
    ),
    "kernels-cpu-bandwidth": Goal(
        "kernels-cpu",
        "operators on 16 M elements, best instructions, to a copy of as many bytes: the slowest",
        "ratio",
        1.11,
    ),
    "kernels-cuda-native": Goal(
        "kernels-cuda", "hand-written CUDA kernels, to torch's own: the slowest", "ratio", 1.00
    ),
    "kernels-cuda-triton": Goal(
        "kernels-cuda", "Triton kernels, to torch's own: the slowest", "ratio", 1.05
    ),
    "kernels-cuda-bandwidth": Goal(
        "kernels-cuda",
        "memory-bound kernels, to a copy of as many bytes: the slowest",
        "ratio",
        1.05,
    ),
    # 32 greedy steps for 8 requests of 16 to 990 tokens, on one thread: bench/decoder_worker.py.
    "decoder-cpu-float32": Goal(
        "decoder-cpu",
        "decode steps of a Llama-shaped model in float32, to torch's own, compiled or not",
        "ratio",
        1.00,
    ),
    "decoder-cpu-bfloat16": Goal("decoder-cpu", "the same in bfloat16", "ratio", 1.00),
    "release-overhead": Goal(
        "release", "`python -m ci run` of one platform, beyond its stages and image", "s", 5
    ),
    "release-first-stage": Goal("release", "the same unchanged, until its first stage", "s", 3),
    "release-added": Goal(
        "release",
        "seven platforms at once, beyond the CPU time of their stages by the cores",
        "%",
        20,
    ),
    "release-memory": Goal("release", "memory of the orchestrator meanwhile", "MB", 200),
    # For 2,000 runs on 7 platforms with 17,000 tests each; --runs changes the number of runs.
    "history-size": Goal("history", "store of 2,000 runs x 7 platforms x 17,000 tests", "GB", 1),
    "history-save": Goal("history", "saving one of them: the slowest", "s", 2),
    "history-compare": Goal("history", "`compare` of two runs, one after the other", "s", 1),
    "history-compare-far": Goal("history", "`compare` of the first run and the last", "s", 1),
    "history-branch": Goal("history", "`compare` of a branch with its merge base", "s", 1),
    "history-history": Goal("history", "`history` of a platform, all runs", "s", 1),
    "history-all": Goal("history", "`history` of seven platforms, all runs", "s", 1),
    "history-report": Goal("history", "`report` of a run", "s", 1),
    # For 2,000 runs on 7 platforms, of which the newest 10 have 17,000 tests and their files.
    "dashboard-write": Goal("dashboard", "`dashboard` of 2,000 runs x 7 platforms", "s"),
    "dashboard-size": Goal("dashboard", "its folder", "MB", 20),
    "dashboard-open": Goal("dashboard", "opening its slowest page in Chromium", "s", 2),
    "capacity-replay": Goal(
        "capacity",
        "queues that `capacity` simulates, to a replay with processes: the largest difference",
        "%",
        15,
    ),
    "pool-replay": Goal("pool", "the same to a replay on a Ray cluster", "%", 15),
    "pool-throughput": Goal("pool", "jobs that the cluster starts per second", "jobs/s"),
    "pool-memory": Goal("pool", "memory of the process that submits them", "MB"),
    "history-export": Goal("history", "`export` of the tests of one run", "s"),
}
