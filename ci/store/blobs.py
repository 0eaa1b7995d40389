"""Encode lists as compressed bytes, and decode them.

Node ids and outcomes hardly change from run to run, so each such list is stored once, under its
digest, for all runs that share it. Tests are therefore in order of their node ids. The order of
the log would not do: with pytest-xdist it differs from run to run.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from collections.abc import Collection, Iterable
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

from pydantic_core import from_json

from ci.errors import InfrastructureError
from ci.model.details import BuildDetails, Rerun, Unit, UnitKind
from ci.model.outcomes import Ending, Outcome, State, TestOutcome
from ci.store.connect import refill_remedy

SECOND = 1_000_000  # durations are stored in whole microseconds
_WIDTH = 8  # bytes of a duration
_JSON = json.JSONDecoder()


class SharedList(NamedTuple):
    """A list that runs share: the digest of its text, and the uncompressed text."""

    digest: str
    text: bytes


class SuiteBlobs(NamedTuple):
    """The tests of one platform's run: three lists of one length in one order."""

    node_ids: SharedList
    outcomes: SharedList
    durations: bytes


def encode_suite(tests: Iterable[TestOutcome]) -> SuiteBlobs:
    """Encode tests; raises ``ValueError`` if two tests share a node id."""
    ordered = sorted(tests, key=lambda test: test.node_id)
    names = [test.node_id for test in ordered]
    if len(set(names)) < len(names):
        twice = next(name for name, later in pairwise(names) if name == later)
        raise ValueError(f"duplicate test {twice}")
    # The distinct endings, which are few, and the index of each test's ending.
    known: dict[tuple[str, str | None, str | None], int] = {}
    indices = [
        known.setdefault((test.outcome.value, test.reason, test.skip_reason), len(known))
        for test in ordered
    ]
    numbers = (round(test.seconds * SECOND) for test in ordered)
    plain = b"".join(number.to_bytes(_WIDTH, "little", signed=True) for number in numbers)
    # The first bytes of all numbers, then the second ones, ...: high bytes are zeros and compress.
    durations = zlib.compress(b"".join(plain[place::_WIDTH] for place in range(_WIDTH)))
    return SuiteBlobs(_shared(names), _shared([list(known), indices]), durations)


def decode_suite(node_ids: bytes, outcomes: bytes, durations: bytes) -> list[TestOutcome]:
    """Decode tests, in order of their node ids."""
    columns = decode_names(node_ids), decode_endings(outcomes), decode_seconds(durations)
    return [
        TestOutcome(
            node_id=name,
            outcome=state.outcome,
            seconds=took,
            reason=message,
            skip_reason=state.reason,
        )
        for name, (state, message), took in zip(*columns, strict=True)
    ]


def decode_names(content: bytes) -> list[str]:
    """Decode node ids."""
    found: list[str] = _json(content)
    return found


def find_names(content: bytes, names: Collection[str]) -> dict[str, int]:
    """Find the places of a few node ids, in a fifth of the time that decoding all takes."""
    text, found = _plain(content), {}
    for name in names:
        # Quotes in a node id are escaped, so these are the quotes around one, or between two.
        element = _text(name)
        first = text.startswith(b"[" + element)
        place = 0 if first else text.find(b"," + element)
        if first or place >= 0:
            found[name] = text.count(b'","', 0, place + 2)
    return found


def decode_endings(content: bytes, places: Iterable[int] | None = None) -> list[Ending]:
    """Decode the endings of all tests, or of the tests at ``places``.

    Equal ones are one object, those of other runs included.
    """
    text = _plain(content).decode()
    states, end = _JSON.raw_decode(text, 1)
    known = {
        str(index): _ending(outcome, reason, skip_reason)
        for index, (outcome, reason, skip_reason) in enumerate(states)
    }
    # Not parsed as numbers: for a few of 17,000 tests, text takes a fifth of the time, and
    # `compare` reads hundreds of lists.
    indices = text[end + len(",[") : -len("]]")].split(",")
    chosen = indices if places is None else [indices[place] for place in places]
    return [known[index] for index in chosen]


@cache  # a run has some ten
def _ending(outcome: str, reason: str | None, skip_reason: str | None) -> Ending:
    return Ending(State(Outcome(outcome), skip_reason), reason)


def encode_build(build: BuildDetails) -> bytes:
    units = [[u.output, u.kind.value, u.seconds, u.cached] for u in build.units]
    parts = [units, dict(build.generated), list(build.flags), dict(build.traced)]
    return zlib.compress(_text(parts))


def decode_build_details(content: bytes) -> BuildDetails:
    units, generated, flags, traced = _json(content)
    return BuildDetails(
        units=tuple(
            Unit(output=output, kind=UnitKind(kind), seconds=seconds, cached=cached)
            for output, kind, seconds, cached in units
        ),
        generated=generated,
        flags=tuple(flags),
        traced=traced,
    )


def encode_reruns(reruns: Iterable[Rerun]) -> bytes:
    rows = [[r.node_id, r.attempt, r.outcome.value, r.seconds, r.reason] for r in reruns]
    return zlib.compress(_text(rows))


def decode_reruns(content: bytes) -> list[Rerun]:
    return [
        Rerun(node_id=name, attempt=attempt, outcome=Outcome(ended), seconds=took, reason=reason)
        for name, attempt, ended, took, reason in _json(content)
    ]


def decode_seconds(content: bytes) -> list[float]:
    """Decode the durations of tests in seconds."""
    planes = _plain(content)
    count = len(planes) // _WIDTH
    plain = bytearray(len(planes))
    for place in range(_WIDTH):
        plain[place::_WIDTH] = planes[place * count : (place + 1) * count]
    return [number / SECOND for number in struct.unpack(f"<{count}q", plain)]


def _shared(value: Any) -> SharedList:
    text = _text(value)
    return SharedList(digest=hashlib.sha256(text).hexdigest(), text=text)


def _text(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _json(content: bytes) -> Any:
    return from_json(_plain(content))  # in half of the time of the standard library


def _plain(content: bytes) -> bytes:
    try:
        return zlib.decompress(content)  # its checksum detects any damage
    except zlib.error as error:
        raise InfrastructureError(
            f"the store is damaged: {error}", remedy=refill_remedy()
        ) from error
