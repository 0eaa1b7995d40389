"""Hand-written and Triton kernels compared with torch's own, and with the memory bandwidth."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from statistics import median
from typing import Any

from bench.context import Context
from bench.report import Conditions, describe_conditions
from bench.rows import (
    FigureTable,
    Measurement,
    MeasurementError,
    Summary,
    paired_ratios,
    summarize,
)
from ci.agent.machine import instruction_sets

Figures = Mapping[str, Any]  # one case, as printed by bench.kernel_worker

# Implementations of the library by slot; ``codegen.slots`` defines the numbers.
OURS, NATIVE, TRITON = "slot ", "slot [0-7]", "slot 9"
# The instruction sets of src/cpu/isa.h, the smallest first, by the names of ci.agent.machine.
ISAS = {"SSE2": "baseline", "AVX2": "avx2", "AVX-512": "avx512"}
# What limits the library, and what torch calls, to one of them. MKL ignores its variable on
# processors that are not Intel's.
LIMITS = {
    "INFINI_OPS_CPU_ISA": {"baseline": "baseline", "avx2": "avx2"},
    "ATEN_CPU_CAPABILITY": {"baseline": "default", "avx2": "avx2"},
    "ONEDNN_MAX_CPU_ISA": {"baseline": "SSE41", "avx2": "AVX2"},
    "MKL_ENABLE_INSTRUCTIONS": {"baseline": "SSE4_2", "avx2": "AVX2"},
}
# Under a limit, torch converts between these as fast as without: none of the variables reaches it.
UNLIMITED = ("cast float32 to float16,", "cast float16 to float32,")
EVEN = 1.05  # two timings of one kernel differ by so much
CPU_ROUNDS = 7  # at most: there are over 100 cases for each instruction set and number of threads
_COLUMNS = (
    *("case", "implementation", "time", "rate", "torch [ratio]", "95 % of rounds"),
    "copy [ratio]",
)
_SUMMARY_COLUMNS = (
    "operator",
    "instruction set",
    "torch [ratio]",
    "worst",
    "95 % of rounds",
    "case",
)


def measure_cpu(context: Context) -> Iterator[Measurement]:
    """The slowest cases of any instruction set, on one thread and on all."""
    rounds = min(context.repeat, CPU_ROUNDS)
    usable = usable_isas(instruction_sets())
    cases: list[Figures] = []
    for isa in usable:
        limits = {} if isa == usable[-1] else limits_to(isa)
        for threads in sorted({1, len(os.sched_getaffinity(0))}):
            measure = partial(
                Timings.measure, context, "cpu", rounds, threads=threads, variables=limits
            )
            cases += (
                {**case, "isa": isa, "threads": threads}
                for case in confirmed(measure)
                if not (limits and case["case"].startswith(UNLIMITED))
            )
    timings = Timings(device="the CPU", cases=cases)
    table = FigureTable(
        title="Hand-written kernels on the CPU, to torch limited to the same instruction set",
        columns=_SUMMARY_COLUMNS,
        rows=tuple(summary_rows(timings.timed)),
    )
    details: dict[str, Any] = {"detail": {"cases": cases}, "table": table}
    large = [
        case
        for case in timings.memory_bound
        if "copy" in case["seconds"] and case["isa"] == usable[-1]
    ]
    yield timings.slowest("kernels-cpu-memory", timings.memory_bound, **details)
    yield timings.slowest("kernels-cpu-products", [case for case in timings.timed if case["flops"]])
    yield timings.slowest("kernels-cpu-bandwidth", large, "copy")


def confirmed(measure: Callable[..., Timings]) -> Iterator[Figures]:
    """Measure all cases, and once more those that are slower than torch; yield the better figures.

    In another process, operands lie elsewhere in memory. With large ones, that changes the ratio by
    up to a quarter.
    """
    cases = measure().cases
    slow = [case["case"] for case in cases if slowness(case) > EVEN]
    again = {case["case"]: case for case in measure(cases=slow).cases} if slow else {}
    for case in cases:
        yield min(case, again.get(case["case"], case), key=slowness)


def slowness(case: Figures) -> float:
    """The largest ratio to torch; 0 for a case that failed."""
    return max(ratios_of(case).values(), default=0)


def ratios_of(case: Figures, reference: str = "torch", slots: str = OURS) -> dict[str, float]:
    """The ratio of each of our implementations, the median over the rounds."""
    seconds = case.get("seconds", {})
    return {
        name: median(paired_ratios(seconds, name, reference))
        for name in seconds
        if re.match(slots, name)
    }


def usable_isas(processor: str | None) -> tuple[str, ...]:
    """The instruction sets of a processor, from what ``instruction_sets()`` returns for it."""
    names = list(ISAS)
    largest = (processor or names[0]).split()[0]
    # SSE4.2 and AVX have no kernels of their own.
    index = names.index(largest) if largest in names else 0
    return tuple(ISAS[name] for name in names[: index + 1])


def limits_to(isa: str) -> dict[str, str]:
    """The variables that limit the library and torch to an instruction set."""
    return {variable: values[isa] for variable, values in LIMITS.items()}


def summary_rows(cases: Sequence[Figures]) -> Iterator[tuple[str, ...]]:
    """Yield a row per operator and instruction set: the median over its cases, and the worst."""

    def row_of(case: Figures) -> tuple[str, str]:
        return case["operator"], case["isa"]

    for names, of_row in groupby(sorted(cases, key=row_of), key=row_of):
        ratios = {
            f"{case['case']}, {_format_threads(case)}": summarize(
                paired_ratios(case["seconds"], name, "torch")
            )
            for case in of_row
            for name in case["seconds"]
            if re.match(OURS, name)
        }
        if not ratios:
            continue
        worst = max(ratios, key=lambda name: ratios[name].median)
        middle = median(each.median for each in ratios.values())
        yield (*names, f"{middle:.2f}", *_format_ratio(ratios[worst]), worst)


def measure_cuda(context: Context) -> Iterator[Measurement]:
    """The slowest operator of each backend, and the one that is slowest relative to a copy."""
    threads = len(os.sched_getaffinity(0))
    timings = Timings.measure(context, "cuda", context.repeat, threads=threads)
    if timings.device is None:
        for key in ("kernels-cuda-native", "kernels-cuda-triton", "kernels-cuda-bandwidth"):
            yield Measurement(key=key, note="no CUDA device on this machine")
        return
    rows = tuple(_row(case, name) for case in timings.timed for name in case["seconds"])
    table = FigureTable(title=f"Kernels on {timings.device}", columns=_COLUMNS, rows=rows)
    details: dict[str, Any] = {"detail": {"cases": timings.timed}, "table": table}
    yield timings.slowest("kernels-cuda-native", timings.timed, slots=NATIVE, **details)
    yield timings.slowest("kernels-cuda-triton", timings.timed, slots=TRITON)
    yield timings.slowest("kernels-cuda-bandwidth", timings.memory_bound, "copy")
    if context.slot_times:
        context.slot_times.write_text(slot_times_text(timings, describe_conditions()))


def slot_times_text(timings: Timings, conditions: Conditions) -> str:
    """The contents of ``codegen/slot_times.json``: the median of every slot in microseconds.

    Cases that only one slot takes are left out.
    """
    head = {
        "platform": "nvidia",
        "device": timings.device,
        "date": conditions.started_at[:10],
        "commit": conditions.commit[:8],
    }
    lines = []
    for case in timings.timed:
        medians = {
            name.removeprefix(OURS): round(1e6 * median(seconds), 2)
            for name, seconds in case["seconds"].items()
            if name.startswith(OURS)
        }
        if len(medians) > 1:
            about = {"operator": case["operator"], "case": case["case"], "microseconds": medians}
            lines.append("  " + json.dumps(about, ensure_ascii=False))
    return json.dumps(head, indent=1)[:-2] + ',\n "cases": [\n' + ",\n".join(lines) + "\n ]\n}\n"


@dataclass(frozen=True, kw_only=True)
class Timings:
    """The cases of one device, some of which may have failed."""

    device: str | None
    cases: Sequence[Figures]

    @classmethod
    def measure(
        cls,
        context: Context,
        device: str,
        rounds: int,
        *,
        threads: int,
        variables: Mapping[str, str] | None = None,
        cases: Sequence[str] = (),
    ) -> Timings:
        """Run ``bench.kernel_worker`` with these variables, on all cases if none is named."""
        command = [sys.executable, "-m", "bench.kernel_worker", device, str(rounds), *cases]
        added = {"OMP_NUM_THREADS": str(threads), **(variables or {})}
        output = json.loads(context.run(command, context.library_environment | added).stdout)
        return cls(device=output["device"], cases=output["cases"])

    @property
    def timed(self) -> list[Figures]:
        return [case for case in self.cases if "seconds" in case]

    @property
    def memory_bound(self) -> list[Figures]:
        return [case for case in self.timed if not case["flops"]]

    @property
    def errors(self) -> list[str]:
        return [f"{_name(case)}: {case['error']}" for case in self.cases if "error" in case]

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
            f"{_name(case)}, {name}": ratio
            for case in cases
            for name, ratio in ratios_of(case, reference, slots).items()
        }
        if not ratios:
            raise MeasurementError("\n".join(["no implementation could be timed", *self.errors]))
        name = max(ratios, key=ratios.__getitem__)
        failed = [f"{len(self.errors)} cases failed:", *self.errors] if self.errors else []
        return Measurement(
            key=key,
            value=ratios[name],
            note=f"the slowest of {len(ratios)}: {name}; {self.device}",
            error="\n".join(failed),
            **details,
        )


def _name(case: Figures) -> str:
    """The case, and how it ran if there are several ways."""
    if "isa" not in case:
        return str(case["case"])
    return f"{case['case']}, {case['isa']}, {_format_threads(case)}"


def _format_threads(case: Figures) -> str:
    return f"{case['threads']} thread{'s' if case['threads'] > 1 else ''}"


def _format_ratio(ratio: Summary) -> tuple[str, str]:
    return f"{ratio.median:.2f}", ratio.interval()


def _row(case: Figures, name: str) -> tuple[str, ...]:
    times = case["seconds"]
    seconds = median(times[name])
    if case["flops"]:
        rate = f"{case['flops'] / seconds / 1e9:.0f} GFLOP/s"
    else:
        rate = f"{case['bytes'] / seconds / 1e9:.0f} GB/s"
    copy = f"{median(paired_ratios(times, name, 'copy')):.2f}" if "copy" in times else ""
    against = _format_ratio(summarize(paired_ratios(times, name, "torch")))
    return (case["case"], name, f"{1e6 * seconds:.0f} µs", rate, *against, copy)
