"""Copy artifacts from the workspace into the results."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

from ci.model.events import ArtifactCut, ArtifactMissing
from ci.model.job import ArtifactPlan

LARGEST_MATCHES = 1 << 26  # bytes of all files that match one pattern


def collect(
    artifact: ArtifactPlan, workspace: Path, results: Path
) -> ArtifactCut | ArtifactMissing | None:
    """Copy an artifact; a folder becomes an archive, and so do the files that match a pattern.

    Returns an event if the artifact is missing or incomplete.
    """
    name, path = artifact.name, artifact.path
    source = workspace / path
    if source.is_file():
        shutil.copyfile(source, results / name)
        return None
    is_pattern = not source.is_dir() and set(path) & set("*?[")
    matches = [match for match in workspace.glob(path) if match.is_file()] if is_pattern else []
    if not matches and not source.is_dir():
        return ArtifactMissing(name=name, path=path)
    taken = _largest(matches)
    # The default format has a second header for every file, for fractions of a second. With it,
    # reading 1,100 small files takes twice as long.
    archive_path = results / f"{name}.tar.gz"
    with tarfile.open(archive_path, "w:gz", format=tarfile.GNU_FORMAT) as archive:
        if not matches:
            archive.add(source, arcname=source.name)
        for match in sorted(taken):
            archive.add(match, arcname=str(match.relative_to(workspace)), recursive=False)
    left_out = len(matches) - len(taken)
    return ArtifactCut(name=name, path=path, left_out=left_out) if left_out else None


def _largest(files: list[Path]) -> list[Path]:
    """Return the largest files that fit; the largest time traces are of the costliest units."""
    taken, room = [], LARGEST_MATCHES
    for path in sorted(files, key=lambda path: (-path.stat().st_size, path)):
        size = path.stat().st_size
        if size <= room:
            taken.append(path)
            room -= size
    return taken
