"""Where the time of a cold build goes: a build of its own, every compiler call recorded."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.context import ROOT, Context
from bench.errors import MeasurementError
from bench.rows import Measurement, Table
from bench.usage import Usage

LAUNCHER = ROOT / "bench" / "compiler_launcher.py"


def measure(context: Context) -> Iterator[Measurement]:
    """The largest compiler process; behind it what every step of the build takes.

    Leaves the build's ``ninja_log`` beside the results.
    """
    build_dir, records_file = context.scratch / "profile", context.scratch / "compilers.jsonl"
    # Without site and the environment's variables Python starts in 20 ms.
    launcher = ";".join((context.python, "-I", "-S", str(LAUNCHER), str(records_file)))
    environment = context.environment(
        CMAKE_CXX_COMPILER_LAUNCHER=launcher, CMAKE_CXX_LINKER_LAUNCHER=launcher
    )
    command = context.install_command(build_dir=build_dir, target=context.scratch / "profiled")
    usage = context.measured(command, environment, log="profile.log")
    context.output.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(build_dir / ".ninja_log", context.output / "ninja_log")
    records = _read(records_file, (build_dir / ".ninja_log").read_text(encoding="utf-8"))
    largest = max((record for record in records if record["compiles"]), key=_peak)
    yield Measurement(
        key="compiler-memory",
        value=_peak(largest),
        note=_short(largest["output"]),
        detail={"build": usage.detail(), "steps": records},
        tables=(profile_table(records, usage),),
    )


def _read(records_file: Path, ninja_log: str) -> list[dict[str, Any]]:
    """The records of the build's own steps, without what CMake tries the compiler with."""
    if not records_file.exists():
        raise MeasurementError("the build called no compiler through CMAKE_CXX_COMPILER_LAUNCHER")
    outputs = {
        line.split("\t")[3] for line in ninja_log.splitlines() if line and not line.startswith("#")
    }
    records = [json.loads(line) for line in records_file.read_text(encoding="utf-8").splitlines()]
    return [record for record in records if record["output"] in outputs]


def profile_table(records: Sequence[Mapping[str, Any]], usage: Usage) -> Table:
    """CPU-s of every compilation and link, the dearest first, and of all the rest."""
    rows = [
        (_short(record["output"]), f"{record['cpu_s']:.2f}", f"{_peak(record):.0f}")
        for record in sorted(records, key=lambda record: -record["cpu_s"])
    ]
    rest = usage.cpu_s - sum(record["cpu_s"] for record in records)
    totals = [
        ("all else: pip, CMake, the generator", f"{rest:.2f}", ""),
        ("the whole build", f"{usage.cpu_s:.2f}", f"{usage.peak_rss_mb:.0f}"),
    ]
    return Table(
        title="Profile of a cold build, slower by what recording takes",
        columns=("step", "CPU-s", "peak MB"),
        rows=(*rows, *totals),
    )


def _peak(record: Mapping[str, Any]) -> float:
    return float(record["peak_rss_mb"])


def _short(output: str) -> str:
    """ "src/CMakeFiles/infini_ops.dir/core/types.cc.o" as "infini_ops: core/types.cc"."""
    target, separator, source = output.partition(".dir/")
    if not separator:
        return f"link {Path(output).name}"
    _, _, generated = source.partition("generated/")
    return f"{Path(target).name}: {(generated or source).removesuffix('.o')}"
