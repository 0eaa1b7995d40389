"""What the compiled files of two runs' wheels export: a symbol that is removed breaks programs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from ci.facts.compiled_files import exported_symbols
from ci.facts.rebuilt import kept_file
from ci.model.results import Distribution, PlatformResult
from ci.util.text import counted, join_names


@dataclass(frozen=True, kw_only=True)
class WheelPair:
    """An earlier and a later wheel of one project, which are different files."""

    name: str
    """That of the later wheel."""
    before: Path
    after: Path


@dataclass(frozen=True, kw_only=True)
class SymbolChanges:
    """The exported symbols, mangled, that differ between two wheels."""

    name: str
    """That of the later wheel."""
    removed: tuple[str, ...]
    added: tuple[str, ...]

    def __str__(self) -> str:
        gained = f"{counted(len(self.added), 'exported symbol')} added"
        if not self.removed:
            return f"{self.name}: {gained}, none removed"
        lost = f"{counted(len(self.removed), 'exported symbol')} removed, which breaks programs"
        return f"{self.name}: {lost}: {join_names(self.removed)}; {len(self.added):,} added"


def symbol_changes(pair: WheelPair) -> SymbolChanges | None:
    """Compare two wheels; ``None``: what one of them exports is unknown."""
    then, now = exported_symbols(pair.before), exported_symbols(pair.after)
    if then is None or now is None:
        return None
    removed, added = tuple(sorted(then - now)), tuple(sorted(now - then))
    return SymbolChanges(name=pair.name, removed=removed, added=added)


def changed_wheels(
    before: PlatformResult, after: PlatformResult, folders: Sequence[Path | None]
) -> Iterator[WheelPair]:
    """Yield the wheels of each project of which both runs kept one.

    ``folders`` are those of their ``results.json``.
    """
    earlier = _wheels(before)
    for project, wheels in _wheels(after).items():
        older = earlier.get(project, ())
        if len(older) == len(wheels) == 1 and older[0].sha256 != wheels[0].sha256:
            then, now = map(kept_file, folders, (*older, *wheels))
            if then and now:
                yield WheelPair(name=wheels[0].name, before=then, after=now)


@dataclass(frozen=True, kw_only=True)
class LostSymbols:
    """What a release no longer exports."""

    removed: tuple[str, ...]
    """Symbols, mangled, that only the earlier wheels export."""
    gaps: tuple[str, ...]
    """Why this is not known of all wheels."""


def lost_symbols(
    before: PlatformResult, after: PlatformResult, folders: Sequence[Path]
) -> LostSymbols:
    """Compare all wheels of a release with those of the last one. What is missing is a gap."""
    earlier, later = _wheels(before), _wheels(after)
    removed: set[str] = set()
    gaps = [] if earlier else ["the last release kept no wheel"]
    for project, wheels in earlier.items():
        pairs = wheels, later.get(project, [])
        if faults := [
            f"{len(it)} wheels of {project}, expected one" for it in pairs if len(it) != 1
        ]:
            gaps += faults
            continue
        (then,), (now,) = pairs
        if then.sha256 == now.sha256:
            continue
        found = [*map(_symbols, folders, (then, now))]
        gaps += [it for it in found if isinstance(it, str)]
        old, new = found
        if not isinstance(old, str) and not isinstance(new, str):
            removed |= old - new
    return LostSymbols(removed=tuple(sorted(removed)), gaps=tuple(gaps))


def _symbols(folder: Path, wheel: Distribution) -> frozenset[str] | str:
    """What a wheel exports, or why that is unknown."""
    path = kept_file(folder, wheel)
    if path is None or not path.is_file():
        return f"{wheel.name} is not in {folder}"
    with path.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != wheel.sha256:
            return f"{path} is not the file that was tested"
    found = exported_symbols(path)
    return f"the compiled files of {path} cannot be read" if found is None else found


def _wheels(result: PlatformResult) -> Mapping[str, Sequence[Distribution]]:
    """The wheels of each project: those that were installed, else all of them."""
    found: dict[str, list[Distribution]] = {}
    for it in result.distributions:
        try:
            found.setdefault(parse_wheel_filename(it.name)[0], []).append(it)
        except InvalidWheelFilename:
            continue
    return {name: [it for it in wheels if it.installed] or wheels for name, wheels in found.items()}
