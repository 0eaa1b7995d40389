"""Wheels and source distributions that two runs built from one commit: are they the same files?"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ci.model.results import Distribution, PlatformResult
from ci.util.text import join_names


@dataclass(frozen=True, kw_only=True)
class RebuiltFile:
    """A file that both runs built."""

    name: str
    is_same: bool
    differing: tuple[str, ...] | None = None
    """Members whose content differs; empty: only dates, modes or the order of members.
    ``None``: unknown, as not both files are here."""

    def __str__(self) -> str:
        if self.is_same:
            return f"{self.name} is the same file in both runs"
        if self.differing is None:
            return f"{self.name} is another file in each run"
        what = join_names(self.differing) or "the dates, modes or order of its members"
        return f"{self.name} differs in {what}"


def rebuilt_files(
    before: PlatformResult, after: PlatformResult, folders: Sequence[Path | None]
) -> Iterator[RebuiltFile]:
    """Yield the files that both runs built.

    ``folders`` are those of their ``results.json``; ``None``: what the files contain is unknown.
    """
    earlier = _built(before)
    for name, file in _built(after).items():
        if name in earlier:
            is_same = file.sha256 == earlier[name].sha256
            first, second = map(kept_file, folders, (earlier[name], file))
            members = None
            if first and second and not is_same:
                members = differing_members(first, second)
            yield RebuiltFile(name=name, is_same=is_same, differing=members)


def _built(result: PlatformResult) -> Mapping[str, Distribution]:
    return {it.name: it for it in result.distributions if not it.given}


def kept_file(folder: Path | None, file: Distribution) -> Path | None:
    """The file in the folder of a run; ``None`` for a made-up path that leads out of it."""
    place = PurePosixPath(file.path or "..")
    is_within = not place.is_absolute() and ".." not in place.parts
    return folder / place if folder and is_within else None


def differing_members(first: Path, second: Path) -> tuple[str, ...] | None:
    """Return the members of two wheels that differ in content; ``None``: one cannot be read."""
    contents = []
    for path in (first, second):
        try:
            with zipfile.ZipFile(path) as archive:
                contents.append({it.filename: (it.CRC, it.file_size) for it in archive.infolist()})
        except (OSError, ValueError, zipfile.BadZipFile):
            return None
    then, now = contents
    return tuple(sorted(name for name in {*then, *now} if then.get(name) != now.get(name)))
