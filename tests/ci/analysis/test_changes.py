"""Change points in noise: which are found, when, and which are not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ci.analysis import changes
from ci.analysis.changes import POLICY, SeriesFinding, analyze
from ci.analysis.levels import Differences, Level, Step, normal_to_student, student_to_normal

SEEDS = range(60)


def noise(count: int, *, level: float = 100.0, spread: float = 3.0, seed: int = 0) -> list[float]:
    return list(np.random.default_rng(seed).normal(level, spread, count))


def look(values: list[float]) -> SeriesFinding:
    return analyze({"x": values})["x"]


def confirmed(values: list[float]) -> list[int]:
    return [change.index for change in look(values).changes if change.confirmed]


def false_alarms(values: list[float]) -> int:
    """How many places are ever confirmed while the values arrive one by one."""
    places: list[int] = []
    for count in range(10, len(values) + 1):
        for index in confirmed(values[:count]):
            if not any(abs(index - place) <= 3 for place in places):
                places.append(index)
    return len(places)


def test_a_step_is_confirmed_with_its_place_and_size() -> None:
    finding = look(noise(40) + noise(20, level=110, seed=1))
    (change,) = finding.changes
    assert change.confirmed
    assert change.index == 40
    assert change.low < 0.1 < change.high
    assert change.probability > 0.999
    assert finding.level == pytest.approx(110, rel=0.02)


@pytest.mark.parametrize("size", [1.1, 0.9])
def test_a_step_of_10_percent_in_noise_of_3_is_known_within_5_runs(size: float) -> None:
    found = 0
    for seed in SEEDS:
        values = noise(65, seed=seed)
        values[60:] = [size * value for value in values[60:]]
        runs = (confirmed(values[:count]) for count in (64, 65))
        found += any(abs(index - 60) <= 3 for indices in runs for index in indices)
    assert found / len(SEEDS) >= 0.95


def test_noise_raises_no_alarm() -> None:
    assert not any(false_alarms(noise(110, seed=seed)) for seed in range(9))  # 909 looks


def test_spikes_raise_no_alarm() -> None:
    random = np.random.default_rng(0)
    values = np.array(noise(200)) * (1 + (random.random(200) < 0.05) * random.uniform(0.3, 2, 200))
    assert false_alarms(list(values)) == 0


def test_a_second_mode_is_no_level() -> None:
    alarms = 0
    for seed in range(3):
        slow = np.random.default_rng(seed).random(150) < 0.2
        values = np.array(noise(150, spread=1, seed=seed)) + 10 * slow
        alarms += false_alarms(list(values))
    assert alarms <= 1  # five slow runs in a row do happen


def test_growing_noise_is_no_level() -> None:
    spread = np.where(np.arange(100) < 50, 1, 5)
    values = 100 + spread * np.array(noise(100, level=0, spread=1, seed=2))
    assert false_alarms(list(values)) == 0


def test_a_drift_is_no_staircase() -> None:
    values = list(np.array(noise(200)) + 0.3 * np.arange(200))
    finding = look(values)
    assert finding.changes == ()
    assert finding.drift is not None
    assert finding.drift.low < 0.6 < finding.drift.high
    assert look(noise(200)).drift is None


def leak(seed: int, *, spread: float = 2.0) -> list[float]:
    """A level, 0.1 % a value more from index 100 on, 120 times, and another level."""
    climb = 1.001 ** np.clip(np.arange(260) - 99, 0, 120)
    return list(climb * np.array(noise(260, spread=spread, seed=seed)))


@pytest.mark.parametrize("seed", range(8))
def test_a_leak_is_one_gradual_change(seed: int) -> None:
    (change,) = look(leak(seed)).changes
    assert change.is_gradual
    assert change.earliest <= 100 <= change.latest
    assert change.until >= 200
    assert change.low < 1.001**120 - 1 < change.high
    assert change.probability > 0.999


def test_a_leak_is_known_while_it_goes_on_and_stays_the_same_change() -> None:
    """Steps that noise shows in it come and go."""
    ever, lost = 0, 0
    for seed in range(8):
        found = [look(leak(seed)[:count]).changes for count in range(165, 260, 5)]
        ever += any(found[0])
        lost += sum(not any(it.is_gradual for it in changes) for changes in found)
        assert all(len(changes) <= 1 for changes in found)
    assert ever >= 6
    assert lost <= 40  # of 152


@pytest.mark.parametrize("seed", range(8))
def test_steps_are_no_climb(seed: int) -> None:
    levels = (100, 108, 121, 158)
    values = [it for n, level in enumerate(levels) for it in noise(40, level=level, seed=seed + n)]
    changes = look(values).changes
    assert len(changes) == 3
    assert not any(change.is_gradual for change in changes)


def test_a_step_after_a_leak_is_a_change_of_its_own() -> None:
    values = [it * (1.3 if n >= 180 else 1) for n, it in enumerate(leak(0)[:220])]
    climb, step = (change for change in look(values).changes if change.confirmed)
    assert climb.is_gradual
    assert not step.is_gradual
    assert step.index == 180


def test_more_outliers_at_the_same_level_are_seen() -> None:
    """The 95th percentile rises, the median does not."""
    spikes = np.random.default_rng(5).random(140) < np.where(np.arange(140) < 80, 0.03, 0.4)
    values = list(np.where(spikes, 1.6, 1) * np.array(noise(140, seed=4)))
    finding = look(values)
    assert finding.changes == ()
    assert finding.outliers is not None
    assert abs(finding.outliers.index - 80) <= 10
    assert finding.outliers.values_before + finding.outliers.values_since == 140
    assert finding.outliers.since / finding.outliers.values_since > 0.25
    assert look(values[:80]).outliers is None


def test_rare_outliers_of_one_rate_are_not_more_frequent() -> None:
    for seed in range(20):
        spikes = np.random.default_rng(seed).random(200) < 0.1
        assert (
            look(list(np.where(spikes, 1.6, 1) * np.array(noise(200, seed=seed)))).outliers is None
        )


def test_a_young_step_waits_for_its_confirmation() -> None:
    values = noise(40) + noise(POLICY.confirm, level=115, seed=1)
    (young,) = look(values[:42]).changes
    (old,) = look(values).changes
    assert not young.confirmed
    assert old.confirmed
    assert young.index == old.index == 40


def test_a_spike_is_forgotten() -> None:
    values = [*noise(40), 150.0, *noise(20, seed=1)]
    assert [change.confirmed for change in look(values[:41]).changes] == [False]
    assert look(values).changes == ()


def test_steps_smaller_than_the_minimum_are_not_reported() -> None:
    values = noise(60, spread=0.3) + noise(60, level=102, spread=0.3, seed=1)
    assert look(values).changes == ()


def test_many_series_are_corrected_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "POLICY", replace(POLICY, family=1e-5))
    values = noise(40) + noise(POLICY.confirm, level=108, seed=2)
    others = {str(seed): noise(10, seed=seed) for seed in range(99)}
    alone = analyze({"x": values})["x"]
    among = analyze({**others, "x": values})["x"]
    assert [change.confirmed for change in alone.changes] == [True]
    assert among.changes == ()


@pytest.mark.parametrize(("seed", "row", "runs"), [(1, 912, 59), (3, 2261, 37), (4, 126, 55)])
def test_the_largest_noise_of_thousands_of_series_is_no_alarm(
    seed: int, row: int, runs: int
) -> None:
    """A search of 4,000 series, at any place and after each run, finds such steps by chance."""
    values = 100 * np.random.default_rng(seed).normal(1, 0.03, (4000, 120))[row, :runs]
    alone = analyze({row: values})[row]
    among = analyze({row: values}, families=4000)[row]
    assert [change.confirmed for change in alone.changes] == [True]
    assert not any(change.confirmed for change in among.changes)


def test_what_is_detectable_is_detected() -> None:
    found = 0
    for seed in SEEDS:
        before = noise(50, seed=seed)
        size = look(before).detectable
        assert size is not None
        after = np.array(noise(POLICY.confirm, seed=1000 + seed)) * (1 + size)
        found += any(abs(index - 50) <= 3 for index in confirmed([*before, *after]))
    assert found / len(SEEDS) >= 0.9


def test_an_interval_ends_above_nothing() -> None:
    before, after = [4.6, 4.8, 3.6, 4.1, 3.8], [42.0, 31.0, 17.0, 44.0, 42.0]
    low, high = Step(Level(np.array(before)), Level(np.array(after))).interval(0.95)
    assert 1 < low < 42.0 / 4.1 - 1 < high


def test_intervals_hold_what_they_promise() -> None:
    inside = 0
    for seed in range(300):
        values = np.array(noise(50, seed=seed))
        low, high = Step(Level(values[:40]), Level(values[40:] * 1.2)).interval(0.95)
        inside += low < 0.2 < high
    assert 0.92 <= inside / 300 <= 0.98


@given(st.floats(-1e9, 1e9), st.integers(0, 60))
@settings(max_examples=50)
def test_constant_values_say_nothing(value: float, count: int) -> None:
    finding = look([value] * count)
    assert finding.changes == ()
    assert finding.drift is None
    assert finding.level == (value if count else None)


@given(st.integers(0, 2**32 - 1), st.integers(-20, 20))
@settings(max_examples=30)
def test_the_unit_does_not_matter(seed: int, exponent: int) -> None:
    values = noise(30, seed=seed) + noise(20, level=112, seed=seed + 1)
    factor = 2.0**exponent
    places = [change.index for change in look(values).changes]
    assert [change.index for change in look([factor * v for v in values]).changes] == places


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=30)
def test_time_may_run_backwards(seed: int) -> None:
    values = noise(30, spread=1, seed=seed) + noise(30, level=120, spread=1, seed=seed + 1)
    assert confirmed(values) == confirmed(values[::-1]) == [30]


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_short_series_say_nothing(count: int) -> None:
    finding = look(noise(count))
    assert finding.changes == ()
    assert (finding.level is None) == (count == 0)
    assert (finding.detectable is None) == (count < 5)


def test_something_from_nothing_is_a_change() -> None:
    (change,) = look([0.0] * 20 + noise(10)).changes
    assert change.index == 20
    assert change.relative == change.low == change.high == float("inf")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("before", "after"), [(-5.0, 5.0), (0.0, 5.0), (5.0, 0.0), (1e-300, 2e-300)]
)
def test_a_level_near_zero_is_no_error(before: float, after: float) -> None:
    look([before] * 50 + [after] * 50)


def test_exact_measures_have_no_noise() -> None:
    finding = analyze({"units": [15.0, 15.0, 16.0, 16.0]}, exact=["units"])["units"]
    (change,) = finding.changes
    assert (change.index, change.before, change.after) == (2, 15, 16)
    assert change.confirmed


def test_a_slow_drift_is_reported_once_it_is_large_enough() -> None:
    lines = [10_000.0 + 30 * run for run in range(6)]
    (change,) = analyze({"lines": lines}, exact=["lines"])["lines"].changes
    assert (change.index, change.before, change.after) == (4, 10_000, 10_120)


def test_what_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="series 'x': value 1 is nan; expected a number"):
        look([1.0, float("nan")])


@pytest.mark.parametrize(
    ("t", "degrees", "deviate"),
    # From tables: p of 0.05, 0.001 and 0.0001, two-sided.
    [
        (2.7764, 4, 1.95996),
        (2.2281, 10, 1.95996),
        (8.6103, 4, 3.29053),
        (4.5869, 10, 3.29053),
        (15.5441, 4, 3.89059),
        (6.2111, 10, 3.89059),
        (4.2283, 50, 3.89059),
    ],
)
def test_students_t_as_a_normal_deviate(t: float, degrees: int, deviate: float) -> None:
    assert student_to_normal(t, degrees) == pytest.approx(deviate, abs=0.004)
    assert student_to_normal(-t, degrees) == -student_to_normal(t, degrees)
    assert normal_to_student(deviate, degrees) == pytest.approx(t, rel=0.003)


def test_ranks_do_not_care_how_far_an_outlier_is() -> None:
    before = Level(np.array([1.0, 2, 3, 4, 5]))
    for end in (10.0, 1000.0):
        step = Step(before, Level(np.array([6.0, 7, 8, 9, end])))
        assert step.rank_deviate() == pytest.approx(2.611, abs=0.001)


def test_values_like_their_neighbours_weigh_less() -> None:
    random = np.random.default_rng(0)
    white = random.normal(size=200)
    assert Differences(white).correlation(0) < 0.1
    stepped = np.concatenate((white, white + 10))  # one step is not a resemblance
    assert Differences(stepped).correlation(200) < 0.1
    assert Differences(np.convolve(white, np.ones(4) / 4)).correlation(0) > 0.5


def test_two_slow_runs_of_ten_hide_no_step() -> None:
    found = 0
    for seed in range(20):
        values = noise(70, seed=seed)
        values[60:] = [1.1 * value for value in values[60:]]
        for place in (20, 45, 63, 66):
            values[place] *= 1.6
        found += any(abs(index - 60) <= 3 for index in confirmed(values))
    assert found >= 16
