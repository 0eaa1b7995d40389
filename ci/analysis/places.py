"""What a person calls the parts of a build: source files, backends, folders. Pure."""

from __future__ import annotations

import posixpath
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache

from ci.platforms import PLATFORMS
from ci.text import counted, first_names

FOLDERS = 3  # more of them are told as the folder that has them all
NAMES = 3

# Folders that say which backend a file belongs to, wherever in its path they stand.
_BACKENDS = frozenset({"cuda", "torch", "triton", *PLATFORMS})
_OBJECTS = (".o", ".obj", ".lo")


@dataclass(frozen=True, kw_only=True)
class Group:
    """Names that belong together; ``where`` says it: ``of the triton backend``."""

    names: tuple[str, ...]
    where: str

    def text(self, noun: str) -> str:
        """``4 new units of the triton backend (add.c, mul.c, driver.c and 1 more)``."""
        if len(self.names) == 1:
            return f"1 {noun}, {self.names[0]}"
        short = [posixpath.basename(name) or name for name in self.names]
        names = short if len({*short}) == len(short) else self.names
        parts = [counted(len(self.names), noun), self.where, f"({first_names(names, NAMES)})"]
        return " ".join(part for part in parts if part)


@cache  # both sides have nearly the same ones
def source_name(output: str) -> str:
    """The source file that a build's output was made of, as far as its path says.

    ``src/CMakeFiles/ops.dir/__/generated/add.cc.o`` is ``generated/add.cc``: CMake puts a
    target's folder in between and spells ``..`` with underscores; Meson's folder ends in ``.p``;
    setuptools puts all below ``build/temp.<platform>``.
    """
    parts = [".." if part == "__" else part for part in output.split("/")]
    parts = parts[_after_setuptools(parts) :]
    kept = [part for part in parts if part != "CMakeFiles" and not part.endswith((".dir", ".p"))]
    name = posixpath.normpath("/".join(kept))
    for suffix in _OBJECTS:
        name = name.removesuffix(suffix)
    return name


def _after_setuptools(parts: list[str]) -> int:
    return next((n + 1 for n, part in enumerate(parts[:-1]) if part.startswith("temp.")), 0)


def groups(names: Iterable[str]) -> Iterator[Group]:
    """Put together what is of one backend, else what is in few common folders; in their order."""
    backends: dict[str, list[str]] = defaultdict(list)
    others = []
    for name in names:
        if backend := _backend(name):
            backends[backend].append(name)
        else:
            others.append(name)
    for backend, found in backends.items():
        yield Group(names=tuple(found), where=f"of the {backend} backend")
    for found in _by_folder(others):
        paths = [posixpath.dirname(name).split("/") for name in found]
        folder = "/".join(posixpath.commonprefix(paths))  # of whole names, as these are lists
        yield Group(names=tuple(found), where=f"in {folder}" if folder else "")


def _backend(name: str) -> str | None:
    folders = posixpath.dirname(name).split("/")
    return next((folder for folder in folders if folder in _BACKENDS), None)


def _by_folder(names: list[str]) -> list[list[str]]:
    """The deepest folders that are few enough to be told one by one."""
    paths = {name: tuple(posixpath.dirname(name).split("/")) for name in names}
    for depth in range(max(map(len, paths.values()), default=0), -1, -1):
        found: dict[tuple[str, ...], list[str]] = defaultdict(list)
        for name, path in paths.items():
            found[path[:depth]].append(name)
        if len(found) <= FOLDERS:
            break
    return list(found.values()) if names else []
