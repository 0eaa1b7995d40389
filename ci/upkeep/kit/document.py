"""``kit.json``: what a kit is for, and the places of its files."""

from __future__ import annotations

import hashlib
from datetime import datetime
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from ci.errors import UsageError
from ci.util.files import files_below
from ci.util.invocation import PROGRAM_NAME
from ci.util.lines import parse_object

DOCUMENT = "kit.json"
SUMS = "SHA256SUMS"  # of all other files, as sha256sum reads it
RUN = "run"
README = "README.md"
BUNDLE = "sources.bundle"
PROGRAM = "program"
REQUIREMENTS = f"{PROGRAM}/requirements.txt"
WHEELS = "wheels"  # of the program and of the platform, for all Pythons of the kit
REPORT = "report"
# What the other machine writes.
MADE_THERE = ("work", REPORT)
VERSION: Literal[1] = 1  # of the document; other versions are refused


class KitDocument(BaseModel):
    """What a kit is for."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Literal[1]
    project: str
    commit: str | None
    dirty: bool
    platform: str
    created_at: datetime
    machine: str
    pythons: tuple[str, ...]  # versions that the wheels are for: 3.12
    smoke: str | None  # the selection of the first run
    contract: bool  # whether the project has contracts
    measurements: tuple[str, ...]  # its stages that run on request


def read_kit(folder: Path) -> KitDocument:
    """Read the document of a kit; raises ``UsageError`` for another folder."""
    path = folder / DOCUMENT
    remedy = f"Name a folder that `{PROGRAM_NAME} kit` made, and copy all of it."
    try:
        content = parse_object(path.read_text(encoding="utf-8"))
        if (version := content.get("version")) != VERSION:
            remedy = "Use the program that the kit contains: its file `run` does."
            got = f"got a kit of version {version!r:.100}, expected version {VERSION}"
            raise UsageError(f"{path}: {got}", remedy=remedy)
        return KitDocument.model_validate(content)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}", remedy=remedy) from error
    except (ValueError, ValidationError) as error:
        raise UsageError(
            f"{path}: expected the document of a kit: {error}", remedy=remedy
        ) from None


def checksums(folder: Path) -> str:
    """Return the lines of ``SHA256SUMS`` for all files of a kit."""
    lines = []
    for path in files_below(folder):
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        lines.append(f"{digest}  {path.relative_to(folder)}\n")
    return "".join(lines)
