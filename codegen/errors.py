"""The error that the generators raise for bad input, and helpers that format messages."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_MOST_SHOWN = 80  # characters; the longest name of torch 2.13 has 61


class GenerationError(Exception):
    """Bad input for a generator. The command line prints it as a message and exits with code 2.

    The message states the file and line if there is one, what was found, what was expected, and the
    remedy.
    """


def suggestion(name: str, known: Iterable[str]) -> str:
    """Format "; did you mean 'x'?" with the most similar known name; "" if none is similar."""
    matches = difflib.get_close_matches(name, list(known))
    if not matches:
        return ""
    # Of several equally similar names, the first one: PrivateUse1.
    best = max(sorted(matches), key=lambda each: difflib.SequenceMatcher(None, each, name).ratio())
    return f"; did you mean '{best}'?"


def quote(text: str) -> str:
    """Quote and escape text from a file, so that it fits on one line of a terminal."""
    return repr(text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}...")


def counted(count: int, noun: str) -> str:
    """``1 operator``, ``2 operators``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
