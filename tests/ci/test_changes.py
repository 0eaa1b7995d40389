"""Change points told from noise: what is found, when, and what is not."""

from __future__ import annotations

import numpy as np
import pytest

from ci.analysis.changes import POLICY, Finding, against, analyse


def noise(count: int, *, level: float = 100.0, spread: float = 3.0, seed: int = 0) -> list[float]:
    return list(np.random.default_rng(seed).normal(level, spread, count))


def look(values: list[float]) -> Finding:
    return analyse({"x": values})["x"]


def test_a_step_is_confirmed_with_its_place_and_size() -> None:
    finding = look(noise(40) + noise(20, level=110, seed=1))
    (change,) = finding.changes
    assert change.confirmed
    assert change.index == 40
    assert change.low < 0.1 < change.high
    assert change.probability > 0.999
    assert finding.level == pytest.approx(110, rel=0.02)


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


def test_constant_values_say_nothing() -> None:
    for value in (0.0, 7.0):
        finding = look([value] * 50)
        assert finding.changes == ()
        assert finding.level == value


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_short_series_say_nothing(count: int) -> None:
    finding = look(noise(count))
    assert finding.changes == ()
    assert (finding.level is None) == (count == 0)


def test_exact_measures_have_no_noise() -> None:
    finding = analyse({"units": [15.0, 15.0, 16.0, 16.0]}, exact=["units"])["units"]
    (change,) = finding.changes
    assert (change.index, change.before, change.after) == (2, 15, 16)
    assert change.confirmed


def test_one_new_value_is_suspected_at_most() -> None:
    baseline = noise(30)
    suspected = against(baseline, [130.0])
    assert suspected is not None
    assert not suspected.confirmed
    assert against(baseline, [103.0]) is None
    confirmed = against(baseline, noise(5, level=115, seed=2))
    assert confirmed is not None
    assert confirmed.confirmed


def test_what_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match="series 'x': value 1 is nan; expected a number"):
        look([1.0, float("nan")])
