"""Text from elsewhere, made fit to be stored and shown.

Test names, messages and file names are whatever a project makes them: halves of characters
(which Python puts where a file name is not UTF-8), control characters, colours.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

from ci.util.lines import parse

_ESCAPE_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?)")
SHORT = 12  # characters of a commit that people read
LONGEST_NAME = 500  # characters; a node id of pytest's repeats parameters, which may be texts
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


def storable(value: Any) -> Any:
    """``value``, in whose strings halves of characters are written as ``\\udce9``.

    So is the character zero, as ``\\x00``: PostgreSQL has no room for it. Nor is there JSON for a
    number that is none, or has no end.
    """
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode().replace("\0", r"\x00")
    if isinstance(value, dict):
        return {storable(key): storable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [storable(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def parse_json(text: str) -> Any:
    """Decode JSON in bounds; raises ``ValueError`` for what is none."""
    return storable_json(text, parse(text))


def storable_json(text: str, value: Any) -> Any:
    """``value`` of the JSON ``text``, which can spell characters that nothing else takes."""
    if "\\u" not in text:
        return value
    odd = "\\ud" in text or "\\uD" in text or "\\u0000" in text
    return storable(value) if odd else value


def near_match(name: object, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """``; did you mean 'cpu'?`` where one of ``known`` is close to ``name``, else nothing."""
    if not isinstance(name, str):
        return ""
    matches = difflib.get_close_matches(name, list(known), n=1, cutoff=cutoff)
    return f"; did you mean '{matches[0]}'?" if matches else ""


def commit_name(commit: str | None, *, dirty: bool = False) -> str:
    """``commit 0123456789ab with uncommitted changes``."""
    changes = " with uncommitted changes" if dirty else ""
    return f"commit {commit[:SHORT]}{changes}" if commit else "no commit"


def counted(count: int, noun: str) -> str:
    """``1 test``, ``2 tests``, ``3 processes``."""
    plural = "es" if noun.endswith("s") else "s"
    return f"{count:,} {noun}" + ("" if count == 1 else plural)


def unreadable(lines: int, longest: int) -> str:
    """``3 unreadable lines``, and the length of the ``longest`` where that is the reason."""
    length = f", the longest of {counted(longest, 'byte')}" if longest else ""
    return counted(lines, "unreadable line") + length


def first_names(names: Sequence[str], most: int = 5) -> str:
    """``a, b, c, d, e and 3 more``; a name is as long as a project makes it, and is shortened."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    shown = names[:most]
    short = (it if len(it) <= LONGEST_NAME else f"{it[:LONGEST_NAME]}..." for it in shown)
    return ", ".join(short) + more


def printable(text: str) -> str:
    """``text`` without what a terminal obeys: colours, other control characters."""
    plain = _ESCAPE_SEQUENCE.sub("", text)
    return "".join(map(_printable, plain))


def _printable(character: str) -> str:
    if character.isprintable() or character in "\n\t":
        return character
    return " " if character.isspace() else _REPLACEMENT


# To the last @ of the word, as passwords hold @ and / too: rather too much than too little.
# An engine's error can quote an address as it is written inside of another, percent-encoded.
# A user whom ssh logs in is no secret, and who reads of an engine wants to know the whole address.
_CREDENTIALS = re.compile(
    r"(?<=://)(?<!ssh://)\S+(?=@)|(?<=ssh://)[^\s@:]*:\S*(?=@)|(?<=%3A%2F%2F)\S+(?=@|%40)",
    re.IGNORECASE,
)


def mask_credentials(text: str) -> str:
    """Hide the ``user:password`` of every address in ``text``; of ssh's only with a password."""
    return _CREDENTIALS.sub("***", text)
