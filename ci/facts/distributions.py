"""The wheels and source distributions in a platform's results."""

from __future__ import annotations

import csv
import hashlib
import os
import re
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from ci.facts.compiled_files import compiled_needs
from ci.model.plan import GivenDistribution
from ci.model.results import Distribution
from ci.protocol.distributions import KEPT, MOST_DISTRIBUTIONS, WHEEL_SUFFIX, is_distribution

LARGEST_RECORD = 1 << 26  # bytes; that of torch has 2 MB
_RECORD = re.compile(r"[^/]+\.dist-info/RECORD")
_WITHOUT_HASH = re.compile(rf"{_RECORD.pattern}(\.jws|\.p7s)?|.*/")  # and folders
_DATA = re.compile(r"[^/]+\.data/((pure|plat)lib/)?")
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
    file with this hash, and none of the installed files has changed since. Of a wheel, it must have
    installed all files, and the wheel must have their hashes.
    """
    unchanged = [it for it in installed_files(environment) if it.get("altered") == 0]
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
                installed=_is_installed(path, digest, unchanged),
                given=given is not None and digest == given.sha256,
                glibc=needs.glibc,
                libraries=needs.libraries,
            )
        )
    return tuple(found)


def _is_installed(path: Path, digest: str, unchanged: Sequence[Mapping[str, Any]]) -> bool:
    if path.suffix != WHEEL_SUFFIX:
        return any(it["sha256"] == digest for it in unchanged)
    record = _record_digest(path)
    of_wheel = [it for it in unchanged if record is not None and it.get("record") == record]
    return any(it["sha256"] in ("", digest) for it in of_wheel)  # an old pip records no hash


def _record_digest(wheel: Path) -> str | None:
    """Return what the stages record for an installed wheel; ``None`` if it does not prove anything.

    That is so if the wheel cannot be read, or its ``RECORD`` lacks the hash of a file.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            [record] = [it for it in archive.infolist() if _RECORD.fullmatch(it.filename)]
            if record.file_size > LARGEST_RECORD:
                return None
            rows = [*csv.reader(archive.read(record).decode().splitlines())]
            hashes = {row[0]: row[1] for row in rows if row[1]}
            names = {it for it in archive.namelist() if not _WITHOUT_HASH.fullmatch(it)}
    except (OSError, ValueError, IndexError, csv.Error, zipfile.BadZipFile, zlib.error):
        return None
    if not names or not names <= hashes.keys():
        return None
    installed = {_installed_path(name): value for name, value in hashes.items()}
    lines = sorted(f"{path},{value}" for path, value in installed.items() if path)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _installed_path(name: str) -> str | None:
    """The path beside the other packages; ``None``: a script, a header or data."""
    folder = _DATA.match(name)
    if folder is None:
        return name
    return name[folder.end() :] if folder[1] else None


def installed_files(environment: Mapping[str, object]) -> list[dict[str, Any]]:
    """Return what was installed from files; the code under test may have written the record."""
    found = environment.get(INSTALLED)
    records = [it for it in found if isinstance(it, dict)] if isinstance(found, list) else []
    return [it for it in records if isinstance(it.get("sha256"), str)]
