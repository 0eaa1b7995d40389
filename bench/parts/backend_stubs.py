"""Stubs of a backend of 500 operators: generating them, and compiling what registers them."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path

import yaml

from bench.context import Context
from bench.rows import Measurement
from bench.usage import Usage
from codegen.aten import NativeFunctions, Torch, find_torch, native_functions

OPERATORS = 500
ROUNDS = 3


def measure(context: Context) -> Iterator[Measurement]:
    """Into an empty folder, the median of three; then every source of the last, one by one."""
    torch = find_torch()
    source = context.scratch / "backend.yaml"
    with native_functions(torch) as functions:
        source.write_text(_backend(functions), encoding="utf-8")
        standard = _standard(functions.torch_version)
    generated: list[Usage] = []
    for index in range(ROUNDS):
        folder = context.scratch / f"stubs-{index}"
        command = [
            *(context.python, "-m", "codegen", "backend-stubs"),
            *("--source-yaml", str(source), "--output-dir", str(folder)),
        ]
        generated.append(context.measured(command, context.environment(), log="stubs.log"))
    yield Measurement(
        key="backend-stubs",
        value=statistics.median(usage.cpu_s for usage in generated),
        note=generated[0].note(),
        detail={"rounds": [usage.detail() for usage in generated]},
    )
    sources = sorted(folder.glob("*.cpp"))
    registrations = sum(path.read_text(encoding="utf-8").count("m.impl(") for path in sources)
    for key, level in (("backend-stubs-compile", "-O2"), ("backend-stubs-compile-O0", "-O0")):
        usages = [_compile(context, torch, path, (standard, level)) for path in sources]
        yield _compiled(key, level, registrations, usages)


def _compiled(key: str, level: str, registrations: int, usages: Sequence[Usage]) -> Measurement:
    seconds = sum(usage.cpu_s for usage in usages)
    return Measurement(
        key=key,
        value=seconds,
        note=f"{registrations} registrations at {level}, "
        f"{1000 * seconds / registrations:.0f} CPU-ms each",
        detail={"registrations": registrations, "files": [usage.detail() for usage in usages]},
    )


def _compile(context: Context, torch: Torch, source: Path, options: Sequence[str]) -> Usage:
    command = [
        *(os.environ.get("CXX", "c++"), *options, "-fPIC", "-c", str(source)),
        *("-isystem", str(torch.torch / "include"), "-o", str(source.with_suffix(".o"))),
    ]
    return context.measured(command, context.environment(), log="stubs-compile.log")


def _standard(torch_version: str) -> str:
    """The one that the headers need: of torch 2.14 and later it is C++20."""
    major, minor, *_ = torch_version.split(".")
    return "-std=c++17" if (int(major), int(minor)) < (2, 14) else "-std=c++20"


def _backend(functions: NativeFunctions) -> str:
    """The YAML of a backend for overloads that the CPU has a kernel for, evenly picked."""
    names = sorted(_with_cpu_kernel(functions))
    supported = [names[index * len(names) // OPERATORS] for index in range(OPERATORS)]
    return yaml.safe_dump(
        {"backend": "PrivateUse1", "cpp_namespace": "demo", "supported": supported}
    )


def _with_cpu_kernel(functions: NativeFunctions) -> Iterator[str]:
    (cpu,) = (index for key, index in functions.backend_indices.items() if str(key) == "CPU")
    for name, function in functions.by_name.items():
        if cpu.has_kernel(function):
            yield name
