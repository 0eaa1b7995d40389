"""``compile_commands.json``: the options that the compilers were given."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

from ci.text import parse_json

# What says where something lies, and not how it is compiled; in two words, or in one.
_PLACES = ("-I", "-L", "-MF", "-MT", "-MQ", "-isystem", "-iquote", "-idirafter", "-include")
_NO_OPTIONS = frozenset({"-c", "-o", "-M", "-MM", "-MD", "-MMD", "-MG", "-MP", "--"})
_ABSOLUTE = re.compile(r"(?<![\w.])/[^\s\"'=:,;]+")


def compiler_flags(text: str | None) -> tuple[str, ...]:
    """All options of all units, sorted, each once; of a path only its last part is kept."""
    try:
        entries = parse_json(text or "")
    except ValueError:
        return ()
    options: set[str] = set()
    for entry in entries if isinstance(entries, list) else ():
        options.update(_options(_words(entry)))
    return tuple(sorted(_ABSOLUTE.sub(_name, option) for option in options))


def _words(entry: Any) -> list[str]:
    """The command without the compiler, and without whatever starts it."""
    command = entry.get("arguments") or entry.get("command") if isinstance(entry, dict) else None
    if isinstance(command, str):
        command = _split(command)
    words = [word for word in command if isinstance(word, str)] if isinstance(command, list) else []
    first = next((n for n, word in enumerate(words) if word.startswith("-")), len(words))
    return words[first:]


def _split(command: str) -> list[str]:
    if not {"'", '"', "\\"} & set(command):
        return command.split()  # a hundred times as fast as what follows
    try:
        return shlex.split(command)
    except ValueError:  # a quotation without an end
        return []


def _options(words: list[str]) -> Iterator[str]:
    option = ""  # that may yet get a value of its own: ``-x cu``
    skipping = False
    for word in [*words, "--"]:
        if skipping or not word.startswith("-"):
            is_value = option and not skipping and not _is_file(word)
            option = f"{option} {word}" if is_value else option
            skipping = False
            continue
        if option:
            yield option
        skipping = word == "-o" or word in _PLACES
        option = "" if word in _NO_OPTIONS or word.startswith(_PLACES) else word


def _is_file(word: str) -> bool:
    return "/" in word or word.startswith("@") or bool(PurePosixPath(word).suffix)


def _name(match: re.Match[str]) -> str:
    return PurePosixPath(match[0]).name
