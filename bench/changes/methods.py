"""Ours, other libraries, and what tools of today do."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from statistics import median
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from bench.changes.replay import Method

Array: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Rival:
    """One method; ``load`` imports what it needs."""

    name: str
    """Short: it heads a column."""
    load: Callable[[], Method]
    cost: int = 1
    """How many times fewer series it gets to see, since it is so slow."""


def rivals() -> list[Rival]:
    return [
        Rival(name="ours", load=_ours),
        Rival(name="Otava", load=_otava, cost=4),
        Rival(name="Otava strict", load=_strict_otava, cost=4),
        Rival(name="MongoDB", load=_mongodb, cost=20),
        Rival(name="PELT l2", load=partial(_pelt, _normalised)),
        Rival(name="PELT rank", load=partial(_pelt, _ranks)),
        Rival(name="Kernel rbf", load=_kernel),
        Rival(name="Binseg", load=_binseg, cost=10),
        Rival(name="Window", load=_window, cost=10),
        Rival(name="skchange", load=_skchange, cost=10),
        Rival(name="changeforest", load=_changeforest),
        Rival(name="5 % prev.", load=partial(_above_previous, 0.05)),
        Rival(name="10 % prev.", load=partial(_above_previous, 0.10)),
        Rival(name="5 % med.", load=partial(_off_median, 0.05)),
        Rival(name="10 % med.", load=partial(_off_median, 0.10)),
        Rival(name="z 3", load=_z_score, cost=4),
    ]


def nothing() -> Rival:
    """It never reports a change: the score that silence gets, since people mark little."""
    return Rival(name="none", load=_silence)


def _silence() -> Method:
    return lambda _: ()


def _ours() -> Method:
    from ci.analysis.changes import analyse

    def find(values: list[float]) -> Sequence[int]:
        finding = analyse({"": values})[""]
        return [change.index for change in finding.changes if change.confirmed]

    return find


def _otava() -> Method:
    from otava.analysis import compute_change_points

    return lambda values: [change.index for change in compute_change_points(values)[0]]


def _strict_otava() -> Method:
    from otava.analysis import compute_change_points

    def find(values: list[float]) -> Sequence[int]:
        found, _ = compute_change_points(values, max_pvalue=0.0001, min_magnitude=0.03)
        return [change.index for change in found]

    return find


def _mongodb() -> Method:
    from signal_processing_algorithms.energy_statistics.energy_statistics import e_divisive

    return lambda values: e_divisive(np.array(values), pvalue=0.01, permutations=100)


def _normalised(values: list[float]) -> Array:
    """In units of the noise, which penalties are in."""
    noise = 1.4826 * float(np.median(np.abs(np.diff(values)))) / 2**0.5
    normalised: Array = np.asarray(values) / (noise or 1.0)
    return normalised


def _penalty(values: list[float]) -> float:
    """3 log n: BIC's for a level and its place, and half as much again."""
    return 3 * float(np.log(len(values)))


def _pelt(transformed: Callable[[list[float]], Array]) -> Method:
    """PELT as written in C: a linear kernel is the cost l2; on ranks, the cost rank."""
    import ruptures

    def find(values: list[float]) -> Sequence[int]:
        algorithm = ruptures.KernelCPD(kernel="linear", min_size=2).fit(transformed(values))
        return list(algorithm.predict(pen=_penalty(values)))[:-1]

    return find


def _ranks(values: list[float]) -> Array:
    ranks: Array = np.argsort(np.argsort(values)) / (len(values) / 12**0.5)
    return ranks


def _kernel() -> Method:
    import ruptures

    # The gain of a bounded kernel is less than one for each value of the smaller level.
    def find(values: list[float]) -> Sequence[int]:
        algorithm = ruptures.KernelCPD(kernel="rbf", min_size=2).fit(np.array(values))
        return list(algorithm.predict(pen=2.5))[:-1]

    return find


def _binseg() -> Method:
    import ruptures

    def find(values: list[float]) -> Sequence[int]:
        algorithm = ruptures.Binseg(model="l2", min_size=2, jump=1).fit(_normalised(values))
        return list(algorithm.predict(pen=_penalty(values)))[:-1]

    return find


def _window() -> Method:
    import ruptures

    def find(values: list[float]) -> Sequence[int]:
        algorithm = ruptures.Window(width=10, model="l2", min_size=2, jump=1)
        return list(algorithm.fit(_normalised(values)).predict(pen=_penalty(values)))[:-1]

    return find


def _skchange() -> Method:
    from skchange.detectors import SeededBinarySegmentation

    def find(values: list[float]) -> Sequence[int]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = SeededBinarySegmentation().fit_predict(_normalised(values).reshape(-1, 1))
        return [int(place) for place in np.asarray(found).ravel()]

    return find


def _changeforest() -> Method:
    from changeforest import changeforest

    def find(values: list[float]) -> Sequence[int]:
        found = changeforest(_normalised(values).reshape(-1, 1), "change_in_mean", "sbs")
        return list(found.split_points())

    return find


def _above_previous(share: float) -> Method:
    def find(values: list[float]) -> Sequence[int]:
        pairs = pairwise(values)
        return _first([abs(new - old) > share * abs(old) for old, new in pairs], 1)

    return find


def _off_median(share: float, count: int = 10) -> Method:
    def find(values: list[float]) -> Sequence[int]:
        flags: list[bool] = []
        for place in range(count, len(values)):
            level = median(values[place - count : place])
            flags.append(abs(values[place] - level) > share * abs(level))
        return _first(flags, count)

    return find


def _z_score(limit: float = 3.0, count: int = 30) -> Method:
    def find(values: list[float]) -> Sequence[int]:
        flags: list[bool] = []
        for place in range(count, len(values)):
            window = values[place - count : place]
            limit_here = limit * float(np.std(window, ddof=1))
            flags.append(abs(values[place] - float(np.mean(window))) > limit_here)
        return _first(flags, count)

    return find


def _first(flags: Sequence[bool], offset: int) -> list[int]:
    """Where a row of flags begins: one alarm, not one for each run."""
    return [
        place + offset
        for place, flag in enumerate(flags)
        if flag and not (place and flags[place - 1])
    ]
