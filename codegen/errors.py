"""The error that the generators raise for bad input, and helpers that format messages."""

from __future__ import annotations

import difflib
import os
import platform
import shlex
import sys
import tempfile
import traceback
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


def record_fault(error: Exception) -> str:
    """Write the traceback of an unexpected error into a new temporary file; return the message."""
    what = " ".join(traceback.format_exception_only(error)[-1].split())
    where = traceback.extract_tb(error.__traceback__)[-1]
    details = (
        f"{shlex.join(sys.orig_argv)}\nPython {sys.version}\n{platform.platform()}\n\n"
        f"{''.join(traceback.format_exception(error))}"
    )
    message = f"unexpected {what} ({where.filename}:{where.lineno})"
    try:
        handle, path = tempfile.mkstemp(prefix="codegen-fault-", suffix=".txt")
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(details)
    except OSError as failure:
        return f"{message}. Please report it with what follows: {failure.strerror}\n{details}"
    return f"{message}. Please report it, with the file {path}, which has the traceback"
