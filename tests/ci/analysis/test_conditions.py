"""What is no change of the code: calendars, modes of the machine, values like their neighbors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import MappingProxyType

import numpy as np
import pytest
from numpy.random import Generator

from ci.analysis.conditions import conditions, without_effects
from ci.analysis.histories import history
from ci.analysis.level_changes import LevelChange
from ci.analysis.levels import Values
from ci.facts.environment_key import environment_key
from ci.facts.measures import MISSES, REFERENCE
from ci.store.rows import RunMeasures
from tests.ci.stored_history import result

MONDAY = datetime(2026, 1, 5, tzinfo=UTC)
HOURS = (8, 11, 13, 16, 19)  # of five runs a day
WALL = "install.wall_s"
KEY = environment_key(result())
NOTHING: Mapping[str, Values] = MappingProxyType({})


def moments(count: int) -> list[datetime]:
    return [
        MONDAY + timedelta(days=number // len(HOURS), hours=HOURS[number % len(HOURS)])
        for number in range(count)
    ]


def changes(
    values: Values, at: Sequence[datetime], recorded: Mapping[str, Values] = NOTHING
) -> list[LevelChange]:
    """The confirmed changes of ``install.wall_s``, a commit per run."""
    rows = []
    for number, (value, moment) in enumerate(zip(values, at, strict=True)):
        measured = {WALL: float(value)}
        measured |= {name: float(some[number]) for name, some in recorded.items()}
        commit = f"{number:040x}"
        rows.append(RunMeasures(f"run-{number}", commit, False, moment, KEY.digest, measured))
    found = history(rows, {KEY.digest: KEY})
    assert {it.measure for env in found.environments for it in env.series} <= {WALL}
    return [
        change for _, shift in found.shifts for change in shift.changes if change.point.confirmed
    ]


def weekends(random: Generator, at: Sequence[datetime]) -> Values:
    """Noise of 3 %, and 8 % less on Saturdays and Sundays."""
    quiet = np.array([moment.weekday() >= 5 for moment in at])
    return np.array(100 * (1 - 0.08 * quiet + 0.03 * random.normal(size=len(at))))


def days(random: Generator, at: Sequence[datetime]) -> Values:
    """Noise of 2 %, and 5 % more at noon than at six."""
    hours = np.array([moment.hour for moment in at])
    day = 0.05 * np.sin(2 * np.pi * (hours - 6) / 24)
    return np.array(100 * (1 + day + 0.02 * random.normal(size=len(at))))


@pytest.mark.parametrize(
    ("cycle", "at"),
    [(weekends, moments(140)), (days, [MONDAY + timedelta(hours=it) for it in range(140)])],
)
def test_a_calendar_is_no_change(
    cycle: Callable[[Generator, Sequence[datetime]], Values], at: Sequence[datetime]
) -> None:
    looks = alarms = 0
    for seed in range(4):
        values = cycle(np.random.default_rng(seed), at)
        for count in range(20, 141, 3):
            looks += 1
            alarms += bool(changes(values[:count], at[:count]))
    assert alarms <= looks / 20


def test_a_change_on_a_saturday_is_found_beside_the_weekend() -> None:
    found = 0
    for seed in range(10):
        at = moments(115)
        values = weekends(np.random.default_rng(seed), at)
        values[103:] *= 1.10  # in the third week
        named = changes(values[:113], at[:113])
        found += any(abs(change.place - 103) <= 3 and change.is_worse for change in named)
    assert found >= 9


def test_a_slow_mode_of_the_machine_is_no_change() -> None:
    """The machine is 5 % slower for ten days of twenty, which the reference job shows."""
    looks = alarms = 0
    for seed in range(4):
        random, at = np.random.default_rng(seed), [MONDAY + timedelta(days=it) for it in range(90)]
        slow = 1 + 0.05 * (np.arange(90) // 10 % 2)
        values = 100 * slow * (1 + 0.015 * random.normal(size=90))
        reference = 0.02 * slow * (1 + 0.005 * random.normal(size=90))
        for count in range(45, 91, 3):
            looks += 1
            alarms += bool(changes(values[:count], at[:count], {REFERENCE: reference[:count]}))
    assert alarms <= looks / 50


def replaced(seed: int, *, slower: float, rise: float) -> list[LevelChange]:
    """The changes once another machine, and a slower build, came with run 80 of 110."""
    random, since = np.random.default_rng(seed), np.arange(110) >= 80
    noise, noise_of_job = random.normal(size=(2, 110))
    values = 100 * (1 + slower * since) * (1 + rise * since) * (1 + 0.015 * noise)
    job = 0.05 * (1 + slower * since) * (1 + 0.005 * noise_of_job)
    at = moments(110)
    return [
        change
        for count in range(85, 111, 5)
        for change in changes(values[:count], at[:count], {REFERENCE: job})
    ]


def test_a_slower_machine_of_the_same_name_is_no_change() -> None:
    """Without a look at the speeds, half of these have an alarm."""
    assert sum(bool(replaced(seed, slower=0.07, rise=0.0)) for seed in range(20)) <= 1


def test_a_rise_that_the_machine_explains_a_part_of_is_found() -> None:
    assert all(replaced(seed, slower=0.02, rise=0.08) for seed in range(20))


def test_what_a_warm_cache_lacks_is_no_change() -> None:
    """Builds compile 5 to 48 units, a week many and a week few; then each takes 20 % longer."""
    looks = alarms = found = 0
    for seed in range(6):
        random, at = np.random.default_rng(seed), [MONDAY + timedelta(days=it) for it in range(95)]
        most = np.where(np.arange(95) // 7 % 2, 15, 49)
        misses = random.integers(5, most)
        values = (20 + 2 * misses) * (1 + 0.03 * random.normal(size=95))
        for count in range(30, 81, 5):
            looks += 1
            alarms += bool(changes(values[:count], at[:count], {MISSES: misses[:count]}))
        values[85:] += 0.2 * 2 * misses[85:]
        named = changes(values, at, {MISSES: misses})
        found += any(abs(change.place - 85) <= 3 and change.is_worse for change in named)
    assert alarms <= looks / 20
    assert found >= 5


def test_values_like_their_neighbors_are_no_change() -> None:
    looks = alarms = 0
    for seed in range(6):
        random, at = np.random.default_rng(seed), [MONDAY + timedelta(days=it) for it in range(150)]
        values = [0.0]
        for shock in 0.026 * random.normal(size=149):
            values.append(0.5 * values[-1] + shock)
        whole = 100 * (1 + np.array(values))
        for count in range(15, 151, 5):
            looks += 1
            alarms += bool(changes(whole[:count], at[:count]))
    assert alarms <= looks / 50


@pytest.mark.parametrize(("size", "noise"), [(0.5, 0.01), (0.1, 0.01), (0.1, 0.03)])
def test_the_guilty_commit_is_between_the_runs_of_the_first_alarm(
    size: float, noise: float
) -> None:
    inside, widths = 0, []
    for seed in range(40):
        random, at = np.random.default_rng(seed), [MONDAY + timedelta(days=it) for it in range(60)]
        guilty = 40 + int(random.integers(7))
        values = 100 * (1 + noise * random.normal(size=60))
        values[guilty:] *= 1 + size
        looks = (changes(values[:count], at[:count]) for count in range(guilty + 1, 61))
        [change, *_] = next(found for found in looks if found)
        before, first = (int(it.run_id[4:]) for it in (change.before_run, change.run))
        inside += before < guilty <= first
        widths.append(first - before)
    assert inside >= 38
    assert np.mean(widths) < 4


def test_a_damaged_record_of_a_condition_is_unknown() -> None:
    """A store that a user edited may have any number."""
    values, at = np.full(40, 100.0), [MONDAY + timedelta(days=it) for it in range(40)]
    damaged = np.array([0.0, -5.0] * 20)
    assert changes(values, at, {REFERENCE: damaged, MISSES: damaged}) == []


def test_only_what_repeats_is_an_effect() -> None:
    """Ten hours that are slower than the ten before are no cycle."""
    at = [MONDAY + timedelta(hours=it) for it in range(60)]
    values = np.where(np.arange(60) < 30, 100.0, 130.0)
    assert np.array_equal(without_effects(values, conditions(at)), values)


def test_two_runs_a_week_do_not_tell_hours_from_weekdays() -> None:
    """The columns of both differ by a factor alone; their effect together is removed all the same.

    Wednesdays at 0:00 and Saturdays at 12:00: the covariance of such columns is singular.
    """
    at = [MONDAY + timedelta(days=2, hours=84 * number) for number in range(140)]
    noise = np.exp(0.03 * np.random.default_rng(1).normal(size=len(at)))
    given = conditions(at)
    assert np.array_equal(without_effects(100 * noise, given), 100 * noise)
    slower = np.where(np.arange(len(at)) % 2, 1.1, 1.0)
    left = without_effects(100 * noise * slower, given)
    assert np.mean(left[1::2]) / np.mean(left[::2]) == pytest.approx(1, abs=0.02)
