"""The generators alone: the torch backend as in a build, and the stubs of a device backend."""

from __future__ import annotations

import os
import re
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml

from bench.compilers import compile_unit
from bench.context import Context
from bench.rows import Measurement
from codegen.aten import NativeFunctions, find_torch, native_functions

OPERATORS = 500  # in the backend's YAML file
ROUNDS = 3  # with three, one disturbed round does not affect the median


def measure_torch(context: Context) -> Iterator[Measurement]:
    """Generate into empty folders, and again into the same ones, where everything is up to date."""
    folders = [context.scratch / f"generated-{index}" for index in range(ROUNDS)]
    for key in ("generate-cold", "generate-unchanged"):
        yield _median(context, key, folders, "torch")


def measure_backend_stubs(context: Context) -> Iterator[Measurement]:
    """Generate into empty folders; then compile every source of the last one."""
    torch = find_torch()
    source = context.scratch / "backend.yaml"
    with native_functions(torch) as functions:
        source.write_text(_backend(functions), encoding="utf-8")
        major, minor, *_ = map(int, re.findall(r"\d+", functions.torch_version))
    folders = [context.scratch / f"stubs-{index}" for index in range(ROUNDS)]
    arguments = ("backend-stubs", "--source-yaml", str(source))
    yield _median(context, "backend-stubs", folders, *arguments)
    # The namespace that the headers need.
    standard = "-std=c++17" if (major, minor) < (2, 14) else "-std=c++20"
    compiler = [os.environ.get("CXX", "c++"), standard, "-fPIC", "-c"]
    compiler += ["-isystem", str(torch.torch / "include")]
    sources = sorted(folders[-1].glob("*.cpp"))
    registrations = sum(path.read_text(encoding="utf-8").count("m.impl(") for path in sources)
    units = compile_unit(context.scratch)
    seconds = {}
    for key, level in (("backend-stubs-compile", "-O2"), ("backend-stubs-compile-O0", "-O0")):
        costs = [
            context.measure_command(
                [*compiler, level, str(path), "-o", str(path.with_suffix(".o"))]
            )
            for path in sources
        ]
        seconds[key] = sum(cost.cpu_s for cost in costs)
        each = f"{1000 * seconds[key] / registrations:.0f} CPU-ms each"
        yield Measurement(
            key=key,
            value=seconds[key],
            note=f"{registrations} registrations at {level}, {each}",
            detail={"registrations": registrations, "files": [cost.detail() for cost in costs]},
        )
    unit = statistics.median(units + compile_unit(context.scratch))
    yield Measurement(
        key="backend-stubs-compile-units",
        value=seconds["backend-stubs-compile"] / unit,
        note=f"a unit is {unit:.1f} CPU-s here",
    )


def _median(context: Context, key: str, folders: Sequence[Path], *arguments: str) -> Measurement:
    """The median cost of one generator over the folders that it writes."""
    command = [sys.executable, "-m", "codegen", *arguments, "--output-dir"]
    costs = [context.measure_command([*command, str(folder)]) for folder in folders]
    return Measurement(
        key=key,
        value=statistics.median(cost.cpu_s for cost in costs),
        note=costs[0].note(),
        detail={"rounds": [cost.detail() for cost in costs]},
    )


def _backend(functions: NativeFunctions) -> str:
    """The YAML file of a backend: a regular sample of the overloads with a CPU kernel."""
    (cpu,) = (index for key, index in functions.backend_indices.items() if str(key) == "CPU")
    names = sorted(name for name, each in functions.by_name.items() if cpu.has_kernel(each))
    supported = [names[index * len(names) // OPERATORS] for index in range(OPERATORS)]
    return yaml.safe_dump(
        {"backend": "PrivateUse1", "cpp_namespace": "demo", "supported": supported}
    )
