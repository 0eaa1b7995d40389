"""The bench of change points: what it counts, and the labelled series that it reads."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from bench.changes.methods import candidates, silent_method
from bench.changes.replay import replay, score
from bench.changes.series import (
    LabelledSeries,
    machines,
    noise_scenarios,
    step_scenarios,
    tigerbeetle,
    turing,
)
from bench.rows import MeasurementError


def test_a_change_and_a_false_alarm_count_once() -> None:
    series = LabelledSeries(values=[1.0] * 20, changes=(12,), first_look=10)
    tally = replay(lambda seen: [3, 4, 11] if len(seen.values) > 14 else [], series)
    assert tally.delays == (3,)
    assert tally.false_alarms == 1
    assert tally.runs == 11
    assert (tally.recall, tally.recall_within(5), tally.precision) == (1, 1, 0.5)


def test_methods_are_sent_to_processes() -> None:
    for candidate in (*candidates(), silent_method()):
        assert pickle.loads(pickle.dumps(candidate)).name == candidate.name  # noqa: S301


def test_what_is_neutral_counts_nothing() -> None:
    series = LabelledSeries(values=[1.0] * 20, changes=(), neutral=(5,))
    assert replay(lambda _: [5], series).false_alarms == 0


def test_a_seed_makes_the_same_series() -> None:
    machine_series = [machine.scenario(size) for machine in machines() for size in (0.0, 0.1)]
    for scenario in (*step_scenarios(), *noise_scenarios(), *machine_series):
        once, again = (replace(scenario.series(7), given=None) for _ in range(2))
        assert once == again != replace(scenario.series(8), given=None)


def test_a_folder_of_labelled_series_is_read(tmp_path: Path) -> None:
    """As the Turing Change Point Dataset has it; ``null`` where a value is missing."""
    _write_series(tmp_path, "a", [1, 1, None, 1, 2, 2, 2, 2, 3])
    _write_series(tmp_path, "unlabelled", [1, 2, 3])
    marks = {"6": [4], "7": [4], "8": [5, 8], "12": []}
    (tmp_path / "annotations.json").write_text(json.dumps({"a": marks, "not_fetched": {"6": [1]}}))
    (series,) = turing(tmp_path)
    assert series.marks == ((3,), (3,), (4, 7), ())
    assert series.values == [1, 1, 1, 2, 2, 2, 2, 3]
    assert replay(lambda _: [3], series).runs == 1


def _write_series(folder: Path, name: str, raw: list[int | None]) -> None:
    document = {
        "name": name,
        "longname": name,
        "n_obs": len(raw),
        "n_dim": 1,
        "time": {"index": list(range(len(raw)))},
        "series": [{"label": "V1", "type": "int", "raw": raw}],
    }
    path = folder / "datasets" / name / f"{name}.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(document, indent="\t"))


@pytest.mark.parametrize(
    ("marks", "places", "f1"),
    [
        ([[10, 20], [11, 20], [10], [0, 5]], [10, 20], 1.0),
        ([[], [10], [50]], [10], 10 / 11),
        ([[], [10], [50]], [], 0.8),
        ([[10]], [4, 5, 6], 2 / 3),
    ],
)
def test_the_f1_with_several_annotators(
    marks: list[list[int]], places: list[int], f1: float
) -> None:
    """The first three are the examples of TCPDBench's own definition."""
    assert score(marks, places, 100).f1 == pytest.approx(f1)


def test_the_covering_with_several_annotators() -> None:
    # One annotator saw no change: half of the series is the best overlap. The other one agrees.
    assert score([[], [10]], [10], 20).covering == pytest.approx((0.5 + 1) / 2)
    assert score([[10]], [5], 20).covering == pytest.approx((10 * 0.5 + 10 * 10 / 15) / 20)


def test_the_last_look_at_a_series_that_people_marked_is_scored() -> None:
    series = LabelledSeries(values=[1.0] * 20, marks=((12,), ()))
    tally = replay(lambda seen: [12] if len(seen.values) == 20 else [3], series)
    assert tally.scores == (score(series.marks, [12], 20),)


def test_another_archive_is_refused(tmp_path: Path) -> None:
    archive = tmp_path / "otava.tar.gz"
    archive.write_bytes(b"other")
    with pytest.raises(MeasurementError, match=r"otava.tar.gz: sha256 is .*; expected 9ae5"):
        tigerbeetle(archive)
