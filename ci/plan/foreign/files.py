"""Read the files of a project that no one has reviewed: nothing is executed, and all has bounds."""

from __future__ import annotations

import ast
import configparser
import os
import stat
import tomllib
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

Parsed = TypeVar("Parsed")

LARGEST = 1 << 20  # bytes; the largest pyproject.toml of ten known projects has 12,000
LARGEST_PROGRAM = 1 << 18  # a syntax tree takes 100 times as much
# What parsers raise for text that is broken, or nested too deeply.
BROKEN = (ValueError, SyntaxError, RecursionError, MemoryError, configparser.Error)


class ProjectFiles:
    """The files of a folder, read at most once; ``notes`` names the ignored ones."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.notes: list[str] = []
        self._read: dict[tuple[str, str], Any] = {}

    def path(self, name: str) -> Path | None:
        """Return a regular file of the folder; ``None`` if there is none, or only a link out."""
        try:
            path = (self.folder / name).resolve(strict=True)
            is_file = stat.S_ISREG(path.stat().st_mode)  # a pipe would block its reader
        except (OSError, RuntimeError, ValueError):  # a circle of links is a RuntimeError
            return None
        if not path.is_relative_to(self.folder):
            self._note(f"{name}: ignored, as it is outside of the folder")
            return None
        return path if is_file else None

    def text(self, name: str, most: int = LARGEST) -> str:
        """Return the text of a file; empty if it cannot be read."""
        return self._once(name, f"text {most}", lambda: self._text(name, most), "")

    def toml(self, name: str) -> Mapping[str, Any]:
        """Return a TOML file; empty if it is broken."""
        return self._once(name, "TOML", lambda: tomllib.loads(self.text(name)), {})

    def ini(self, name: str) -> configparser.RawConfigParser:
        """Return an INI file; empty if it is broken."""
        return self._once(name, "INI", lambda: parse_ini(self.text(name)), parse_ini(""))

    def program(self, name: str) -> ast.Module:
        """Return the syntax tree of a Python file; empty if it is broken. Nothing is executed."""
        text = self.text(name, LARGEST_PROGRAM)
        return self._once(name, "Python", lambda: _parse_program(text), ast.Module([], []))

    def _text(self, name: str, most: int) -> str:
        path = self.path(name)
        if path is None:
            return ""
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        with os.fdopen(descriptor, "rb") as file:
            content = file.read(most + 1)
        if len(content) > most:
            self._note(f"{name}: ignored, as it exceeds {most >> 10:,} KiB")
            return ""
        return content.decode("utf-8-sig")

    def _once(self, name: str, form: str, read: Callable[[], Parsed], empty: Parsed) -> Parsed:
        if (name, form) not in self._read:
            try:
                value = read()
            except BROKEN as error:
                reason = (str(error).splitlines() or [type(error).__name__])[0]
                what = "UTF-8" if isinstance(error, UnicodeDecodeError) else form.split()[0]
                self._note(f"{name}: ignored, as it is not valid {what}: {reason:.200}")
                value = empty
            except OSError as error:
                self._note(f"{name}: ignored, as it cannot be read: {error.strerror}")
                value = empty
            self._read[name, form] = value
        found: Parsed = self._read[name, form]
        return found

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


def parse_ini(text: str) -> configparser.RawConfigParser:
    """Return an INI text as tox and setuptools read it, without interpolation."""
    parser = configparser.RawConfigParser(strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(text)
    return parser


def _parse_program(text: str) -> ast.Module:
    with warnings.catch_warnings():  # of the project's text, such as an invalid escape
        warnings.simplefilter("ignore")
        return ast.parse(text)


# Values of TOML: a stranger's file may have any type anywhere.


def table(value: object, *keys: str) -> Mapping[str, Any]:
    """Return the table below ``keys``; empty if there is none."""
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def strings(value: object) -> tuple[str, ...]:
    """Return the strings of a list, or of one string."""
    items = value if isinstance(value, list) else [value]
    return tuple(item for item in items if isinstance(item, str))


# Values of Python: literals and the names of constants.


def constants(tree: ast.Module) -> dict[str, ast.expr]:
    """Return what the module assigns to names at its top level."""
    found: dict[str, ast.expr] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {it.id: node.value for it in targets if isinstance(it, ast.Name)}
    return found


def words_of(node: ast.expr | None, known: Mapping[str, ast.expr], depth: int = 4) -> Iterator[str]:
    """Yield the strings of a literal: a string, or a list with the names of other lists in it."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif depth and isinstance(node, ast.List | ast.Tuple | ast.Set):
        for item in node.elts:
            yield from words_of(item, known, depth - 1)
    elif depth and isinstance(node, ast.Starred):
        yield from words_of(node.value, known, depth - 1)
    elif depth and isinstance(node, ast.Name):
        yield from words_of(known.get(node.id), known, depth - 1)


def called(node: ast.Call) -> str:
    """Return the name of a called function, such as ``session.install`` or ``setup``."""
    function = node.func
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        return f"{function.value.id}.{function.attr}"
    return function.id if isinstance(function, ast.Name) else ""
