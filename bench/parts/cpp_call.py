"""C++ calls through the library's dispatch against ATen's own entry points."""

from __future__ import annotations

import json
import os
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bench.context import ROOT, Context
from bench.rows import Measurement, Table
from bench.statistics import medians_by_round, paired_differences, summarize

# operator -> variant -> nanoseconds per call, one figure per round
Times = Mapping[str, Mapping[str, Sequence[float]]]

SOURCE = ROOT / "bench" / "cpp" / "calls.cc"
# What a C++ program needs to know of the two installed packages.
_LOOK = """
import json, pathlib, torch, infini.ops
print(json.dumps({
    "package": str(pathlib.Path(infini.ops.__file__).parent),
    "include": str(infini.ops.include_dir()),
    "torch": str(pathlib.Path(torch.__file__).parent),
    "cxx11_abi": int(torch.compiled_with_cxx11_abi()),
}))
"""


def measure(context: Context) -> Iterator[Measurement]:
    """What the dispatch adds to a call at slot 8 with torch's own tensors, and the other ways."""
    program = _compile(context)
    # More rounds than in Python: a round takes a tenth of the time.
    command = [str(program), str(5 * context.repeat)]
    times = parse(context.run(command, os.environ | {"OMP_NUM_THREADS": "1"}).stdout)
    yield _measurement("cpp-call", "aten-below-autograd", times, [_table(times)])
    yield _measurement("cpp-call-autograd", "aten", times, [])


def _compile(context: Context) -> Path:
    look = context.run([context.python, "-c", _LOOK], context.library_environment)
    found = json.loads(look.stdout)
    program = context.scratch / "calls"
    torch, package = Path(found["torch"]), Path(found["package"])
    command = [
        *(os.environ.get("CXX", "c++"), "-std=c++17", "-O2", "-Wall", "-Wextra"),
        *(str(SOURCE), "-o", str(program), f"-D_GLIBCXX_USE_CXX11_ABI={found['cxx11_abi']}"),
        *("-I", found["include"], "-isystem", str(torch / "include")),
        *(str(package / "libinfini_ops.so"), f"-Wl,-rpath,{package}"),
        *(str(torch / "lib" / "libtorch_cpu.so"), str(torch / "lib" / "libc10.so")),
        f"-Wl,-rpath,{torch / 'lib'}",
    ]
    context.run(command, context.environment())
    return program


def parse(output: str) -> Times:
    """Reads the lines `operator variant ns ns ...`."""
    times: dict[str, dict[str, list[float]]] = {}
    for line in output.splitlines():
        operator, variant, *nanoseconds = line.split()
        times.setdefault(operator, {})[variant] = [float(number) for number in nanoseconds]
    return times


def _measurement(key: str, reference: str, times: Times, tables: Sequence[Table]) -> Measurement:
    differences = [
        paired_differences(variants["torch-slot-8"], variants[reference])
        for variants in times.values()
    ]
    overall = summarize(medians_by_round(differences))
    return Measurement(
        key=key,
        value=statistics.median(map(statistics.median, differences)),
        note=f"95 % of rounds {overall.low:.0f} to {overall.high:.0f}; slot 8, torch's tensors",
        detail={"operators": times} if tables else {},
        tables=tuple(tables),
    )


def _table(times: Times) -> Table:
    columns = tuple(next(iter(times.values())))
    rows = tuple(
        (operator, *(f"{statistics.median(variants[name]):.0f}" for name in columns))
        for operator, variants in times.items()
    )
    return Table(title="C++ calls [ns]", columns=("operator", *columns), rows=rows)
