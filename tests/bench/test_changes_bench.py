"""The bench of change points: what it counts, and the labelled series that it reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.changes.data import tigerbeetle, turing
from bench.changes.replay import replay
from bench.changes.scenarios import Labelled, silences, steps
from bench.errors import MeasurementError


def test_a_change_and_a_false_alarm_count_once() -> None:
    series = Labelled(values=[1.0] * 20, changes=(12,), first_look=10)
    tally = replay(lambda values: [3, 4, 11] if len(values) > 14 else [], series)
    assert tally.delays == (3,)
    assert tally.false_alarms == 1
    assert tally.runs == 11
    assert (tally.recall, tally.prompt_recall, tally.precision) == (1, 1, 0.5)


def test_what_is_neutral_counts_nothing() -> None:
    series = Labelled(values=[1.0] * 20, changes=(), neutral=(5,))
    assert replay(lambda _: [5], series).false_alarms == 0


def test_a_seed_makes_the_same_series() -> None:
    for scenario in (*steps(), *silences()):
        assert scenario.series(7) == scenario.series(7) != scenario.series(8)


def test_a_folder_of_labelled_series_is_read(tmp_path: Path) -> None:
    document = {"n_dim": 1, "series": [{"raw": [1, 1, 1, 1, 2, 2, 2, 2, 3]}]}
    (tmp_path / "datasets").mkdir()
    (tmp_path / "datasets" / "a.json").write_text(json.dumps(document))
    marks = {"1": [4], "2": [4], "3": [5, 8], "4": []}
    (tmp_path / "annotations.json").write_text(json.dumps({"a": marks}))
    ((name, series),) = turing(tmp_path)
    assert (name, series.changes, series.neutral) == ("a", (4,), (8,))
    assert series.values[4] == 2.0


def test_another_archive_is_refused(tmp_path: Path) -> None:
    archive = tmp_path / "otava.tar.gz"
    archive.write_bytes(b"other")
    with pytest.raises(MeasurementError, match=r"otava.tar.gz: sha256 is .*; expected 9ae5"):
        tigerbeetle(archive)
