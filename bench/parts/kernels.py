"""Hand-written and Triton kernels against torch's own, and against what the memory can do."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from bench.context import Context
from bench.errors import MeasurementError
from bench.rows import Measurement, Table
from bench.statistics import Summary, paired_ratios, summarize

Figures = Mapping[str, Any]  # of one case, as bench.kernel_worker prints it

_COLUMNS = (
    *("case", "implementation", "time", "rate", "torch [ratio]", "95 % of rounds"),
    "copy [ratio]",
)


def measure_cpu(context: Context) -> Iterator[Measurement]:
    """The slowest memory-bound operator, and the slowest product in float32."""
    worker = Worker(context, "cpu")
    memory, products = worker.split()
    yield worker.slowest("kernels-cpu-memory", memory, "torch", tables=[worker.table()])
    in_float32 = [case for case in products if "float32" in case["case"]]
    yield worker.slowest("kernels-cpu-products", in_float32, "torch")


def measure_cuda(context: Context) -> Iterator[Measurement]:
    """The slowest operator of each backend, and the one that is furthest from a copy's speed."""
    worker = Worker(context, "cuda")
    if worker.device is None:
        for key in ("kernels-cuda-native", "kernels-cuda-triton", "kernels-cuda-bandwidth"):
            yield Measurement(key=key, note="no CUDA device is here")
        return
    memory, _ = worker.split()
    tables = [worker.table()]
    yield worker.slowest("kernels-cuda-native", worker.cases, "torch", _is_native, tables=tables)
    yield worker.slowest("kernels-cuda-triton", worker.cases, "torch", _is_triton)
    yield worker.slowest("kernels-cuda-bandwidth", memory, "copy")


def _is_native(implementation: str) -> bool:
    return _is_ours(implementation) and not _is_triton(implementation)


def _is_triton(implementation: str) -> bool:
    return implementation == "slot 9"


def _is_ours(implementation: str) -> bool:
    return implementation.startswith("slot ")


class Worker:
    """What the worker measured on one device."""

    def __init__(self, context: Context, device: str) -> None:
        command = [context.python, "-m", "bench.kernel_worker", device, str(context.repeat)]
        cores = str(len(os.sched_getaffinity(0)))
        environment = {**context.library_environment, "OMP_NUM_THREADS": cores}
        output = json.loads(context.run(command, environment).stdout)
        self.device: str | None = output["device"]
        self.cases = [case for case in output["cases"] if "seconds" in case]
        self._failed = [
            f"{each['case']}: {each['error']}" for each in output["cases"] if "error" in each
        ]

    def split(self) -> tuple[list[Figures], list[Figures]]:
        """The memory-bound cases, and the products."""
        return [c for c in self.cases if not c["flops"]], [c for c in self.cases if c["flops"]]

    def slowest(
        self,
        key: str,
        cases: Sequence[Figures],
        reference: str,
        chosen: Callable[[str], bool] = _is_ours,
        tables: Sequence[Table] = (),
    ) -> Measurement:
        """The row of the implementation that is slowest against ``reference``."""
        ratios = {
            f"{case['case']}, {name}": summarize(_ratios(case, name, reference)).median
            for case in cases
            for name in filter(chosen, case["seconds"])
        }
        if not ratios:
            raise MeasurementError("\n".join(["no implementation could be timed", *self._failed]))
        name = max(ratios, key=ratios.__getitem__)
        failed = [f"{len(self._failed)} cases failed:", *self._failed] if self._failed else []
        return Measurement(
            key=key,
            value=ratios[name],
            note=f"the slowest of {len(ratios)}: {name}; {self.device}",
            error="\n".join(failed),
            detail={"cases": list(self.cases)} if tables else {},
            tables=tuple(tables),
        )

    def table(self) -> Table:
        """Every implementation of every case."""
        rows = [_row(case, name) for case in self.cases for name in case["seconds"]]
        return Table(title=f"Kernels on {self.device}", columns=_COLUMNS, rows=tuple(rows))


def _ratios(case: Figures, name: str, reference: str) -> list[float]:
    return paired_ratios(case["seconds"][name], case["seconds"][reference])


def _row(case: Figures, name: str) -> tuple[str, ...]:
    seconds = summarize(case["seconds"][name]).median
    rate = f"{case['flops'] / seconds / 1e9:.0f} GFLOP/s"
    if not case["flops"]:
        rate = f"{case['bytes'] / seconds / 1e9:.0f} GB/s"
    against = summarize(_ratios(case, name, "torch"))
    copy = ""
    if not case["flops"]:
        copy = f"{summarize(_ratios(case, name, 'copy')).median:.2f}"
    cells = (f"{1e6 * seconds:.0f} µs", rate, f"{against.median:.2f}", _interval(against), copy)
    return (case["case"], name, *cells)


def _interval(summary: Summary) -> str:
    return f"{summary.low:.2f} to {summary.high:.2f}"
