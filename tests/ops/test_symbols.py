"""What the built library takes from other libraries, and gives to them.

A compiler can link libstdc++ statically, beside the shared one of torch. A symbol that both have
then belongs to the first one that is loaded, and an object of one copy reaches code of the other.
Iostreams and locales do not survive this. So the library uses none, and exports only its own.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import infini.ops

PACKAGE = infini.ops.include_dir().parent
LIBRARIES = sorted(PACKAGE.glob("*.so"))
SYMTAB, DYNSYM = 2, 11  # types of sections
LOCAL, UNIQUE = 0, 10  # bindings of symbols
# In mangled names: `So` is std::ostream.
STREAMS = re.compile(
    r"[io]stream|stringstream|streambuf|stringbuf|basic_ios|ios_base|6locale|5regex|^_ZNK?So|RK?So"
)
OWN = re.compile(r"_ZNK?6infini3ops")  # infini::ops::
STREAM_HEADER = re.compile(
    r"#include <(iostream|istream|ostream|sstream|fstream|iomanip|locale|regex)>"
)


class Symbol(NamedTuple):
    name: str
    binding: int
    is_defined: bool
    is_dynamic: bool


def symbols(path: Path) -> Iterator[Symbol]:
    """Reads the symbols of a library of 64 bits, little-endian; a stripped one has less."""
    data = path.read_bytes()
    (start,) = struct.unpack_from("<Q", data, 0x28)
    size, count = struct.unpack_from("<HH", data, 0x3A)
    table = data[start : start + size * count]
    sections = list(struct.iter_unpack("<IIQQQQIIQQ", table))
    for _, type_, _, _, offset, length, strings, *_ in sections:
        if type_ not in (SYMTAB, DYNSYM):
            continue
        names = sections[strings][4]
        rows = struct.iter_unpack("<IBBHQQ", data[offset : offset + length])
        for name, info, _, section, *_ in rows:
            end = data.index(b"\0", names + name)
            text = data[names + name : end].decode()
            yield Symbol(text, info >> 4, section != 0, type_ == DYNSYM)


def exported(path: Path) -> list[Symbol]:
    found = [symbol for symbol in symbols(path) if symbol.is_dynamic and symbol.is_defined]
    return [symbol for symbol in found if symbol.binding != LOCAL]


def test_the_library_and_the_module_are_read() -> None:
    assert [path.name.partition(".")[0] for path in LIBRARIES] == ["_core", "libinfini_ops"]
    names = {symbol.name for path in LIBRARIES for symbol in symbols(path)}
    assert {"PyInit__core", "_ZN6infini3ops8LastCallEv"} <= names


@pytest.mark.parametrize("library", LIBRARIES, ids=lambda path: path.name.partition(".")[0])
class TestSymbols:
    def test_there_are_no_streams_and_locales(self, library: Path) -> None:
        found = sorted({symbol.name for symbol in symbols(library) if STREAMS.search(symbol.name)})
        assert not found

    def test_only_its_own_are_exported(self, library: Path) -> None:
        names = [symbol.name for symbol in exported(library)]
        foreign = [name for name in names if not OWN.match(name) and name != "PyInit__core"]
        assert not foreign

    def test_no_folder_of_packages_is_searched_by_its_path(self, library: Path) -> None:
        """If it is a temporary one, another user can create it again, with a torch of their own."""
        (path,) = re.findall(rb"\$ORIGIN[^\0]*", library.read_bytes())
        absolute = [it for it in path.decode().split(":") if not it.startswith("$ORIGIN")]
        assert not [it for it in absolute if "-packages/" in it]

    def test_none_is_unique_in_the_process(self, library: Path) -> None:
        """Two libraries with such a symbol share it, also if they are loaded apart."""
        assert not [symbol.name for symbol in exported(library) if symbol.binding == UNIQUE]


def test_the_headers_include_no_streams() -> None:
    headers = list(infini.ops.include_dir().rglob("*.h"))
    assert headers
    assert not [str(path) for path in headers if STREAM_HEADER.search(path.read_text())]
