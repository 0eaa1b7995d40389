"""Statistics of interleaved timings: medians, paired ratios and their spread."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The median, and the interval that 95 % of the values lie in."""

    median: float
    low: float
    high: float


def summarize(values: Sequence[float]) -> Summary:
    """Summarises at least one value; with few values the interval is all of them."""
    # Fortieths, of which the outer ones are 2.5 %; they take two values or more.
    cuts = statistics.quantiles(values, n=40, method="inclusive") if len(values) > 1 else values
    return Summary(median=statistics.median(values), low=cuts[0], high=cuts[-1])


def paired_ratios(values: Sequence[float], references: Sequence[float]) -> list[float]:
    """Ratio per round: both sides of one ran back to back, under the same load."""
    return [value / reference for value, reference in zip(values, references, strict=True)]


def paired_differences(values: Sequence[float], references: Sequence[float]) -> list[float]:
    """Difference per round, see ``paired_ratios``."""
    return [value - reference for value, reference in zip(values, references, strict=True)]


def medians_by_round(series: Sequence[Sequence[float]]) -> list[float]:
    """Takes one value per round of every operator; returns the operators' median per round."""
    return [statistics.median(values) for values in zip(*series, strict=True)]
