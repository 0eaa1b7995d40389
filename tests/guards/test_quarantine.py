"""The quarantine file is read strictly; entries match by overload or by a pattern of the id."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pytest
from names import TestName, operator_test_id
from quarantine import Entry, Outcome, QuarantineError, load

PLATFORMS = ("cpu", "nvidia")
ENTRY = {
    "test": "add.out",
    "outcome": "fails",
    "reason": "wrong sum",
    "date": "2026-11-21",
    "reference": "'#1'",
}


def write_quarantine(folder: Path, *entries: dict[str, str]) -> Path:
    """Writes a quarantine of the CPU; the n-th entry begins in line 2 + 5 * n."""
    lines = ["cpu:"]
    for entry in entries:
        lines += [f"  {key}: {value}" for key, value in entry.items()]
        lines[-len(entry)] = "- " + lines[-len(entry)].strip()
    path = folder / "quarantine.yaml"
    path.write_text("\n".join(lines))
    return path


def test_an_entry_has_all_that_was_write_quarantine(tmp_path: Path) -> None:
    path = write_quarantine(tmp_path, ENTRY | {"dtypes": "[int64, float32]", "slot": "8"})
    assert load(path, PLATFORMS) == {
        "cpu": (
            Entry(
                test="add.out",
                outcome=Outcome.FAILS,
                reason="wrong sum",
                date=datetime.date(2026, 11, 21),
                reference="#1",
                dtypes=("float32", "int64"),
                slot=8,
            ),
        )
    }


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("dtyps", "[float32]", r":7: unknown key dtyps; did you mean dtypes\?"),
        ("colour", "red", ":7: unknown key colour; expected one of test, "),
        ("test", "1", ":2: test: expected a text, got 1"),
        ("reason", "' '", ":4: reason: expected a text, got ' '"),
        ("outcome", "dies", ":3: outcome: expected fails, crashes, hangs; got 'dies'"),
        ("date", "2026-13-01", ":5: date: month must be in 1..12"),
        ("date", "soon", ":5: date: expected a day like 2026-11-21, got 'soon'"),
        ("date", "2026-11-21 10:00:00", ":5: date: expected a day"),
        ("dtypes", "float32", ":7: dtypes: expected a list"),
        ("dtypes", "[]", ":7: dtypes: expected a list"),
        ("dtypes", "[1]", ":7: dtypes: expected a text, got 1"),
        ("slot", "10", ":7: slot: expected a slot from 0 to 9, got 10"),
        ("slot", "true", ":7: slot: expected a slot from 0 to 9, got True"),
        ("reference", "!!python/object:os.system {}", ":6: reference: could not determine"),
    ],
)
def test_a_wrong_value_is_reported(tmp_path: Path, key: str, value: str, message: str) -> None:
    with pytest.raises(QuarantineError, match=f"^quarantine.yaml{message}[^\n]*$"):
        load(write_quarantine(tmp_path, ENTRY | {key: value}), PLATFORMS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", ":1: expected a list of entries per platform"),
        ("[]", ":1: expected a list of entries per platform"),
        ("cpu: {}", ":1: expected a list of entries; an empty one is "),
        ("cpu:", ":1: expected a list of entries; an empty one is "),
        ("cpu: [add]", ":1: expected an entry with the keys test, "),
        ("cpu: []\ncpu: []", ":2: duplicate platform cpu"),
        ("nvidea: []", r":1: unknown platform nvidea; did you mean nvidia\?"),
        ("cpu: [", ":1: cannot be read: "),
        ("cpu: \x00", ":1: cannot be read: "),
    ],
)
def test_a_wrong_file_is_reported(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "quarantine.yaml"
    path.write_text(text)
    with pytest.raises(QuarantineError, match=f"^quarantine.yaml{message}"):
        load(path, PLATFORMS)


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(QuarantineError, match="No such file or directory"):
        load(tmp_path / "quarantine.yaml", PLATFORMS)


def test_all_errors_are_reported_together(tmp_path: Path) -> None:
    path = write_quarantine(tmp_path, {"test": "add.out"}, ENTRY | {"slot": "x"}, ENTRY, ENTRY)
    with pytest.raises(QuarantineError) as caught:
        load(path, PLATFORMS)
    assert str(caught.value).splitlines() == [
        "quarantine.yaml:2: the entry has no date",
        "quarantine.yaml:2: the entry has no outcome",
        "quarantine.yaml:2: the entry has no reason",
        "quarantine.yaml:2: the entry has no reference",
        "quarantine.yaml:8: slot: expected a slot from 0 to 9, got 'x'",
        "quarantine.yaml:14: duplicate entry add.out; the first one is in line 9",
    ]


FLOAT32 = "tests/ops/test_torch_ops.py::test_overload[add.out-float32-cpu-slot8]"
NATIVE = "tests/ops/test_native_ops.py::test_native[add-int64-cpu-slot0]"
OTHER = "test_api.py::test_a_wrong_call[no out-x]"


@pytest.mark.parametrize(
    ("keys", "node_id"),
    [
        ({"test": "add.out"}, FLOAT32),
        ({"test": "add.out", "dtypes": ("float32", "int8"), "slot": 8}, FLOAT32),
        ({"test": "add.*"}, FLOAT32),
        ({"test": "add.out-float32-cpu-slot8"}, FLOAT32),
        ({"test": "test_torch_ops.py::test_overload[add.out-*]"}, FLOAT32),
        ({"test": "add", "dtypes": ("int64",), "slot": 0}, NATIVE),
        ({"test": "add-int64-*"}, NATIVE),
        ({"test": "test_api.py::*"}, OTHER),
    ],
)
def test_an_entry_matches(keys: dict[str, object], node_id: str) -> None:
    assert entry(**keys).matches(TestName(node_id))


@pytest.mark.parametrize(
    ("keys", "node_id"),
    [
        ({"test": "add"}, FLOAT32),
        ({"test": "add?out"}, FLOAT32),
        ({"test": "addxout"}, FLOAT32),
        ({"test": "add.out", "dtypes": ("float64",)}, FLOAT32),
        ({"test": "add.out", "slot": 0}, FLOAT32),
        ({"test": "test_api.py::*", "slot": 0}, OTHER),
    ],
)
def test_an_entry_does_not_match(keys: dict[str, object], node_id: str) -> None:
    assert not entry(**keys).matches(TestName(node_id))


def test_the_parts_of_an_id_are_read_back() -> None:
    parts: dict[str, Any] = {"overload": "add.out", "dtype": "float32", "device": "cpu", "slot": 8}
    assert operator_test_id(**parts) == "add.out-float32-cpu-slot8"
    assert TestName(FLOAT32).properties == parts
    assert TestName(OTHER).properties == {}


def entry(**keys: Any) -> Entry:
    values = {"outcome": Outcome.FAILS, "date": datetime.date(2026, 11, 21), **keys}
    return Entry(**{**ENTRY, **values})
