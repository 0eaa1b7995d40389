"""What the compiled files of a wheel need from the machine: its glibc, and shared libraries.

The wheel is a stranger's: nothing is loaded, and a file that is damaged needs nothing.
"""

from __future__ import annotations

import re
import shutil
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath
from tempfile import TemporaryFile
from typing import IO

from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection
from elftools.elf.sections import Symbol

from ci.model.fields import LONGEST_NAME, MOST_LIBRARIES

LARGEST_COMPILED = 1 << 30  # bytes, of all compiled files of a wheel
MOST_SYMBOLS = 200_000  # of a file, which take seconds to read
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
        for name, content in _compiled(wheel):
            own.add(PurePosixPath(name).name)
            found = [*_needed(ELFFile(content))]
            versions |= {it for it, is_version in found if is_version}
            libraries |= {it for it, is_version in found if not is_version}
    except Exception:  # whatever pyelftools and zipfile meet in damaged bytes
        return CompiledNeeds()
    names = sorted(it for it in libraries - own if it.isprintable() and len(it) <= LONGEST_NAME)
    newest = max(versions, key=lambda it: [*map(int, it.split("."))], default=None)
    return CompiledNeeds(glibc=newest, libraries=tuple(names[:MOST_LIBRARIES]))


def exported_symbols(wheel: Path) -> frozenset[str] | None:
    """Return what the compiled files of a wheel export; ``None`` if one cannot be read whole."""
    found: set[str] = set()
    try:
        for _, content in _compiled(wheel):
            tables = [*islice(ELFFile(content).iter_sections("SHT_DYNSYM"), MOST_PARTS)]
            if not tables or sum(it.num_symbols() for it in tables) > MOST_SYMBOLS:
                return None
            for table in tables:
                found.update(it.name for it in table.iter_symbols() if _is_exported(it))
    except Exception:  # whatever pyelftools and zipfile meet in damaged bytes
        return None
    return frozenset(found)


@dataclass(frozen=True, kw_only=True)
class CompiledFile:
    """A copy of a compiled file."""

    path: Path
    has_types: bool
    """Whether it has debug information."""


def copy_compiled(wheel: Path, folder: Path) -> Mapping[str, CompiledFile] | None:
    """Copy the compiled files of a wheel to a folder; ``None`` if the wheel cannot be read.

    Returns them by their names in the wheel. In the folder they have numbers, since the names are
    a stranger's.
    """
    found: dict[str, CompiledFile] = {}
    try:
        for name, content in _compiled(wheel):
            has_types = ELFFile(content).has_dwarf_info(strict=True)
            content.seek(0)
            with (folder / str(len(found))).open("xb") as copy:
                shutil.copyfileobj(content, copy)
            found[name] = CompiledFile(path=Path(copy.name), has_types=has_types)
    except Exception:  # whatever pyelftools and zipfile meet in damaged bytes
        return None
    return found


def _is_exported(symbol: Symbol) -> bool:
    is_defined = symbol["st_shndx"] != "SHN_UNDEF"
    return is_defined and bool(symbol.name) and symbol["st_info"]["bind"] != "STB_LOCAL"


def _compiled(wheel: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield the name in the wheel and the content of each compiled file.

    Raises ``ValueError`` if they are larger than ``LARGEST_COMPILED`` together.
    """
    with zipfile.ZipFile(wheel) as archive:
        entries = [it for it in archive.infolist() if _COMPILED.fullmatch(it.filename)]
        if sum(it.file_size for it in entries) > LARGEST_COMPILED:
            raise ValueError(f"{wheel}: its compiled files are too large")
        for entry in entries:
            with archive.open(entry) as packed, TemporaryFile() as file:
                shutil.copyfileobj(packed, file)
                yield entry.filename, file


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
