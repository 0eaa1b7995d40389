"""Lines and JSON of hostile origin: bounded, and never worse than a ``ValueError``."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ci.protocol.pytest_report import parse_report
from ci.util.lines import (
    DEEPEST,
    LARGEST_INTEGER,
    LineSplitter,
    TruncatedLine,
    lines_of_file,
    parse,
    parse_object,
)

DEEP = 200_000
HOSTILE = {
    "brackets": "[" * DEEP,
    "braces": '{"a":' * DEEP,
    "closed brackets": "[" * 300 + "]" * 300,
    "one level too many": "[" * (DEEPEST + 1) + "]" * (DEEPEST + 1),
    "digits": "1" * 5_000_000,
    "too large for 64 bits": str(LARGEST_INTEGER + 1),
    "too small for 64 bits": str(-LARGEST_INTEGER - 2),
    "infinite": "1e999",
    "infinite below": "-1e999",
    "not a number": "NaN",
    "Infinity": "[-Infinity]",
    "zero bytes": "\0" * 1000,
    "half a line": '{"event": "stage_sta',
    "mark": '\ufeff{"a": 1}',
    "nothing": "",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_what_is_out_of_bounds_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "[" * DEEPEST + "]" * DEEPEST,
        json.dumps(["["] * 1000),
        str(LARGEST_INTEGER),
        str(-LARGEST_INTEGER),
        "1e308",
        '"\\ud800"',
        '{"a": 1, "a": 2}',
    ],
)
def test_what_is_in_bounds_is_decoded_as_ever(text: str) -> None:
    assert parse(text) == json.loads(text)


@pytest.mark.parametrize("text", ["[]", "1", "null", '"a"'])
def test_what_is_no_object(text: str) -> None:
    with pytest.raises(ValueError, match="not a JSON object"):
        parse_object(text)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(JSON | st.text() | st.binary().map(lambda raw: raw.decode(errors="replace")))
def test_nothing_is_worse_than_a_value_error(value: object) -> None:
    text = value if isinstance(value, str) else json.dumps(value)
    try:
        decoded = parse(text)
    except ValueError:
        return
    json.dumps(decoded, allow_nan=False)


NUMBERS = st.integers() | st.floats() | st.sampled_from([math.inf, 10**30, -1, "x", [], None])
KINDS: tuple[object, ...] = (
    "TestReport",
    "SubtestReport",
    "CollectReport",
    "SessionFinish",
    "WarningMessage",
    [],
    1,
)


@given(
    st.fixed_dictionaries(
        {"$report_type": st.sampled_from(KINDS)},
        optional=dict.fromkeys(("nodeid", "when", "outcome", "longrepr"), JSON)
        | dict.fromkeys(("duration", "exitstatus"), NUMBERS),
    )
)
def test_a_report_has_the_fields_of_its_kind(record: dict[str, object]) -> None:
    try:
        found = parse_report(json.dumps(record))
    except ValueError:
        return
    kind = found["$report_type"]
    assert isinstance(kind, str)
    if kind in ("TestReport", "SubtestReport"):
        assert {type(found[name]) for name in ("nodeid", "when", "outcome")} == {str}
        assert 0 <= (found.get("duration") or 0) < math.inf
    if kind == "SessionFinish":
        assert type(found["exitstatus"]) is int


@given(st.binary(), st.integers(1, 9), st.integers(1, 5))
def test_lines_are_those_of_split_whatever_the_pieces(data: bytes, size: int, most: int) -> None:
    cutter = LineSplitter(most)
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    found = [line for piece in pieces for line in cutter.feed(piece)] + cutter.end()
    expected = data.split(b"\n")
    if not expected[-1]:
        expected.pop()
    assert found == [line[:most].decode(errors="replace") for line in expected]
    cut = [line.length for line in found if isinstance(line, TruncatedLine)]
    assert cut == [len(line) for line in expected if len(line) > most]


class CountedBytes(bytearray):
    """Counts the bytes that are put into it."""

    moved = 0

    def __iadd__(self, other: object) -> CountedBytes:
        assert isinstance(other, bytes)
        CountedBytes.moved += len(other)
        super().__iadd__(other)
        return self


def test_a_line_without_an_end_takes_work_and_memory_in_bounds() -> None:
    longest, piece = 1 << 16, b"x" * 4096
    cutter = LineSplitter(longest)
    cutter._held = CountedBytes()
    for _ in range(300 * 256):  # 300 MiB
        assert list(cutter.feed(piece)) == []
    assert CountedBytes.moved == len(cutter._held) == longest
    [line] = cutter.feed(b"\nnext")
    assert isinstance(line, TruncatedLine)
    assert (len(line), line.length) == (longest, 300 << 20)
    assert cutter.end() == ["next"]
    with pytest.raises(ValueError, match="a line of 314,572,800 bytes"):
        parse(line)


def test_returns_end_lines_of_logs(tmp_path: Path) -> None:
    path = tmp_path / "build.log"
    path.write_bytes(b"10 %\r90 %\rdone\r\nnext \xff\nlast")
    found = [line for line in lines_of_file(path, 100, returns=True) if line]
    assert found == ["10 %", "90 %", "done", "next \N{REPLACEMENT CHARACTER}", "last"]
