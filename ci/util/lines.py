"""Read untrusted lines and JSON within bounds.

Data from a container or a results folder may be truncated, malformed or hostile: a line without
an end, a million brackets, a number with a million digits. This module splits it into lines and
decodes them. The time grows linearly with the size, the memory stays constant. The typed models
in the rooms above interpret the values.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Bytes in a line. The agent's own events are below 17 KiB. One of them repeats a stage's command,
# whose arguments have at most 128 KiB each.
LONGEST_EVENT = 1 << 20
# The per-test log repeats a test's output, which JSON makes longer. The line of a test that prints
# two large tensors has some MB. Decoded, a line can take up to 30 times its own size.
LONGEST_REPORT = 1 << 24
# A stage's log is searched for lines of pytest, pip and CMake. All of them have under 200 bytes.
LONGEST_LOG_LINE = 1 << 13
LARGEST_DOCUMENT = 1 << 24  # bytes of a file that holds one value, such as environment.json
CHUNK = 1 << 18  # bytes; with chunks of 16 KiB or 1 MiB, reading a log takes 1.4 times as long
# Levels. Reports of chained exceptions have 12, events 3. A value with some hundreds can be
# decoded, but not written or sent: that takes more of Python's stack.
DEEPEST = 50
SHORT = 4096  # characters
LAST = 4096  # bytes that are kept of the end of a line that is too long
LARGEST_INTEGER = (1 << 63) - 1  # the largest that databases store
LONGEST_SECONDS = 1e9  # 31 years; sums of durations stay finite


class TruncatedLine(str):
    """The beginning of a line that exceeds the reader's limit."""

    length: int
    """Bytes of the whole line."""
    end: str
    """Its last characters, as far as they are not a part of the beginning."""


class LineSplitter:
    """Splits a stream into lines, and holds at most one line of ``longest`` bytes."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._held = bytearray()
        self._end = bytearray()  # what follows the held bytes, at most the last ones
        self._length = 0  # of the line whose end has not been read yet

    def feed(self, chunk: bytes) -> Iterator[str]:
        """Return the lines that end in ``chunk``, which may begin and end within a line."""
        *ended, rest = chunk.split(b"\n")
        for part in ended:
            if not self._length and len(part) <= self._longest:
                yield part.decode(errors="replace")
            else:
                self._hold(part)
                yield self._take()
        self._hold(rest)

    def end(self) -> list[str]:
        """Return the last line, if it has no line end."""
        return [self._take()] if self._length else []

    def _hold(self, part: bytes) -> None:
        self._length += len(part)
        room = self._longest - len(self._held)
        self._held += part[:room]
        if len(part) > room:
            self._end = (self._end + part[room:])[-LAST:]

    def _take(self) -> str:
        text = self._held.decode(errors="replace")
        if self._length > self._longest:
            cut = TruncatedLine(text)
            cut.length = self._length
            cut.end = self._end.decode(errors="replace")
            text = cut
        self._held, self._end = bytearray(), bytearray()
        self._length = 0
        return text


def lines_of_file(path: Path, longest: int, *, returns: bool = False) -> Iterator[str]:
    """Read the lines of a file, without line ends; with ``returns``, ``\\r`` ends a line too."""
    cutter = LineSplitter(longest)
    with path.open("rb") as file:
        for chunk in iter(lambda: file.read(CHUNK), b""):
            yield from cutter.feed(chunk.replace(b"\r", b"\n") if returns else chunk)
    yield from cutter.end()


def parse(
    text: str, *, any_integer: bool = False, constants: bool = False, deepest: int = DEEPEST
) -> Any:
    """Decode JSON; raises ``ValueError`` for other text, and for values out of bounds.

    NaN and Infinity are not JSON; with ``constants`` they are read as ``None``. Of two equal names
    the last one counts. With ``any_integer`` the caller checks whether an integer fits into 64
    bits. ``deepest`` is the limit of nested levels.
    """
    if isinstance(text, TruncatedLine):
        raise ValueError(f"a line of {text.length:,} bytes")
    decoder = _ANY_INTEGER if any_integer else _WITH_CONSTANTS if constants else _DECODER
    try:
        value = decoder.decode(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    # In a short text, counting brackets is faster than walking the values. In a long text, mostly
    # a log's, it takes as long as decoding.
    may_be = len(text) > SHORT or text.count("[") + text.count("{") > deepest
    if may_be and is_deep(value, deepest):
        raise ValueError(f"nested more than {deepest} deep")
    return value


def parse_object(text: str, *, any_integer: bool = False, deepest: int = DEEPEST) -> dict[str, Any]:
    """Decode a JSON object; raises ``ValueError`` for any other text."""
    value = parse(text, any_integer=any_integer, deepest=deepest)
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return value


def is_deep(value: Any, deepest: int) -> bool:
    """Return whether lists and dicts are nested in more than ``deepest`` levels.

    Checked level by level, since a recursive check could run out of stack itself.
    """
    level = [value]
    for _ in range(deepest):
        level = [
            item
            for node in level
            if isinstance(node, (dict, list))
            for item in (node.values() if isinstance(node, dict) else node)
        ]
        if not level:
            return False
    return any(isinstance(node, (dict, list)) for node in level)


def _integer(digits: str) -> int:
    # Python before 3.11 takes hours to decode a number of some million digits.
    if len(digits) < 19 or (len(digits) < 21 and abs(int(digits)) <= LARGEST_INTEGER):
        return int(digits)
    raise ValueError("got an integer of more than 64 bits")


def _float(digits: str) -> float:
    number = float(digits)
    if number - number == 0.0:
        return number
    raise ValueError(f"got {digits:.40}, which is not finite")


def _constant(name: str) -> None:
    raise ValueError(f"got {name}, which is not JSON")


_DECODER = json.JSONDecoder(parse_int=_integer, parse_float=_float, parse_constant=_constant)
_WITH_CONSTANTS = json.JSONDecoder(
    parse_int=_integer, parse_float=_float, parse_constant=lambda _: None
)
_ANY_INTEGER = json.JSONDecoder(parse_float=_float, parse_constant=_constant)
