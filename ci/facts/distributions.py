"""The wheels and source distributions in a platform's results."""

from __future__ import annotations

import csv
import hashlib
import os
import re
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from ci.facts.compiled_files import compiled_needs
from ci.model.plan import GivenDistribution
from ci.model.results import Distribution
from ci.protocol.distributions import KEPT, MOST_DISTRIBUTIONS, is_distribution

LARGEST_RECORD = 1 << 26  # bytes; that of torch has 2 MB
_RECORD = re.compile(r"[^/]+\.dist-info/RECORD")
INSTALLED = "installed_files"  # in the environment that the agent recorded


def kept_files(folder: Path) -> list[Path]:
    """Return the distributions in a platform's folder, by name."""
    kept = folder / KEPT
    if kept.is_symlink() or not kept.is_dir():
        return []
    found = [it for it in kept.iterdir() if is_distribution(it.name)]
    return sorted(it for it in found if it.is_file() and not it.is_symlink())[:MOST_DISTRIBUTIONS]


def read_distributions(
    folder: Path, environment: Mapping[str, JsonValue], given: GivenDistribution | None
) -> tuple[Distribution, ...]:
    """Return the distributions in a platform's folder, whose hashes are computed here.

    One is ``installed`` if the Python of the stages recorded, after the tests, that it installed a
    file with this hash, or files with the hashes in the wheel, as an old pip records no other. None
    of the installed files may have changed since.
    """
    unchanged = [it for it in installed_files(environment) if it.get("altered") == 0]
    installed = {it["sha256"] for it in unchanged}
    records = {it.get("record") for it in unchanged if isinstance(it.get("record"), str)}
    found = []
    for path in kept_files(folder):
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            size = os.fstat(file.fileno()).st_size
        needs = compiled_needs(path)
        found.append(
            Distribution(
                name=path.name,
                sha256=digest,
                size_bytes=size,
                path=f"{folder.name}/{KEPT}/{path.name}",
                installed=digest in installed or _record_digest(path) in records,
                given=given is not None and digest == given.sha256,
                glibc=needs.glibc,
                libraries=needs.libraries,
            )
        )
    return tuple(found)


def _record_digest(wheel: Path) -> str | None:
    """Return what the stages record for an installed wheel; ``None`` if it cannot be read."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            [record] = [it for it in archive.infolist() if _RECORD.fullmatch(it.filename)]
            if record.file_size > LARGEST_RECORD:
                return None
            rows = csv.reader(archive.read(record).decode().splitlines())
            lines = [f"{row[0]},{row[1]}" for row in rows if row[1] and ".data/" not in row[0]]
    except (OSError, ValueError, IndexError, csv.Error, zipfile.BadZipFile, zlib.error):
        return None
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest() if lines else None


def installed_files(environment: Mapping[str, object]) -> list[dict[str, Any]]:
    """Return what was installed from files; the code under test may have written the record."""
    found = environment.get(INSTALLED)
    records = [it for it in found if isinstance(it, dict)] if isinstance(found, list) else []
    return [it for it in records if isinstance(it.get("sha256"), str)]
