"""Updates an output folder from ``src/triton/ops``."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from codegen.errors import GenerationError, counted, quote, suggestion
from codegen.output import SyncResult, check_up_to_date, digest_of, synchronize
from codegen.triton.compiler import Toolchain, compile_all, find_toolchain, jobs_of
from codegen.triton.spec import OPERATORS, Source, find_sources, read_data_types, read_plan

_CODEGEN = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, kw_only=True)
class Request:
    """The targets and operators to generate, and the tools to use."""

    targets: tuple[int, ...]
    workers: int
    cache: Path
    python: str = sys.executable
    operators: Path = OPERATORS
    without: frozenset[str] = frozenset()
    others: frozenset[str] = frozenset()
    """Operators without a Triton kernel, which ``without`` may also name: CMake does so."""

    def sources(self) -> list[Source]:
        """The operators to generate; raises ``GenerationError`` for an unknown name."""
        found = find_sources(self.operators)
        known = [source.name for source in found]
        if unknown := sorted(self.without.difference(known, self.others)):
            findings = (
                f"--without: got {quote(name)}, which is not an operator; expected some of "
                f"{', '.join(known)}{suggestion(name, known)}"
                for name in unknown
            )
            raise GenerationError("\n".join(findings))
        return [source for source in found if source.name not in self.without]


def generate(request: Request, folder: Path, *, dry_run: bool = False) -> SyncResult:
    """Compile the variants that changed. If the folder is up to date, no kernel is read."""
    sources = request.sources()
    toolchain = find_toolchain(request.python)
    digest = digest_of(_inputs(request, sources, toolchain))
    if outcome := check_up_to_date(folder, digest):
        return outcome
    from codegen.triton.emit import render

    plans = [read_plan(source, request.targets) for source in sources]
    jobs = jobs_of(plans)
    compiled = compile_all(jobs, toolchain, folder=request.cache, workers=request.workers)
    summary = (
        f"Triton {toolchain.version}: {counted(len(plans), 'operator')}, "
        f"{counted(len(jobs), 'kernel')} for {_format_targets(request.targets)}"
    )
    files = render(plans, compiled.kernels, toolchain, read_data_types())
    outcome = synchronize(files, folder, inputs=digest, summary=summary, dry_run=dry_run)
    # Only in the result of this run, not in the manifest.
    summary += f", {compiled.fresh} compiled"
    return replace(outcome, summary=summary, notes=compiled.notes)


def _inputs(request: Request, sources: Sequence[Source], toolchain: Toolchain) -> Iterator[bytes]:
    texts = (toolchain.version, toolchain.assemblers, _format_targets(request.targets))
    yield from map(str.encode, texts)
    generators = [*_CODEGEN.glob("*.py"), *(_CODEGEN / "triton").glob("*.py")]
    templates = (_CODEGEN / "templates" / "triton").glob("*.j2")
    for path in sorted((*generators, *templates)):
        yield path.read_bytes()
    for source in sources:
        yield from (source.name.encode(), source.build.read_bytes())
    # Of all operators, because one can use the kernels of another.
    for path in sorted(request.operators.glob("*/kernel.py")):
        yield path.read_bytes()


def _format_targets(targets: Sequence[int]) -> str:
    return ", ".join(f"sm_{target}" for target in targets)
