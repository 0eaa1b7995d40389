"""The generators alone: of the torch backend, as the build runs it, and of a backend's stubs."""

from __future__ import annotations

import os
import re
import statistics
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml

from bench.context import CommandCost, Context
from bench.rows import Measurement
from codegen.aten import NativeFunctions, Torch, find_torch, native_functions

OPERATORS = 500  # of the backend
ROUNDS = 3  # the fewest whose median one disturbed round does not move


def measure_torch(context: Context) -> Iterator[Measurement]:
    """Into an empty folder, and into one where everything is up to date; the median of three."""
    cold: list[CommandCost] = []
    unchanged: list[CommandCost] = []
    for index in range(ROUNDS):
        folder = context.scratch / f"generated-{index}"
        command = [sys.executable, "-m", "codegen", "torch", "--output-dir", str(folder)]
        for usages in (cold, unchanged):
            usages.append(context.measured(command, "generate.log"))
    yield _median("generate-cold", cold)
    yield _median("generate-unchanged", unchanged)


def measure_backend_stubs(context: Context) -> Iterator[Measurement]:
    """Into an empty folder, the median of three; then every source of the last, one by one."""
    torch = find_torch()
    source = context.scratch / "backend.yaml"
    with native_functions(torch) as functions:
        source.write_text(_backend(functions), encoding="utf-8")
        major, minor, *_ = map(int, re.findall(r"\d+", functions.torch_version))
    # The one that the headers need.
    standard = "-std=c++17" if (major, minor) < (2, 14) else "-std=c++20"
    generated: list[CommandCost] = []
    for index in range(ROUNDS):
        folder = context.scratch / f"stubs-{index}"
        command = [sys.executable, "-m", "codegen", "backend-stubs"]
        command += ["--source-yaml", str(source), "--output-dir", str(folder)]
        generated.append(context.measured(command, "stubs.log"))
    yield _median("backend-stubs", generated)
    sources = sorted(folder.glob("*.cpp"))
    registrations = sum(path.read_text(encoding="utf-8").count("m.impl(") for path in sources)
    for key, level in (("backend-stubs-compile", "-O2"), ("backend-stubs-compile-O0", "-O0")):
        usages = [_compile(context, torch, path, (standard, level)) for path in sources]
        seconds = sum(usage.cpu_s for usage in usages)
        each = f"{1000 * seconds / registrations:.0f} CPU-ms each"
        yield Measurement(
            key=key,
            value=seconds,
            note=f"{registrations} registrations at {level}, {each}",
            detail={"registrations": registrations, "files": [usage.detail() for usage in usages]},
        )


def _median(key: str, usages: Sequence[CommandCost]) -> Measurement:
    return Measurement(
        key=key,
        value=statistics.median(usage.cpu_s for usage in usages),
        note=usages[0].note(),
        detail={"rounds": [usage.detail() for usage in usages]},
    )


def _compile(context: Context, torch: Torch, source: Path, options: Sequence[str]) -> CommandCost:
    command = [os.environ.get("CXX", "c++"), *options, "-fPIC", "-c", str(source)]
    command += ["-isystem", str(torch.torch / "include"), "-o", str(source.with_suffix(".o"))]
    return context.measured(command, "stubs-compile.log")


def _backend(functions: NativeFunctions) -> str:
    """The YAML of a backend for overloads that the CPU has a kernel for, evenly picked."""
    (cpu,) = (index for key, index in functions.backend_indices.items() if str(key) == "CPU")
    names = sorted(name for name, each in functions.by_name.items() if cpu.has_kernel(each))
    supported = [names[index * len(names) // OPERATORS] for index in range(OPERATORS)]
    return yaml.safe_dump(
        {"backend": "PrivateUse1", "cpp_namespace": "demo", "supported": supported}
    )
