"""The compared methods: ours, those of other libraries, and the thresholds of today's tools."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import compress, pairwise
from statistics import median
from typing import Any, TypeAlias

import numpy as np

from bench.changes.replay import Climb, Method
from bench.changes.series import Array, LabelledSeries

ValueMethod: TypeAlias = Callable[[list[float]], Sequence[int]]


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One method; ``load`` imports what it needs."""

    name: str
    """Short, because it is a column title."""
    load: Callable[[], Callable[[Any], Sequence[int]]]
    cost: int = 1
    """Divides the number of series for slow methods."""
    sees_conditions: bool = False
    """Whether the method takes a whole series; otherwise its values."""

    def method(self) -> Method:
        """Raises ``ImportError`` if it is not installed."""
        loaded = self.load()
        return loaded if self.sees_conditions else lambda series: loaded(series.values)


def candidates() -> list[Candidate]:
    # PELT, implemented in C: a linear kernel has the cost l2; applied to ranks, the cost rank.
    linear = partial(_ruptures, "KernelCPD", kernel="linear")
    strict = partial(_otava, max_pvalue=0.0001, min_magnitude=0.03)
    # With a bounded kernel, a value of the smaller level gains less than one.
    bounded = partial(_ruptures, "KernelCPD", np.array, penalty=2.5, kernel="rbf")
    binseg = partial(_ruptures, "Binseg", _normalised, model="l2", jump=1)
    window = partial(_ruptures, "Window", _normalised, width=10, model="l2", jump=1)
    return [
        Candidate(name="ours", load=_ours, sees_conditions=True),
        Candidate(name="Otava", load=_otava, cost=4),
        Candidate(name="Otava strict", load=strict, cost=4),
        Candidate(name="asv", load=_asv, cost=4),
        Candidate(name="MongoDB", load=_mongodb, cost=20),
        Candidate(name="PELT l2", load=partial(linear, _normalised)),
        Candidate(name="PELT rank", load=partial(linear, _ranks)),
        Candidate(name="Kernel rbf", load=bounded),
        Candidate(name="Binseg", load=binseg, cost=10),
        Candidate(name="Window", load=window, cost=10),
        Candidate(name="skchange", load=_skchange, cost=10),
        Candidate(name="changeforest", load=_changeforest),
        Candidate(name="5 % prev.", load=partial(_alarm, 1, partial(_off_median, 0.05))),
        Candidate(name="10 % prev.", load=partial(_alarm, 1, partial(_off_median, 0.10))),
        Candidate(name="5 % med.", load=partial(_alarm, 10, partial(_off_median, 0.05))),
        Candidate(name="10 % med.", load=partial(_alarm, 10, partial(_off_median, 0.10))),
        Candidate(name="z 3", load=partial(_alarm, 30, _off_mean), cost=4),
    ]


def silent_method() -> Candidate:
    """Never reports a change: the score of silence, because people mark few changes."""
    return Candidate(name="none", load=_silent)


def _silent() -> ValueMethod:
    return lambda _: ()


def _ours() -> Method:
    from ci.analysis.changes import analyze

    def find(series: LabelledSeries) -> Sequence[int]:
        given = {"": series.given} if series.given else None
        found = analyze({"": series.values}, given=given)[""].changes
        return [
            Climb(it.index, range(it.earliest, it.latest + 1)) if it.is_gradual else it.index
            for it in found
            if it.confirmed
        ]

    return find


def _otava(**options: float) -> ValueMethod:
    from otava.analysis import compute_change_points

    return lambda values: [change.index for change in compute_change_points(values, **options)[0]]


def _mongodb() -> ValueMethod:
    from signal_processing_algorithms.energy_statistics.energy_statistics import e_divisive

    return lambda values: e_divisive(np.array(values), pvalue=0.01, permutations=100)


def _normalised(values: list[float]) -> Array:
    """In units of the noise, which is the unit of penalties."""
    noise = 1.4826 * float(np.median(np.abs(np.diff(values)))) / 2**0.5
    return np.asarray(values) / (noise or 1.0)


def _ranks(values: list[float]) -> Array:
    return np.argsort(np.argsort(values)) / (len(values) / 12**0.5)


def _ruptures(
    algorithm: str,
    transformed: Callable[[list[float]], Array],
    penalty: float | None = None,
    **options: object,
) -> ValueMethod:
    import ruptures

    def find(values: list[float]) -> Sequence[int]:
        fitted = getattr(ruptures, algorithm)(min_size=2, **options).fit(transformed(values))
        # The penalty is 3 log n: BIC's for a level and its position, increased by half.
        return list(fitted.predict(pen=penalty or 3 * float(np.log(len(values)))))[:-1]

    return find


def _skchange() -> ValueMethod:
    from skchange.detectors import SeededBinarySegmentation

    def find(values: list[float]) -> Sequence[int]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = SeededBinarySegmentation().fit_predict(_normalised(values).reshape(-1, 1))
        return [int(place) for place in np.asarray(found).ravel()]

    return find


def _asv() -> ValueMethod:
    """Airspeed velocity's steps: the L1 fit whose number of steps has the best criterion."""
    from asv.step_detect import detect_steps

    return lambda values: [left for left, *_ in detect_steps(values)[1:]]


def _changeforest() -> ValueMethod:
    from changeforest import changeforest

    def find(values: list[float]) -> Sequence[int]:
        found = changeforest(_normalised(values).reshape(-1, 1), "change_in_mean", "sbs")
        return list(found.split_points())

    return find


def _alarm(count: int, is_off: Callable[[list[float], float], bool]) -> ValueMethod:
    """Compare each value with the ``count`` values before it."""

    def find(values: list[float]) -> Sequence[int]:
        places = range(count, len(values))
        flags = [is_off(values[place - count : place], values[place]) for place in places]
        # Only the start of a sequence of flagged values: one alarm, not one for each run.
        begins = [flag and not before for before, flag in pairwise([False, *flags])]
        return list(compress(places, begins))

    return find


def _off_median(share: float, before: list[float], value: float) -> bool:
    level = median(before)
    return abs(value - level) > share * abs(level)


def _off_mean(before: list[float], value: float) -> bool:
    return bool(abs(value - float(np.mean(before))) > 3 * float(np.std(before, ddof=1)))
