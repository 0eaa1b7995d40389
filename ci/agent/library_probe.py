"""Print which libraries the compiled files of the project in the current folder are bound to.

The agent passes this text to the Python of the stages. It imports the installed extension modules,
as the tests did, and asks the loader of the system in which file it finds each symbol that they
need. So what it prints is no reading of names: it is what a call reaches on this machine.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import mmap
import os
import struct
import sys
from contextlib import suppress
from importlib import import_module
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.metadata import Distribution, distributions
from itertools import islice
from typing import Any, Iterable, Iterator, NamedTuple, Sequence
from urllib.parse import unquote

MOST_FILES = 100  # compiled ones of the project
MOST_SYMBOLS = 100_000  # of one file
DYNAMIC_SYMBOLS, NOTES, NEEDED_VERSIONS, VERSIONS = 11, 7, 0x6FFFFFFE, 0x6FFFFFFF  # of sections
GNU_BUILD_ID = b"GNU\0", 3
UNDEFINED = 0
SYMBOL_SIZE = 24  # bytes
VERSION_NUMBER = 0x7FFF  # the other bit hides a symbol
ELF_64_LITTLE = b"\x7fELF\x02\x01"


class Section(NamedTuple):
    kind: int
    offset: int
    size: int
    link: int
    """Of symbols, the section with their names."""


class Place(ctypes.Structure):
    """What ``dladdr`` returns."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def main() -> None:
    """Print one object of JSON; modules that are imported print elsewhere."""
    printed = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    own = [it for it in distributions() if is_tested(it, sys.argv[2:])]
    found = bindings([*islice(compiled_files(own), MOST_FILES)])
    with os.fdopen(printed, "w") as file:
        json.dump(found, file)
        file.flush()
        os._exit(0)  # what a module does at its end does not count


def is_tested(entry: Distribution, given: Sequence[str]) -> bool:
    """Return whether it was installed from the current folder, or from a given file."""
    with suppress(Exception):  # any tool may have written the metadata
        origin = json.loads(entry.read_text("direct_url.json") or "{}")
        scheme, is_file, path = unquote(origin.get("url", "")).partition("file://")
        path, here = os.path.realpath(path), os.path.realpath(".")
        is_own = f"{path}/".startswith(f"{here}/") or path in map(os.path.realpath, given)
        return bool(is_file) and not scheme and is_own
    return False


def compiled_files(entries: Iterable[Distribution]) -> Iterator[tuple[str, str]]:
    """Yield the path of each compiled file, with the name of its module, if it is one."""
    for entry in entries:
        for file in entry.files or ():
            name = str(file)
            if name.endswith(".so") or ".so." in name:
                suffix = next((it for it in EXTENSION_SUFFIXES if name.endswith(it)), None)
                module = name[: -len(suffix)].replace("/", ".") if suffix else ""
                yield os.path.realpath(str(entry.locate_file(file))), module


def bindings(files: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Return each library with the symbols that the files need of it."""
    for _, module in files:
        with suppress(Exception, SystemExit):  # a file that is no module is loaded below
            import_module(module)
    libraries: dict[str, dict[str, Any]] = {}
    own = {path for path, _ in files}
    for path, _ in files:
        with suppress(Exception):  # it is damaged, or cannot be loaded: nothing is claimed
            library = ctypes.CDLL(path)
            for symbol, shown in list(undefined_symbols(path)):
                provider = file_of(library, symbol)
                if provider and os.path.realpath(provider) not in own:
                    name = os.path.basename(provider)
                    found = libraries.setdefault(name, {"path": provider, "symbols": set()})
                    found["symbols"].add(shown)
    return {name: described(**found) for name, found in sorted(libraries.items())}


def described(path: str, symbols: set[str]) -> dict[str, Any]:
    """Return a library: its file, what identifies that, and the symbols that are needed."""
    real = os.path.realpath(path)
    facts: dict[str, Any] = {"file": os.path.basename(real), "symbols": sorted(symbols)}
    with suppress(Exception):
        identity = build_id(real)
        facts.update({"build_id": identity} if identity else {"sha256": digest_of(real)})
    return facts


def file_of(library: ctypes.CDLL, symbol: str) -> str | None:
    """Return the file in which the loader finds a symbol for a library."""
    process = ctypes.CDLL(None)
    process.dlsym.restype = ctypes.c_void_p
    process.dlsym.argtypes = (ctypes.c_void_p, ctypes.c_char_p)
    process.dladdr.argtypes = (ctypes.c_void_p, ctypes.POINTER(Place))
    for handle in (None, library._handle):  # the process, with LD_PRELOAD; then what it needs
        address = process.dlsym(handle, symbol.encode())
        place = Place()
        if address and process.dladdr(address, ctypes.byref(place)) and place.file:
            return os.fsdecode(place.file)
    return None


def undefined_symbols(path: str) -> Iterator[tuple[str, str]]:
    """Yield each symbol that a file needs, and how it is shown.

    It is shown with its version, if it has one: ``memcpy@GLIBC_2.14``.
    """
    with opened(path) as data:
        found = sections(data)
        table = next(it for it in found if it.kind == DYNAMIC_SYMBOLS)
        names = found[table.link].offset
        versions = needed_versions(data, found)
        marks = next((it.offset for it in found if it.kind == VERSIONS), None)
        for number in range(min(table.size // SYMBOL_SIZE, MOST_SYMBOLS)):
            place = table.offset + SYMBOL_SIZE * number
            name, _, _, section = struct.unpack_from("<IBBH", data, place)
            symbol = text_at(data, names + name)
            if section == UNDEFINED and symbol:
                mark = struct.unpack_from("<H", data, marks + 2 * number)[0] if marks else 0
                version = versions.get(mark & VERSION_NUMBER)
                yield symbol, f"{symbol}@{version}" if version else symbol


def needed_versions(data: mmap.mmap, found: Sequence[Section]) -> dict[int, str]:
    """Return the names of the versions that a file needs, by their numbers."""
    versions = {}
    for section in found:
        if section.kind == NEEDED_VERSIONS:
            place, names = section.offset, found[section.link].offset
            while True:
                _, count, _, first, following = struct.unpack_from("<HHIII", data, place)
                entry = place + first
                for _ in range(count):
                    _, _, number, name, step = struct.unpack_from("<IHHII", data, entry)
                    versions[number & VERSION_NUMBER] = text_at(data, names + name)
                    entry += step
                if not following:
                    break
                place += following
    return versions


def build_id(path: str) -> str | None:
    """Return the identity that the linker gave a file, if it did."""
    with opened(path) as data:
        for section in sections(data):
            place = section.offset
            while section.kind == NOTES and place + 12 <= section.offset + section.size:
                name_size, size, kind = struct.unpack_from("<III", data, place)
                begin = place + 12 + (name_size + 3 & ~3)
                if (data[place + 12 : place + 12 + name_size], kind) == GNU_BUILD_ID:
                    return data[begin : begin + size].hex()
                place = begin + (size + 3 & ~3)
    return None


def digest_of(path: str) -> str:
    with opened(path) as data:
        return hashlib.sha256(data).hexdigest()


def opened(path: str) -> mmap.mmap:
    with open(path, "rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def sections(data: mmap.mmap) -> list[Section]:
    """Return the sections of a 64-bit little-endian ELF file, as all platforms have them."""
    if data[:6] != ELF_64_LITTLE:
        raise ValueError("no such file")
    begin = struct.unpack_from("<Q", data, 40)[0]
    size, count = struct.unpack_from("<HH", data, 58)
    found = []
    for number in range(count):
        _, kind, _, _, offset, length, link = struct.unpack_from(
            "<IIQQQQI", data, begin + size * number
        )
        found.append(Section(kind, offset, length, link))
    return found


def text_at(data: mmap.mmap, place: int) -> str:
    return data[place : data.find(b"\0", place)].decode(errors="replace")


if __name__ == "__main__":
    main()
