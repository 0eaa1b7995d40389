"""The budgets of the library: sizes and costs of its build that a change must not exceed unseen.

``nox -s machines -- --budgets`` checks them on the library that it builds. ``budgets.yaml`` has the
values. Counts are the same on every machine. Costs are ratios to what torch's own header, or its
import, costs on the same machine; they vary by a tenth, and more on a busy machine.
"""

from __future__ import annotations

import json
import re
import resource
import shutil
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from bench.compilers import compile_unit, read_records, recording
from bench.context import ROOT, without_compiler_cache
from bench.parts.calls import import_times
from ci.plan.load import load_model
from ci.util.process import run

FILE = ROOT / "bench" / "budgets.yaml"
COUNT_MARGIN, COST_MARGIN = 0.05, 0.40
IMPORTS = 5  # processes; each imports torch first
# The objects that WITH_CPU_KERNELS=OFF does not compile.
_CPU_KERNELS = re.compile(r"infini_ops\.dir/(cpu/|Unity/unity_cpu_)")


class Figures(BaseModel):
    """What was measured, or its budget: counts are integers, costs are not."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    generated_lines: int = Field(gt=0, description="lines of generated C++")
    translation_units: int = Field(gt=0, description="translation units")
    wheel_kb: int = Field(gt=0, description="size of the wheel in kB, without its RECORD")
    build_units: float = Field(gt=0, description="cold build, in compilations of torch/torch.h")
    build_units_without_cpu_kernels: float = Field(
        gt=0, description="the same without the objects of the CPU's kernels"
    )
    import_ratio: float = Field(
        gt=0, description="`import infini.ops` after torch, to `import torch`, in CPU-s"
    )


@dataclass(frozen=True, kw_only=True)
class Library:
    """A library that was built: the build's folder, and an environment in which it is imported."""

    build_dir: Path
    environment: Mapping[str, str]


def load_budgets(path: Path = FILE) -> Figures:
    """Load the budgets; raises ``ConfigError`` with all findings."""
    return load_model(path, Figures, remedy="Check out the file again: git checkout bench.")


def measure(scratch: Path, build: Callable[[Mapping[str, str]], Library]) -> Figures:
    """Build the library, and measure it.

    Args:
        scratch: an empty folder.
        build: builds everything in an environment with these variables added, from scratch.
    """
    # Raises if a compiler cache is part of the compiler's command.
    uncached = {"CCACHE_DISABLE": without_compiler_cache()["CCACHE_DISABLE"]}
    records = scratch / "compilers.jsonl"
    before, used = compile_unit(scratch), _children_cpu_s()
    library = build(uncached | recording(records))
    used = _children_cpu_s() - used
    unit = statistics.median(before + compile_unit(scratch))
    steps = read_records(records, library.build_dir)
    kernels = sum(step["cpu_s"] for step in steps if _CPU_KERNELS.search(step["output"]))
    generated = (library.build_dir / "generated").rglob("*.*")
    sources = [path for path in generated if path.suffix in (".cc", ".h")]
    return Figures(
        generated_lines=sum(path.read_bytes().count(b"\n") for path in sources),
        translation_units=len(
            json.loads((library.build_dir / "compile_commands.json").read_text())
        ),
        wheel_kb=round(_wheel_bytes(library.build_dir, scratch) / 1e3),
        build_units=used / unit,
        build_units_without_cpu_kernels=(used - kernels) / unit,
        import_ratio=statistics.median(
            times.cpu_s / times.torch_cpu_s for times in import_times(library.environment, IMPORTS)
        ),
    )


def _wheel_bytes(build_dir: Path, scratch: Path) -> int:
    """The size of the installed files, stripped and compressed as in a wheel."""
    package = scratch / "wheel" / "infini" / "ops"
    run(["cmake", "--install", str(build_dir), "--strip", "--prefix", str(package)])
    python = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "src" / "infini" / "ops", package, dirs_exist_ok=True, ignore=python)
    archive = shutil.make_archive(str(scratch / "wheel"), "zip", scratch / "wheel")
    return Path(archive).stat().st_size


def _children_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def table(measured: Figures, budgets: Figures) -> Iterator[str]:
    """Yield a Markdown table of all figures."""
    yield "| What | Measured | Budget | Fails beyond |"
    yield "|---|---:|---:|---:|"
    for name, field in Figures.model_fields.items():
        got, budget = getattr(measured, name), getattr(budgets, name)
        limit = _format(_limit(budget))
        yield f"| {field.description} | {_format(got)} | {_format(budget)} | {limit} |"


def excesses(measured: Figures, budgets: Figures) -> Iterator[str]:
    """Yield an error message for each figure that exceeds its budget by more than its margin."""
    for name, field in Figures.model_fields.items():
        got, budget = getattr(measured, name), getattr(budgets, name)
        if got > _limit(budget):
            yield (
                f"bench/budgets.yaml: {name}: got {_format(got)}, expected at most "
                f"{_format(_limit(budget))}, which is the budget of {_format(budget)} and "
                f"{_margin(budget):.0%}: {field.description}. Undo what added it. If the "
                f"library is worth the cost, set `{name}: {_format(got)}` there, and give the "
                "reason in the commit."
            )


def _margin(budget: float) -> float:
    return COUNT_MARGIN if isinstance(budget, int) else COST_MARGIN


def _limit(budget: float) -> float:
    limit = budget * (1 + _margin(budget))
    return int(limit) if isinstance(budget, int) else limit


def _format(figure: float) -> str:
    return str(figure) if isinstance(figure, int) else f"{figure:.3g}"
