"""Chooses the faults to plant and their sites, by a seed."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from codegen.aten import find_torch, load_schemas
from codegen.inputs import Inputs
from codegen.native import read_bases, read_registry
from codegen.selection import choose_operators
from codegen.translate import make_library
from tools.mutants.drawn import load_draw
from tools.mutants.faults import FAULTS, Fault, PlantingError, Site, Sources

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One planted fault: the files that have it, by path relative to the tree."""

    fault: str
    site: Site
    equivalent: str | None = None
    files: Mapping[str, str]
    originals: Mapping[str, str]

    @property
    def names(self) -> tuple[str, ...]:
        """The names that mark a test as one about the mutated operator; empty: all tests are."""
        operator = self.site.operator
        return (self.site.subject, operator.name, operator.class_name) if operator else ()

    def diff(self) -> str:
        """The exact change."""
        lines: list[str] = []
        for path, text in self.files.items():
            old = self.originals[path].splitlines(keepends=True)
            new = text.splitlines(keepends=True)
            lines += difflib.unified_diff(old, new, path, path, n=0)
        return "".join(lines)


@cache
def read_sources(root: Path = ROOT) -> Sources:
    """Read all sources that get faults, and generate code from the installed torch."""
    # Imported here: it imports torch, and each process that collects the tests imports this module.
    if TYPE_CHECKING:  # by its name within the suite
        from samples import load
    else:
        from tests.ops.samples import load

    inputs = Inputs(
        torch=find_torch(),
        selection=root / "codegen" / "torch_ops.yaml",
        variable="",
        base_dir=root / "src" / "base",
    )
    schemas = load_schemas(inputs.torch)
    bases = read_bases(inputs.base_dir)
    native = [path.relative_to(root) for path in (root / "src" / "cpu").glob("*.cc")]
    registry = read_registry(native, bases, None, root)
    return Sources(
        root=root,
        library=make_library(schemas, choose_operators(inputs, schemas), bases, registry.operators),
        hand_written=inputs.hand_written_bases(),
        sampled=frozenset(load().samples),
    )


def plan(sources: Sources, seed: int, faults: Sequence[Fault]) -> list[Mutant]:
    """Return one mutant for each fault; the seed chooses its site."""
    mutants = [make_mutant(sources, it.name, choose_site(sources, it, seed)) for it in faults]
    return [
        replace(mutant, equivalent=fault.equivalent)
        for fault, mutant in zip(faults, mutants, strict=True)
    ]


def all_faults() -> tuple[Fault, ...]:
    """Return the faults that people thought of, and those that were drawn."""
    return (*FAULTS, *load_draw().faults())


def choose_site(sources: Sources, fault: Fault, seed: int) -> Site:
    """Choose a site by fault and seed, independent of the other faults."""
    sites = list(fault.sites(sources))
    if not sites:
        raise PlantingError(f"{fault.name}: found no site. Update tools/mutants/faults.py.")
    random = Random(f"{seed} {fault.name}")  # noqa: S311 - reproducible, not secret
    while True:
        site = random.choice(sites)
        # A mutant whose base contradicts its table ends the process that loads it.
        if site.operator is None or site.operator.name not in sources.hand_written:
            return site


def make_mutant(sources: Sources, fault: str, site: Site) -> Mutant:
    """Plant a fault; raise ``PlantingError`` if it changes nothing."""
    files = site.plant()
    originals = {path: _original(sources, path) for path in files}
    if not any(files[path] != originals[path] for path in files):
        raise PlantingError(f"{fault} in {site.subject} changes nothing: {site.what}")
    return Mutant(fault=fault, site=site, files=files, originals=originals)


def _original(sources: Sources, path: str) -> str:
    _, is_generated, name = path.partition("build/generated/")
    if is_generated:
        return sources.generated[name]
    return (sources.root / path).read_text(encoding="utf-8")
