"""Keeps an output folder equal to the generated files, and detects when it is up to date.

The manifest in the folder contains one digest of all inputs and a digest of each output. If all of
them match, nothing has to be generated. This check needs neither torchgen nor Jinja2: importing and
running them takes most of the time of a generation.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

MANIFEST_NAME = "manifest.json"


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The inputs of an output folder, the messages of its generation, and its files."""

    inputs: str = ""  # a digest
    summary: str = ""
    notes: tuple[str, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)  # relative path -> digest

    def text(self) -> str:
        return json.dumps(asdict(self), indent=1, sort_keys=True) + "\n"


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of ``folder``; a missing or damaged one is empty."""
    try:
        fields = json.loads((folder / MANIFEST_NAME).read_bytes())
        manifest = Manifest(
            inputs=str(fields["inputs"]),
            summary=str(fields["summary"]),
            notes=tuple(map(str, fields["notes"])),
            files={str(name): str(digest) for name, digest in fields["files"].items()},
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return Manifest()
    # A manifest decides which files are removed, so paths outside the folder make it invalid.
    is_inside = all(name[:1] != "/" and ".." not in name.split("/") for name in manifest.files)
    return manifest if is_inside else Manifest()


def digest_of(parts: Iterable[bytes]) -> str:
    """One digest of several inputs. The boundaries between the inputs affect it."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(f"{len(part)}:".encode())
        digest.update(part)
    return digest.hexdigest()


def _digest_of_file(path: Path) -> str | None:
    try:
        return _digest(path.read_bytes())
    except OSError:
        return None


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@dataclass(frozen=True, kw_only=True)
class SyncResult:
    """The result of updating an output folder: messages, and files as relative paths."""

    summary: str
    notes: tuple[str, ...]
    written: tuple[str, ...]
    unchanged: tuple[str, ...]
    removed: tuple[str, ...]


def check_up_to_date(folder: Path, inputs: str) -> SyncResult | None:
    """The result for a ``folder`` that is up to date with ``inputs``; None if it is not."""
    manifest = read_manifest(folder)
    if manifest.inputs != inputs or any(
        _digest_of_file(folder / name) != digest for name, digest in manifest.files.items()
    ):
        return None
    return SyncResult(
        summary=manifest.summary,
        notes=manifest.notes,
        written=(),
        unchanged=tuple(manifest.files),
        removed=(),
    )


def synchronize(
    files: Mapping[str, str],
    folder: Path,
    *,
    inputs: str = "",
    summary: str = "",
    notes: tuple[str, ...] = (),
    dry_run: bool = False,
) -> SyncResult:
    """Make ``folder`` contain ``files`` and their manifest.

    Only files that differ are written, so that build systems see no change in the others. Files of
    an earlier manifest that are no longer generated are removed. All other files in the folder are
    left alone.
    """
    manifest = Manifest(
        inputs=inputs,
        summary=summary,
        notes=notes,
        files={name: _digest(text.encode()) for name, text in files.items()},
    )
    earlier = read_manifest(folder).files
    stale = sorted(name for name in earlier.keys() - files.keys() if (folder / name).is_file())
    changed = [name for name, text in files.items() if differs(folder / name, text)]
    if not dry_run:
        if changed or stale:
            # After an interruption this manifest still lists all files, and the folder is not up to
            # date.
            unfinished = Manifest(files={**earlier, **manifest.files})
            write(folder / MANIFEST_NAME, unfinished.text())
        for name in changed:
            write(folder / name, files[name])
        for name in stale:
            (folder / name).unlink(missing_ok=True)
        if differs(folder / MANIFEST_NAME, manifest.text()):
            write(folder / MANIFEST_NAME, manifest.text())
    return SyncResult(
        summary=summary,
        notes=notes,
        written=tuple(changed),
        unchanged=tuple(sorted(files.keys() - set(changed))),
        removed=tuple(stale),
    )


def differs(path: Path, text: str) -> bool:
    """True if the file does not contain exactly ``text``."""
    return not path.is_file() or path.read_bytes() != text.encode()


def write(path: Path, text: str) -> None:
    """Write ``text`` into the file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_bytes(text.encode())
    partial.replace(path)
