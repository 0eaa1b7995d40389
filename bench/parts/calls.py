"""Importing the library, and its calls compared with torch's own, from Python and from C++."""

from __future__ import annotations

import json
import os
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.context import ROOT, Context, without_compiler_cache
from bench.rows import (
    FigureTable,
    Measurement,
    MeasurementError,
    medians_by_round,
    paired_ratios,
    summarize,
)
from ci.util.process import run

PROCESSES = 11  # odd, so that the median is a measured value; each process imports torch first
SHOWN = 10  # modules in the table
_IMPORT = """
import time
start = time.process_time()
import torch
wall, cpu = time.perf_counter(), time.process_time()
import infini.ops
print([time.perf_counter() - wall, time.process_time() - cpu, cpu - start])
"""
_PYTHON_COLUMNS = (
    *("operator", "torch [ns]", "slot 8 [ns]", "no slot [ns]"),
    *("ratio", "95 % of rounds", "no slot"),
)
CPP_SOURCE = ROOT / "bench" / "cpp" / "calls.cc"
# The properties of the two installed packages that a C++ program needs.
_PACKAGE_PROPERTIES = """
import json, pathlib, torch, infini.ops
print(json.dumps({
    "package": str(pathlib.Path(infini.ops.__file__).parent),
    "include": str(infini.ops.include_dir()),
    "torch": str(pathlib.Path(torch.__file__).parent),
    "cxx11_abi": int(torch.compiled_with_cxx11_abi()),
}))
"""


@dataclass(frozen=True)
class ImportTimes:
    """What importing the library took in a new process, and the import of torch before it."""

    wall_s: float
    cpu_s: float
    torch_cpu_s: float


def import_times(environment: Mapping[str, str], processes: int) -> list[ImportTimes]:
    """The times of new processes, without a first one, which compiles bytecode."""
    command = [sys.executable, "-c", _IMPORT]
    printed = [
        run(command, cwd=ROOT, environment=environment).stdout for _ in range(processes + 1)
    ][1:]
    return [ImportTimes(*json.loads(times)) for times in printed]


def measure_import(context: Context) -> Iterator[Measurement]:
    """The median over new processes."""
    environment = context.library_environment
    times = import_times(environment, PROCESSES)
    wall, cpu = (summarize([getattr(each, name) for each in times]) for name in ("wall_s", "cpu_s"))
    command = [sys.executable, "-X", "importtime", "-c", "import torch, infini.ops"]
    yield Measurement(
        key="import",
        value=wall.median,
        note=f"95 % of {PROCESSES} processes {wall.interval(3)} s; {cpu.median:.3f} CPU-s",
        detail={"processes": list(map(asdict, times))},
        table=import_table(context.run(command, environment).stderr),
    )


def import_table(report: str) -> FigureTable:
    """The most expensive modules after torch, from the report of ``-X importtime``."""
    lines = report.splitlines()
    (torch,) = (index for index, line in enumerate(lines) if line.endswith("| torch"))
    rows = [
        [cell.strip() for cell in line.removeprefix("import time:").split("|")]
        for line in lines[torch + 1 :]
    ]
    slowest = sorted(rows, key=lambda row: -int(row[0]))[:SHOWN]
    return FigureTable(
        title="Import, after torch [µs]",
        columns=("module", "itself", "with what it imports"),
        rows=tuple((module, own, cumulative) for own, cumulative, module in slowest),
    )


def measure_python(context: Context) -> Iterator[Measurement]:
    """The median ratio over all operators, through slot 8 and without a slot."""
    command = [sys.executable, "-m", "bench.python_worker", str(context.repeat)]
    cases = json.loads(context.run(command, context.library_environment).stdout)
    timed = [case for case in cases if "ns" in case]
    failed = [f"{case['operator']}: {case['error']}" for case in cases if "error" in case]
    if not timed:
        raise MeasurementError(f"no call could be timed; {failed[0]}")
    details: dict[str, Any] = {"detail": {"operators": cases}, "table": _python_table(cases)}
    for key, variant in (("python-call", "slot"), ("python-call-default", "default")):
        ratios = [paired_ratios(case["ns"], variant, "reference") for case in timed]
        faster = sum(statistics.median(values) <= 1 for values in ratios)
        note = f"{faster} of {len(timed)} operators no slower than torch's own"
        error = "\n".join((f"{len(failed)} operators failed:", *failed)) if failed else ""
        yield _over_operators(key, ratios, note, error=error, **details)
        details = {}


def _over_operators(
    key: str, series: Sequence[Sequence[float]], note: str, *, digits: int = 2, **fields: Any
) -> Measurement:
    """The median over all operators; ``series`` has one value per round for each."""
    rounds = summarize(medians_by_round(series)).interval(digits)
    value = statistics.median(map(statistics.median, series))
    return Measurement(key=key, value=value, note=f"95 % of rounds {rounds}; {note}", **fields)


def _python_table(cases: Sequence[Mapping[str, Any]]) -> FigureTable:
    rows = []
    for case in cases:
        if "error" in case:
            rows.append((case["operator"], "error", *[""] * (len(_PYTHON_COLUMNS) - 2)))
            continue
        times = case["ns"]
        medians = [statistics.median(times[name]) for name in ("reference", "slot", "default")]
        ratio = summarize(paired_ratios(times, "slot", "reference"))
        default = statistics.median(paired_ratios(times, "default", "reference"))
        cells = (f"{ratio.median:.2f}", ratio.interval(), f"{default:.2f}")
        rows.append((case["operator"], *(f"{each:.0f}" for each in medians), *cells))
    return FigureTable(title="Python calls", columns=_PYTHON_COLUMNS, rows=tuple(rows))


def measure_cpp(context: Context) -> Iterator[Measurement]:
    """The overhead of a dispatch at slot 8 with torch's own tensors, and other variants."""
    program = _compile(context)
    # More rounds than in Python, because a round takes a tenth of the time.
    command = [str(program), str(5 * context.repeat)]
    output = context.run(command, os.environ | {"OMP_NUM_THREADS": "1"}).stdout
    # operator -> variant -> nanoseconds per call, one value per round
    times: dict[str, dict[str, list[float]]] = {}
    for line in output.splitlines():
        operator, variant, *nanoseconds = line.split()
        times.setdefault(operator, {})[variant] = [float(number) for number in nanoseconds]
    details: dict[str, Any] = {"detail": {"operators": times}, "table": _cpp_table(times)}
    for key, reference in (("cpp-call", "aten-below-autograd"), ("cpp-call-autograd", "aten")):
        differences = [
            [slot - aten for slot, aten in zip(each["torch-slot-8"], each[reference], strict=True)]
            for each in times.values()
        ]
        yield _over_operators(key, differences, "slot 8, torch's tensors", digits=0, **details)
        details = {}


def _compile(context: Context) -> Path:
    look = context.run([sys.executable, "-c", _PACKAGE_PROPERTIES], context.library_environment)
    found = json.loads(look.stdout)
    program = context.scratch / "calls"
    torch, package = Path(found["torch"]), Path(found["package"])
    command = [
        *(os.environ.get("CXX", "c++"), "-std=c++17", "-O2", "-Wall", "-Wextra"),
        *(str(CPP_SOURCE), "-o", str(program), f"-D_GLIBCXX_USE_CXX11_ABI={found['cxx11_abi']}"),
        *("-I", found["include"], "-isystem", str(torch / "include")),
        *(str(package / "libinfini_ops.so"), f"-Wl,-rpath,{package}"),
        *(str(torch / "lib" / "libtorch_cpu.so"), str(torch / "lib" / "libc10.so")),
        f"-Wl,-rpath,{torch / 'lib'}",
    ]
    context.run(command, without_compiler_cache())
    return program


def _cpp_table(times: Mapping[str, Mapping[str, Sequence[float]]]) -> FigureTable:
    columns = tuple(next(iter(times.values())))
    rows = tuple(
        (operator, *(f"{statistics.median(variants[name]):.0f}" for name in columns))
        for operator, variants in times.items()
    )
    return FigureTable(title="C++ calls [ns]", columns=("operator", *columns), rows=rows)
