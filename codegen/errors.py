"""The one error that the generators raise for bad input, and words of messages."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_MOST_SHOWN = 80  # characters; the longest name of torch 2.13 has 61


class GenerationError(Exception):
    """Input that nothing can be generated from; printed as a message, exit code 2.

    Says the file and line where there is one, what was found, what was expected and what
    to do.
    """


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: the known one that is like it, if any."""
    matches = difflib.get_close_matches(name, list(known))
    if not matches:
        return ""
    # The first of several that are equally near: PrivateUse1.
    best = max(sorted(matches), key=lambda each: difflib.SequenceMatcher(None, each, name).ratio())
    return f"; did you mean '{best}'?"


def quoted(text: str) -> str:
    """What a file says, fit for one line of a terminal."""
    return repr(text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}...")


def counted(count: int, noun: str) -> str:
    """``1 operator``, ``2 operators``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
