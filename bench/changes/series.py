"""Series with known change points: generated ones, and public ones with labels by people.

The public series are real measurements. None of them is stored here.
"""

from __future__ import annotations

import ast
import hashlib
import io
import json
import tarfile
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from bench.rows import MeasurementError
from ci.analysis.conditions import Conditions, conditions

Array: TypeAlias = NDArray[np.float64]
Source: TypeAlias = Callable[[Generator, int], Array]
"""Generates that many values with the random generator."""

LEVEL = 100.0
# Runs before a step that are checked for false alarms; long silences have series of their own.
_WATCHED = 2
# Apache Otava's source distribution (Apache-2.0) has TigerBeetle's benchmark in its tests.
OTAVA = (
    "https://files.pythonhosted.org/packages/8c/27/"
    "e1a88fc2e8d743f715c24d77cf9732bf429ea63e3d3451cca1946072b786/apache_otava-0.8.0.tar.gz"
)
OTAVA_SHA256 = "9ae53559c9396f27053db7d853780fb2ddbbf70f59124591c44b23fa2e2f9d94"
_TIGERBEETLE = "apache_otava-0.8.0/tests/tigerbeetle_test.py"
# Its authors describe it: "a couple distinctive ups and down, anomalous drop, then an upward slope
# and the rest is just normal variance", and mark 10 (the drop), 16, 71 and 97. A rise of 3 % at 61
# is visible in their plot but has no mark.
_CHANGES = (15, 71, 95)
_UNMARKED = (61,)
# After this index there is only noise.
_NOISE_FROM = 215


@dataclass(frozen=True, kw_only=True)
class LabelledSeries:
    """Values, oldest first, and the indices at which their level is known to change."""

    values: list[float]
    changes: tuple[int, ...] = ()
    neutral: tuple[int, ...] = ()
    """Indices that may or may not be changes: they are ignored in the score."""
    marks: tuple[tuple[int, ...], ...] = ()
    """The marks of each person, if several people labelled the series."""
    first_look: int = 10
    """The number of values at the first analysis."""
    given: Conditions | None = None
    """The time of each run, and the machine's speed, for methods that use them."""

    def first(self, count: int) -> LabelledSeries:
        """The series as it was after ``count`` runs."""
        given = self.given and self.given.take(slice(0, count))
        return replace(self, values=self.values[:count], given=given)


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One kind of series; the same seed always generates the same one."""

    name: str
    make: Callable[[Generator], LabelledSeries]
    cost: int = 1
    """Divides the number of these series, because they are long."""

    def series(self, seed: int) -> LabelledSeries:
        return self.make(np.random.default_rng([seed, *self.name.encode()]))


def step(name: str, size: float, source: Source, *, before: int = 60, after: int = 10) -> Scenario:
    """One step after ``before`` to ``before + 20`` values, up or down by ``size``."""

    def make(random: Generator) -> LabelledSeries:
        place = before + int(random.integers(20))
        return _stepped(source(random, place + after), place, size, place - _WATCHED)

    return Scenario(name=name, make=make)


def _stepped(values: Array, place: int, size: float, first_look: int) -> LabelledSeries:
    values[place:] *= 1 + size
    return LabelledSeries(values=list(values), changes=(place,), first_look=first_look)


def relative_noise(noise: Source) -> Source:
    """Values around one level, with noise relative to it."""
    return lambda random, count: LEVEL * (1 + noise(random, count))


def _gauss(spread: float) -> Source:
    return relative_noise(lambda random, count: spread * random.normal(size=count))


def _spikes(random: Generator, count: int) -> Array:
    """One run in twenty takes 1.3 to 3 times as long."""
    spikes = (random.random(count) < 0.05) * random.uniform(0.3, 2, count)
    return 0.03 * random.normal(size=count) + spikes


def _bimodal(random: Generator, count: int) -> Array:
    """One run in five is on a machine that is 10 % slower."""
    return 0.01 * random.normal(size=count) + 0.1 * (random.random(count) < 0.2)


def _variance(random: Generator, count: int) -> Array:
    """Noise of 1 % that becomes noise of 5 %, and then 1 % again."""
    spread = np.where(np.arange(count) // (count // 4) % 2, 0.05, 0.01)
    return spread * random.normal(size=count)


def _skewed(random: Generator, count: int) -> Array:
    """Like many durations: never much faster, sometimes much slower."""
    return 0.03 * (random.gamma(1.5, size=count) - 1.5)


def _drift(rate: float) -> Source:
    return lambda random, count: 0.03 * random.normal(size=count) + rate * np.arange(count)


def _whole_seconds(random: Generator, count: int) -> Array:
    return np.round(0.01 * random.normal(size=count), 2)


def five_levels() -> Scenario:
    """Five levels of 30 to 60 runs, with steps of 8 to 25 % up and down."""

    def make(random: Generator) -> LabelledSeries:
        lengths = random.integers(30, 60, size=5)
        sizes = random.uniform(0.08, 0.25, size=5) * random.choice((-1, 1), size=5)
        levels = np.cumprod(1 + np.where(np.arange(5) > 0, sizes, 0))
        values = _gauss(0.03)(random, int(lengths.sum())) * np.repeat(levels, lengths)
        return LabelledSeries(values=list(values), changes=tuple(np.cumsum(lengths)[:-1].tolist()))

    return Scenario(name="five levels, steps of 8 to 25 %, noise 3%", make=make, cost=8)


def leak(spread: float) -> Scenario:
    """0.1 % more in each of 120 runs."""

    def make(random: Generator) -> LabelledSeries:
        place = 80 + int(random.integers(20))
        values = _gauss(spread)(random, place + 160)
        values *= 1.001 ** np.clip(np.arange(len(values)) - place + 1, 0, 120)
        return LabelledSeries(values=list(values), changes=(place,), first_look=place - _WATCHED)

    return Scenario(name=f"leak of 0.1 % a run, noise {spread:.0%}", make=make, cost=8)


def missing_runs() -> Scenario:
    """A step of 10 %; three runs in ten are missing."""
    name = "step +10%, noise 3%, missing runs"
    complete = step(name, 0.10, _gauss(0.03), before=80, after=20)

    def make(random: Generator) -> LabelledSeries:
        whole = complete.make(random)
        there = random.random(len(whole.values)) > 0.3
        values = [value for value, kept in zip(whole.values, there, strict=True) if kept]
        change = int(there[: whole.changes[0]].sum())
        return LabelledSeries(values=values, changes=(change,), first_look=change - _WATCHED)

    return Scenario(name=name, make=make)


def young_history() -> Scenario:
    """A step of 10 % after only 15 runs."""
    return Scenario(
        name="step +10%, noise 3%, after 15 runs",
        make=lambda random: _stepped(_gauss(0.03)(random, 25), 15, 0.1, first_look=10),
    )


def step_scenarios() -> Iterator[Scenario]:
    sizes = {0.03: (0.02, 0.03, 0.05, 0.10, 0.20, 0.30, -0.10), 0.01: (0.02, 0.03, 0.05)}
    for spread, some in (sizes | {0.05: (0.10, 0.20)}).items():
        for size in some:
            yield step(f"step {size:+.0%}, noise {spread:.0%}", size, _gauss(spread))
    spiky = step("step +10%, noise 3%, spikes", 0.10, relative_noise(_spikes))
    yield from (young_history(), missing_runs(), spiky, five_levels())
    yield from map(leak, (0.01, 0.02, 0.03))


def noise_scenarios() -> Iterator[Scenario]:
    """Only noise of one kind."""
    for spread in (0.01, 0.03, 0.05):
        yield _noise_scenario(f"noise {spread:.0%}", _gauss(spread))
    kinds: dict[str, Source] = {
        "noise 3%, spikes in 5 % of the runs": _spikes,
        "two modes 10 % apart, 80 : 20": _bimodal,
        "noise 1%, then 5%, and back": _variance,
        "skewed noise (gamma, 3.7 %)": _skewed,
        "related noise (AR(1) 0.5, 3 %)": partial(_autoregressive, related=0.5),
        "drift of 0.1 % a run, noise 3%": _drift(0.001),
        "drift of 0.5 % a run, noise 3%": _drift(0.005),
        "noise 1%, whole seconds of 100": _whole_seconds,
    }
    for name, noise in kinds.items():
        yield _noise_scenario(name, relative_noise(noise))


def _noise_scenario(name: str, source: Source) -> Scenario:
    return Scenario(name=name, make=lambda random: LabelledSeries(values=list(source(random, 120))))


# What machines of a team do


Recorded: TypeAlias = Mapping[str, Sequence[float]]
"""What runs recorded: arguments of ``conditions``."""
MONDAY = datetime(2026, 1, 5, tzinfo=UTC)
_SILENT_RUNS = 300  # of a machine's noise, looked at after each


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The noise of a machine: relative values, with what the runs recorded."""

    name: str
    noise: Callable[[Generator, Array], tuple[Array, Recorded]]
    """From the hours since Monday to deviations and what the runs recorded beside them."""
    hours: Callable[[int], Array] = lambda count: 2 + 24.0 * np.arange(count)

    def scenario(self, size: float = 0.0) -> Scenario:
        """Only noise, or a step of ``size`` after 80 to 100 runs."""
        title = f"{self.name}, step {size:+.0%}" if size else self.name
        return Scenario(name=title, make=partial(self._make, size=size), cost=6)

    def _make(self, random: Generator, *, size: float) -> LabelledSeries:
        place = 80 + int(random.integers(20)) if size else _SILENT_RUNS
        hours = self.hours(place + 20 if size else _SILENT_RUNS)
        deviations, recorded = self.noise(random, hours)
        values = LEVEL * (1 + deviations)
        values[place:] *= 1 + size
        moments = [MONDAY + timedelta(hours=float(it)) for it in hours]
        return LabelledSeries(
            values=list(values),
            changes=(place,) if size else (),
            first_look=place - _WATCHED if size else 10,
            given=conditions(moments, **recorded),
        )


def machines() -> Iterator[Machine]:
    """The machines of a team."""

    def plain(noise: Source) -> Callable[[Generator, Array], tuple[Array, Recorded]]:
        return lambda random, hours: (noise(random, len(hours)), {})

    spreads: dict[str, Source] = {
        "normal 3 %": lambda random, count: 0.03 * random.normal(size=count),
        "Student's t, 3 degrees, 3 %": lambda random, count: (
            0.03 / 3**0.5 * random.standard_t(3, size=count)
        ),
        "normal 5 %": lambda random, count: 0.05 * random.normal(size=count),
        "lognormal 5 %": lambda random, count: np.exp(0.05 * random.normal(size=count)) - 1,
        "noisy neighbors": lambda random, count: (
            0.03 * random.normal(size=count)
            + (random.random(count) < 0.05) * random.uniform(0.2, 1, count)
        ),
        "AR(0.5), 3 %": lambda random, count: _autoregressive(random, count, 0.5),
        "AR(0.7), 3 %": lambda random, count: _autoregressive(random, count, 0.7),
    }
    for name, noise in spreads.items():
        yield Machine(name=name, noise=plain(noise))
    yield Machine(name="modes 5 % apart", noise=partial(_modes, is_recorded=False))
    yield Machine(name="the same, speed recorded", noise=partial(_modes, is_recorded=True))
    yield Machine(name="day and week, 12 runs a day", noise=_day_and_week, hours=_every_two_hours)
    yield Machine(name="weekend -8 %, 5 runs a day", noise=_weekend, hours=_in_office_hours)
    yield Machine(name="warm cache", noise=_warm_cache)


def _autoregressive(random: Generator, count: int, related: float, spread: float = 0.03) -> Array:
    """Every run has a part of its predecessor's deviation; ``spread`` is that of single runs."""
    values: Array = spread * random.normal(size=count)
    for place in range(1, count):
        values[place] = related * values[place - 1] + (1 - related**2) ** 0.5 * values[place]
    return values


def _modes(random: Generator, hours: Array, *, is_recorded: bool) -> tuple[Array, Recorded]:
    """Two modes of the clock, of 15 runs on average; the reference job has a noise of 0.5 %."""
    count = len(hours)
    slow = np.cumsum(random.random(count) < 1 / 15) % 2
    reference = (1 + 0.05 * slow) * (1 + 0.005 * random.normal(size=count))
    values = 0.015 * random.normal(size=count) + 0.05 * slow
    return values, {"speeds": list(reference)} if is_recorded else {}


def _day_and_week(random: Generator, hours: Array) -> tuple[Array, Recorded]:
    day = 0.05 * np.sin(2 * np.pi * hours / 24)
    return 0.02 * random.normal(size=len(hours)) + day - 0.05 * _is_weekend(hours), {}


def _weekend(random: Generator, hours: Array) -> tuple[Array, Recorded]:
    return 0.03 * random.normal(size=len(hours)) - 0.08 * _is_weekend(hours), {}


def _warm_cache(random: Generator, hours: Array) -> tuple[Array, Recorded]:
    """Builds of 10 to 100 of 200 translation units, of different cost; a tenth of it is fixed."""
    cost = np.exp(0.6 * random.normal(size=200))
    misses = np.exp(random.uniform(np.log(10), np.log(100), len(hours))).astype(int)
    taken = np.array([random.choice(cost, count, replace=False).sum() for count in misses])
    taken *= 1 + 0.02 * random.normal(size=len(hours))
    usual = cost.mean() * 50
    return (0.1 * usual + taken) / usual - 1, {"misses": list(misses)}


def _is_weekend(hours: Array) -> Array:
    weekend: Array = (hours // 24 % 7 >= 5).astype(float)
    return weekend


def _every_two_hours(count: int) -> Array:
    return 2.0 * np.arange(count)


def _in_office_hours(count: int) -> Array:
    day, run = np.divmod(np.arange(count), 5)
    hours: Array = 24.0 * day + np.array((8, 11, 13, 16, 19))[run]
    return hours


# Series of others


def tigerbeetle(archive: Path | None = None) -> LabelledSeries:
    """Load the series from a downloaded archive or from PyPI."""
    if archive:
        content = archive.read_bytes()
    else:
        with urllib.request.urlopen(OTAVA, timeout=60) as answer:
            content = answer.read()
    found = hashlib.sha256(content).hexdigest()
    if found != OTAVA_SHA256:
        raise MeasurementError(f"{archive or OTAVA}: sha256 is {found}; expected {OTAVA_SHA256}")
    with tarfile.open(fileobj=io.BytesIO(content)) as files:
        member = files.extractfile(_TIGERBEETLE)
        text = member.read().decode() if member else ""
    values = next(
        ast.literal_eval(node)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.List) and len(node.elts) > 300
    )
    return LabelledSeries(values=list(map(float, values)), changes=_CHANGES, neutral=_UNMARKED)


def injected(series: LabelledSeries, size: float) -> Scenario:
    """A step in real noise: a part of TigerBeetle's series, shifted from some index on."""
    noise = np.array(series.values[_NOISE_FROM:])

    def stretch(random: Generator, count: int) -> Array:
        start = int(random.integers(len(noise) - count))
        return noise[start : start + count].copy()

    return step(f"TigerBeetle's noise (1.2 %), step {size:+.0%}", size, stretch)


def turing(folder: Path) -> Iterator[LabelledSeries]:
    """Read a folder in the format of the Turing Change Point Dataset, Mozilla's for example.

    ``annotations.json`` contains the marks of each person in each series. People do not agree, so
    each series is analyzed once and scored against all of them. Missing values (``null``) are
    removed without a gap. Series with several measures are ignored.
    """
    annotations = json.loads((folder / "annotations.json").read_text())
    for path in sorted((folder / "datasets").glob("**/*.json")):
        document = json.loads(path.read_text())
        people = annotations.get(path.stem)
        if people and document["n_dim"] == 1:
            raw = document["series"][0]["raw"]
            values = [float(value) for value in raw if value is not None]
            there = [value is not None for value in raw]
            marks = tuple(tuple(sum(there[:place]) for place in marks) for marks in people.values())
            yield LabelledSeries(values=values, marks=marks, first_look=len(values))
