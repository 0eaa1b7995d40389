"""Read untrusted lines and JSON within bounds.

Whatever comes out of a container, or lies in a folder of results, may be cut off, broken or made
to harm its reader: a line without an end, a million brackets, a number of a million digits. Here
it is cut into lines and decoded, in time that grows with its size and in memory that does not.
The typed models above decide what the values mean.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Bytes in a line. The agent's own events are below 17 KiB; a stage's command, which one of them
# repeats, is of at most 128 KiB for each argument.
LONGEST_EVENT = 1 << 20
# The per-test log repeats what a test printed, and JSON writes it longer. A test that prints two
# large tensors has some MB in a line. Decoded, a line can take up to 30 times its own size.
LONGEST_REPORT = 1 << 24
# A stage's log is searched for lines that pytest, pip and CMake write; none is of 200 bytes.
LONGEST_LOG_LINE = 1 << 13
LARGEST_DOCUMENT = 1 << 24  # bytes of a file that is one value, such as environment.json
CHUNK = 1 << 18  # bytes; with 16 KiB or 1 MiB at once, reading a log takes 1.4 times as long
# Reports of chained exceptions are 12 deep, events 3. A value of some hundreds can be decoded, but
# neither written nor sent on: that takes more of Python's stack.
DEEPEST = 50
SHORT = 4096  # characters
LARGEST_INTEGER = (1 << 63) - 1  # what databases have room for
LONGEST_SECONDS = 1e9  # 31 years; sums of durations stay finite


class CutLine(str):
    """The beginning of a line that is longer than its reader takes."""

    length: int
    """Bytes of the whole line."""


class LineCutter:
    """Cuts a stream into lines, and holds no more than one line of ``longest`` bytes."""

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._held = bytearray()
        self._length = 0  # of the line that has no end yet

    def feed(self, chunk: bytes) -> Iterator[str]:
        """Return the lines that end in the next bytes; these may end anywhere."""
        *ended, rest = chunk.split(b"\n")
        for part in ended:
            if not self._length and len(part) <= self._longest:
                yield part.decode(errors="replace")
            else:
                self._hold(part)
                yield self._taken()
        self._hold(rest)

    def end(self) -> list[str]:
        """Return the last line, where it has no end."""
        return [self._taken()] if self._length else []

    def _hold(self, part: bytes) -> None:
        self._length += len(part)
        self._held += part[: self._longest - len(self._held)]

    def _taken(self) -> str:
        text = self._held.decode(errors="replace")
        if self._length > self._longest:
            cut = CutLine(text)
            cut.length = self._length
            text = cut
        self._held = bytearray()
        self._length = 0
        return text


def lines_of_file(path: Path, longest: int, *, returns: bool = False) -> Iterator[str]:
    """Read the lines of a file, without their ends; with ``returns``, ``\\r`` ends one as well."""
    cutter = LineCutter(longest)
    with path.open("rb") as file:
        for chunk in iter(lambda: file.read(CHUNK), b""):
            yield from cutter.feed(chunk.replace(b"\r", b"\n") if returns else chunk)
    yield from cutter.end()


def parse(text: str, *, any_integer: bool = False) -> Any:
    """Decode JSON; raises ``ValueError`` for all else, and for what is out of bounds.

    NaN and Infinity are no JSON. Of two equal names the last one counts. ``any_integer`` leaves it
    to the caller whether an integer fits into 64 bits.
    """
    if isinstance(text, CutLine):
        raise ValueError(f"a line of {text.length:,} bytes")
    try:
        value = (_ANY_INTEGER if any_integer else _DECODER).decode(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    # Brackets are counted faster than values, where they are few; in a long text, which is mostly
    # one of a log, it takes as long as decoding.
    may_be = len(text) > SHORT or text.count("[") + text.count("{") > DEEPEST
    if may_be and _is_deep(value):
        raise ValueError(f"nested more than {DEEPEST} deep")
    return value


def parse_object(text: str, *, any_integer: bool = False) -> dict[str, Any]:
    """Decode a JSON object; raises ``ValueError`` for all else."""
    value = parse(text, any_integer=any_integer)
    if not isinstance(value, dict):
        raise ValueError("no JSON object")
    return value


def _is_deep(value: Any) -> bool:
    """Level by level: what recurses could run out of stack itself."""
    level = [value]
    for _ in range(DEEPEST):
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
    # Python before 3.11 takes hours for a number of some million digits.
    if len(digits) < 19 or (len(digits) < 21 and abs(int(digits)) <= LARGEST_INTEGER):
        return int(digits)
    raise ValueError("got an integer of more than 64 bits")


def _float(digits: str) -> float:
    number = float(digits)
    if number - number == 0.0:
        return number
    raise ValueError("got a number that is not finite")


def _constant(name: str) -> None:
    raise ValueError(f"got {name}, which is not JSON")


_DECODER = json.JSONDecoder(parse_int=_integer, parse_float=_float, parse_constant=_constant)
_ANY_INTEGER = json.JSONDecoder(parse_float=_float, parse_constant=_constant)
