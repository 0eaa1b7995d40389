"""Building and installing: cold, with the first allowlist, again, as a wheel, and profiled."""

from __future__ import annotations

import json
import shutil
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import yaml

from bench.compilers import compile_unit, read_records, recording
from bench.context import ROOT, CommandCost, Context, without_compiler_cache
from bench.rows import FigureTable, Measurement, MeasurementError
from codegen.inputs import SELECTION_VARIABLE

COLD = "build"  # folder of the cold build, which a later part reuses


def measure_install(context: Context) -> Iterator[Measurement]:
    """Install all operators of the installed torch, from scratch, with the CPU's kernels or not."""
    before = compile_unit(context.scratch)
    cost = context.install(context.site, context.scratch / COLD)
    site, build_dir = context.scratch / "without-kernels", context.scratch / "without-kernels-build"
    without = context.install(site, build_dir, SKBUILD_CMAKE_DEFINE="WITH_CPU_KERNELS=OFF")
    unit = statistics.median(before + compile_unit(context.scratch))
    yield _measurement("install", cost, f"{len(_operators(context.site))} operators")
    note = f"a unit is {unit:.1f} CPU-s here"
    yield Measurement(key="install-units", value=cost.cpu_s / unit, note=note)
    yield Measurement(key="install-units-without-kernels", value=without.cpu_s / unit)


def measure_first_allowlist(context: Context) -> Iterator[Measurement]:
    """Install the operators of the library's first version, from scratch."""
    site = context.scratch / "first"
    selection = {SELECTION_VARIABLE: str(ROOT / "bench" / "first_allowlist.yaml")}
    cost = context.install(site, context.scratch / "first-build", **selection)
    yield _measurement("first-allowlist", cost, f"{len(_operators(site))} operators")


def measure_rebuild(context: Context) -> Iterator[Measurement]:
    """Build all operators but one, then all, then all again, in one folder."""
    build_dir, site = context.scratch / "rebuild", context.scratch / "rebuilt"
    generated = context.scratch / "names"
    command = [sys.executable, "-m", "codegen", "torch", "--output-dir", str(generated)]
    context.run(command, without_compiler_cache())
    names = sorted(_operators(generated))
    added = names.pop(len(names) // 2)
    selection = context.scratch / "all_but_one.yaml"
    selection.write_text(yaml.safe_dump({"operators": names}), encoding="utf-8")
    context.install(site, build_dir, **{SELECTION_VARIABLE: str(selection)})
    before = _operators(site)
    grown = context.install(site, build_dir)
    if _operators(site) - before != {added}:
        raise MeasurementError(
            f"a build of all operators after one of all but {added} changed the operators by "
            f"{sorted(_operators(site) ^ before)}"
        )
    yield _measurement("rebuild-unchanged", context.install(site, build_dir))
    yield _measurement("rebuild-one-added", grown, f"added {added}")


def measure_wheel(context: Context) -> Iterator[Measurement]:
    """The size of the wheel with all operators."""
    folder = context.scratch / "wheel"
    command = [sys.executable, "-m", "pip", "wheel", ".", "--no-build-isolation", "--no-deps"]
    command += ["--wheel-dir", str(folder), "-C", f"build-dir={context.scratch / COLD}"]
    context.measure_command(command)
    wheel = next(folder.glob("*.whl"))
    yield Measurement(key="wheel", value=wheel.stat().st_size / 1e6, note=wheel.name)


def measure_profile(context: Context) -> Iterator[Measurement]:
    """The largest compiler process, and a table of the cost of every build step.

    Writes the build's ``ninja_log`` beside the results.
    """
    build_dir, records_file = context.scratch / "profile", context.scratch / "compilers.jsonl"
    cost = context.install(context.scratch / "profiled", build_dir, **recording(records_file))
    context.output_dir.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(build_dir / ".ninja_log", context.output_dir / "ninja_log")
    records = read_records(records_file, build_dir)
    compilers = (record for record in records if record["compiles"])
    largest = max(compilers, key=itemgetter("peak_rss_mb"))
    yield Measurement(
        key="compiler-memory",
        value=largest["peak_rss_mb"],
        note=_short(largest["output"]),
        detail={"build": cost.detail(), "steps": records},
        table=profile_table(records, cost),
    )


def _operators(folder: Path) -> set[str]:
    """The operator names in the metadata in a folder of generated files or of a library."""
    (path,) = folder.rglob("torch_ops_metadata.json")
    metadata = json.loads(path.read_text(encoding="utf-8"))
    return {operator["aten_name"] for operator in metadata["ops"]}


def _measurement(key: str, cost: CommandCost, *notes: str) -> Measurement:
    note = "; ".join((*notes, cost.note()))
    return Measurement(key=key, value=cost.cpu_s, note=note, detail=cost.detail())


def profile_table(records: Sequence[Mapping[str, Any]], cost: CommandCost) -> FigureTable:
    """CPU-s of every compilation and link, most expensive first, and of everything else."""
    rows = [
        (_short(record["output"]), f"{record['cpu_s']:.2f}", f"{record['peak_rss_mb']:.0f}")
        for record in sorted(records, key=lambda record: -record["cpu_s"])
    ]
    rest = cost.cpu_s - sum(record["cpu_s"] for record in records)
    totals = [
        ("everything else: pip, CMake, the generator", f"{rest:.2f}", ""),
        ("the whole build", f"{cost.cpu_s:.2f}", f"{cost.peak_rss_mb:.0f}"),
    ]
    return FigureTable(
        title="Profile of a cold build, including the overhead of recording",
        columns=("step", "CPU-s", "peak MB"),
        rows=(*rows, *totals),
    )


def _short(output: str) -> str:
    """ "src/CMakeFiles/infini_ops.dir/core/types.cc.o" as "infini_ops: core/types.cc"."""
    target, separator, source = output.partition(".dir/")
    if not separator:
        return f"link {Path(output).name}"
    _, _, generated = source.partition("generated/")
    return f"{Path(target).name}: {(generated or source).removesuffix('.o')}"
