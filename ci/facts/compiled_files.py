"""What the compiled files of a wheel need from the machine: its glibc, and shared libraries.

The wheel is a stranger's: nothing is loaded, and a file that is damaged needs nothing.
"""

from __future__ import annotations

import re
import shutil
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath
from tempfile import TemporaryFile

from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

from ci.model.results import LONGEST_NAME, MOST_LIBRARIES

LARGEST_COMPILED = 1 << 30  # bytes, of all compiled files of a wheel
MOST_PARTS = 10_000  # sections of a file, or entries of a section
_COMPILED = re.compile(r".*\.so(\.[0-9.]+)?")
_SYMBOLS = re.compile(r"GLIBC_([0-9]{1,3}(?:\.[0-9]{1,3}){1,2})")


@dataclass(frozen=True, kw_only=True)
class CompiledNeeds:
    """What compiled files need."""

    glibc: str | None = None
    libraries: tuple[str, ...] = ()


def compiled_needs(wheel: Path) -> CompiledNeeds:
    """Read what the compiled files of a wheel need; nothing if it cannot be read."""
    versions: set[str] = set()
    libraries: set[str] = set()
    own: set[str] = set()
    try:
        with zipfile.ZipFile(wheel) as archive:
            room = LARGEST_COMPILED
            for entry in archive.infolist():
                room -= entry.file_size
                if room >= 0 and _COMPILED.fullmatch(entry.filename):
                    own.add(PurePosixPath(entry.filename).name)
                    with archive.open(entry) as packed, TemporaryFile() as file:
                        shutil.copyfileobj(packed, file)
                        found = [*_needed(ELFFile(file))]
                    versions |= {it for it, is_version in found if is_version}
                    libraries |= {it for it, is_version in found if not is_version}
    except Exception:  # whatever pyelftools and zipfile meet in damaged bytes
        return CompiledNeeds()
    names = sorted(it for it in libraries - own if it.isprintable() and len(it) <= LONGEST_NAME)
    newest = max(versions, key=lambda it: [*map(int, it.split("."))], default=None)
    return CompiledNeeds(glibc=newest, libraries=tuple(names[:MOST_LIBRARIES]))


def _needed(file: ELFFile) -> Iterator[tuple[str, bool]]:
    """Yield versions of glibc, with true, and names of libraries, with false."""
    for section in islice(file.iter_sections(), MOST_PARTS):
        if isinstance(section, GNUVerNeedSection):
            for _, versions in islice(section.iter_versions(), MOST_PARTS):
                for version in islice(versions, MOST_PARTS):
                    if match := _SYMBOLS.fullmatch(version.name):
                        yield match[1], True
        elif isinstance(section, DynamicSection):
            for tag in islice(section.iter_tags("DT_NEEDED"), MOST_PARTS):
                yield tag.needed, False
