"""The mutants that universalmutator generated and a seed chose: ``drawn.yaml``.

``nox -s mutants -- --draw SEED`` writes the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict

from ci.plan.load import load_model
from tools.mutants.faults import Fault, PlantingError, Site, Sources

RECORD = Path(__file__).with_name("drawn.yaml")
HEADER = """\
# Mutants that no person chose. `nox -s mutants -- --draw SEED` writes this file: see draw.py. Only
# `equivalent` is written by hand: why no test can detect this mutant.
"""


class Candidate(BaseModel):
    """A line of a source, and the text in its place."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    layer: str
    path: str
    line: int
    old: str
    new: str
    rejected: str | None = None
    """Why the draw went on to the next one; ``None``: it did not."""
    equivalent: str | None = None

    @property
    def key(self) -> tuple[str, str, str]:
        """What identifies it after other lines of the file have changed."""
        return self.path, self.old, self.new

    @property
    def what(self) -> str:
        return f"line {self.line}: {_inline(self.old)} → {_inline(self.new)}"

    def planted(self, text: str) -> str:
        """Return the source with the change; raises ``PlantingError`` if the line is gone."""
        lines = text.split("\n")
        at = [number for number, line in enumerate(lines, 1) if line == self.old]
        if self.line in at:
            at = [self.line]
        if len(at) != 1:
            raise PlantingError(
                f"{self.path}:{self.line}: found this line {len(at)} times elsewhere, "
                f"expected it there or once:\n{self.old}\n"
                f"Replace it with the seed of {RECORD.name}: nox -s mutants -- --draw SEED"
            )
        lines[at[0] - 1] = self.new
        return "\n".join(lines)

    def is_in(self, root: Path) -> bool:
        """Whether the source still has its line."""
        try:
            self.plant(root)
        except (PlantingError, FileNotFoundError):
            return False
        return True

    def plant(self, root: Path) -> Mapping[str, str]:
        return {self.path: self.planted((root / self.path).read_text(encoding="utf-8"))}

    def fault(self, name: str) -> Fault:
        """Return the fault with this mutant as its only site."""

        def sites(sources: Sources) -> Iterator[Site]:
            plant = partial(self.plant, sources.root)
            yield Site(subject=self.path, operator=None, what=self.what, plant=plant)

        return Fault(name=name, sites=sites, equivalent=self.equivalent)


class Draw(BaseModel):
    """How the mutants were drawn, the mutants, and those that were passed over."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    universalmutator: str
    seed: int
    mutants: tuple[Candidate, ...] = ()
    passed_over: tuple[Candidate, ...] = ()

    def faults(self) -> tuple[Fault, ...]:
        """Return one fault for each mutant, named by its layer."""
        numbers: dict[str, int] = {}
        faults = []
        for mutant in self.mutants:
            numbers[mutant.layer] = numbers.get(mutant.layer, 0) + 1
            faults.append(mutant.fault(f"{mutant.layer}-{numbers[mutant.layer]}"))
        return tuple(faults)

    def write(self, path: Path = RECORD) -> None:
        data = self.model_dump(exclude_none=True, mode="json")
        text = yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1000)
        path.write_text(HEADER + text, encoding="utf-8")


def load_draw(path: Path = RECORD) -> Draw:
    """Load the recorded draw; raises ``ConfigError`` with all findings."""
    return load_model(path, Draw, remedy="Draw the mutants: nox -s mutants -- --draw 1")


def _inline(text: str) -> str:
    return f"`{' '.join(text.split())}`"


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)
