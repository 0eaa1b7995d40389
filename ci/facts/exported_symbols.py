"""What the compiled files of two runs' wheels export: a symbol that is removed breaks programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from ci.facts.compiled_files import exported_symbols
from ci.facts.rebuilt import kept_file
from ci.model.results import Distribution, PlatformResult
from ci.util.text import counted, join_names


@dataclass(frozen=True, kw_only=True)
class SymbolChanges:
    """The exported symbols of a wheel, mangled, that differ between two runs."""

    name: str
    """The wheel of the later run."""
    removed: tuple[str, ...]
    added: tuple[str, ...]

    def __str__(self) -> str:
        gained = f"{counted(len(self.added), 'exported symbol')} added"
        if not self.removed:
            return f"{self.name}: {gained}, none removed"
        lost = f"{counted(len(self.removed), 'exported symbol')} removed, which breaks programs"
        return f"{self.name}: {lost}: {join_names(self.removed)}; {len(self.added):,} added"


def symbol_changes(
    before: PlatformResult, after: PlatformResult, folders: Sequence[Path | None]
) -> Iterator[SymbolChanges]:
    """Yield the changes of each project of which both runs kept one wheel.

    ``folders`` are those of their ``results.json``. What a file that cannot be read exports is
    unknown, so it has no changes.
    """
    earlier = _wheels(before)
    for project, wheel in _wheels(after).items():
        if project not in earlier or earlier[project].sha256 == wheel.sha256:
            continue
        paths = map(kept_file, folders, (earlier[project], wheel))
        then, now = (exported_symbols(it) if it else None for it in paths)
        if then is not None and now is not None and then != now:
            removed, added = tuple(sorted(then - now)), tuple(sorted(now - then))
            yield SymbolChanges(name=wheel.name, removed=removed, added=added)


def _wheels(result: PlatformResult) -> Mapping[str, Distribution]:
    """The wheel of each project; none of a project with several."""
    found: dict[str, list[Distribution]] = {}
    for it in result.distributions:
        try:
            found.setdefault(parse_wheel_filename(it.name)[0], []).append(it)
        except InvalidWheelFilename:
            continue
    return {project: files[0] for project, files in found.items() if len(files) == 1}
