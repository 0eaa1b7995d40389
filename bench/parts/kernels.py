"""Hand-written and Triton kernels compared with torch's own, and with the memory bandwidth."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from bench.context import Context
from bench.rows import FigureTable, Measurement, MeasurementError, paired_ratios, summarize

Figures = Mapping[str, Any]  # one case, as printed by bench.kernel_worker

# Implementations of the library by slot; ``codegen.slots`` defines the numbers.
OURS, NATIVE, TRITON = "slot ", "slot [0-7]", "slot 9"
_COLUMNS = (
    *("case", "implementation", "time", "rate", "torch [ratio]", "95 % of rounds"),
    "copy [ratio]",
)


def measure_cpu(context: Context) -> Iterator[Measurement]:
    """The slowest memory-bound operator, and the slowest product in float32."""
    worker = Worker(context, "cpu")
    in_float32 = [case for case in worker.cases if case["flops"] and "float32" in case["case"]]
    yield worker.slowest("kernels-cpu-memory", worker.memory_bound, **worker.details())
    yield worker.slowest("kernels-cpu-products", in_float32)


def measure_cuda(context: Context) -> Iterator[Measurement]:
    """The slowest operator of each backend, and the one that is slowest relative to a copy."""
    worker = Worker(context, "cuda")
    if worker.device is None:
        for key in ("kernels-cuda-native", "kernels-cuda-triton", "kernels-cuda-bandwidth"):
            yield Measurement(key=key, note="no CUDA device on this machine")
        return
    yield worker.slowest("kernels-cuda-native", worker.cases, slots=NATIVE, **worker.details())
    yield worker.slowest("kernels-cuda-triton", worker.cases, slots=TRITON)
    yield worker.slowest("kernels-cuda-bandwidth", worker.memory_bound, "copy")


class Worker:
    """The measurements of the worker on one device."""

    def __init__(self, context: Context, device: str) -> None:
        command = [sys.executable, "-m", "bench.kernel_worker", device, str(context.repeat)]
        cores = str(len(os.sched_getaffinity(0)))
        environment = {**context.library_environment, "OMP_NUM_THREADS": cores}
        output = json.loads(context.run(command, environment).stdout)
        self.device: str | None = output["device"]
        self.cases = [case for case in output["cases"] if "seconds" in case]
        self.memory_bound = [case for case in self.cases if not case["flops"]]
        self._failed = [
            f"{each['case']}: {each['error']}" for each in output["cases"] if "error" in each
        ]

    def slowest(
        self,
        key: str,
        cases: Sequence[Figures],
        reference: str = "torch",
        slots: str = OURS,
        **details: Any,
    ) -> Measurement:
        """The row of the implementation with the largest ratio to ``reference``."""
        ratios = {
            f"{case['case']}, {name}": median(paired_ratios(case["seconds"], name, reference))
            for case in cases
            for name in case["seconds"]
            if re.match(slots, name)
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
            **details,
        )

    def details(self) -> dict[str, Any]:
        """The tables of every implementation of every case, for the first row."""
        rows = tuple(_row(case, name) for case in self.cases for name in case["seconds"])
        table = FigureTable(title=f"Kernels on {self.device}", columns=_COLUMNS, rows=rows)
        return {"detail": {"cases": self.cases}, "table": table}


def _row(case: Figures, name: str) -> tuple[str, ...]:
    times = case["seconds"]
    seconds = median(times[name])
    against = summarize(paired_ratios(times, name, "torch"))
    if case["flops"]:
        rate, copy = f"{case['flops'] / seconds / 1e9:.0f} GFLOP/s", ""
    else:
        rate = f"{case['bytes'] / seconds / 1e9:.0f} GB/s"
        copy = f"{median(paired_ratios(times, name, 'copy')):.2f}"
    cells = (f"{1e6 * seconds:.0f} µs", rate, f"{against.median:.2f}", against.interval(), copy)
    return (case["case"], name, *cells)
