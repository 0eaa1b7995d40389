"""The vendor's stack under the project: its SDK, and the libraries that the project is bound to."""

from __future__ import annotations

import hashlib
import json
import pkgutil
import re
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any, Iterable, Iterator, Mapping, Sequence

from ci.agent.machine import RUN_PROGRAM, tool_output
from ci.agent.user import StageUser
from ci.protocol.agent_files import SYMBOLS
from ci.util.lines import parse_object

# What SDKs have in their folder: CUDA's version.json, Ascend's version.info, MetaX's Version.txt.
_VERSION_FILE = re.compile(r"version\.(json|txt|cfg|info)", re.IGNORECASE)
LARGEST_VERSION_FILE = 1 << 16  # bytes; CUDA's has 3,000
MOST_VERSIONS = 50
MOST_LIBRARIES = 200
LONGEST = 200  # characters
FOLDERS_ABOVE = 3  # of a compiler: bin, its part of the SDK, the SDK


def sdk_versions(compiler: str | None, variables: Mapping[str, str]) -> dict[str, str]:
    """Return the versions that the SDK of a device compiler states, in the files beside it."""
    found = compiler and shutil.which(compiler, path=variables.get("PATH"))
    versions: dict[str, str] = {}
    for folder in [*Path(found).resolve().parents][1:FOLDERS_ABOVE] if found else ():
        with suppress(OSError):
            for path in sorted(folder.iterdir()):
                if _VERSION_FILE.fullmatch(path.name) and path.is_file():
                    with path.open(errors="replace") as file:
                        versions.update(_versions(path.name, file.read(LARGEST_VERSION_FILE)))
        if versions:
            break
    return dict(list(versions.items())[:MOST_VERSIONS])


def _versions(name: str, text: str) -> Iterator[tuple[str, str]]:
    """Yield each part of an SDK with its version; of other forms than CUDA's, the first line."""
    try:
        parts: Iterable[tuple[str, object]] = parse_object(text).items()
    except ValueError:
        parts = ()
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        if lines:
            yield name, lines[0][:LONGEST]
    for part, facts in parts:
        version = facts.get("version") if isinstance(facts, dict) else facts
        if isinstance(version, str):
            yield part[:LONGEST], version[:LONGEST]


def bound_libraries(
    variables: Mapping[str, str],
    workspace: Path,
    results: Path,
    given: Sequence[str] = (),
    user: StageUser | None = None,
) -> dict[str, Any]:
    """Return the libraries that the installed project is bound to, and write their symbols.

    Their names are too long for a description: it has their number and a digest of them.
    """
    probe = pkgutil.get_data(__package__ or "", "library_probe.py") or b""
    command = ("python3", "-c", RUN_PROGRAM, probe.decode(), *given)
    try:
        found = parse_object(tool_output(command, variables, workspace, user) or "")
    except ValueError:  # its process died, or printed something else
        return {}
    known = {str(name)[:LONGEST]: it for name, it in found.items() if isinstance(it, dict)}
    symbols = {name: _texts(it.get("symbols")) for name, it in known.items()}
    if symbols:  # something is compiled
        text = json.dumps(symbols, indent=1) + "\n"
        with suppress(OSError):  # a full disk
            (results / SYMBOLS).write_text(text, encoding="utf-8")
    described = {name: _described(it, symbols[name]) for name, it in known.items()}
    return dict(list(described.items())[:MOST_LIBRARIES])


def _described(library: Mapping[str, object], symbols: Sequence[str]) -> dict[str, object]:
    facts = {name: library.get(name) for name in ("file", "build_id", "sha256")}
    known = {name: it[:LONGEST] for name, it in facts.items() if isinstance(it, str)}
    digest = hashlib.sha256("\n".join(symbols).encode()).hexdigest()
    return {**known, "symbols": len(symbols), "symbols_sha256": digest}


def _texts(found: object) -> list[str]:
    return sorted(it for it in found if isinstance(it, str)) if isinstance(found, list) else []
