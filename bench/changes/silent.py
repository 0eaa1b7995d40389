"""``python -m bench.changes.silent``: false alarms of many series at once, as benchmarks are.

Each machine has the same number of series, of normal noise of 3 % without a change. After each run,
all series of a machine are analyzed. One alarm is counted once.
"""

from __future__ import annotations

import argparse

import numpy as np

from bench.changes.series import Array
from ci.analysis.changes import POLICY, analyze, correction
from ci.analysis.levels import NORMAL

RUNS, FIRST = 120, 20
NEAR = 10  # runs; a later place of the same alarm
# In standard errors, by which outliers move a step at most. Series without a step that is so near
# the limit need no analysis, which takes a thousand times as long.
MOVED = 0.4


def count(series: int, seed: int) -> int:
    """The false alarms of one machine in ``RUNS`` runs, looked at after each from ``FIRST`` on."""
    values = 100 * np.random.default_rng(seed).normal(1, 0.03, (series, RUNS))
    possible = -NORMAL.inv_cdf(POLICY.alarm * correction(series) / 2) - MOVED
    found: list[tuple[int, int]] = []
    for end in range(FIRST, RUNS + 1):
        for row in np.flatnonzero(_largest_t(values[:, :end]) > possible):
            finding = analyze({row: values[row, :end]}, families=series)[row]
            for point in finding.changes:
                is_known = any(row == it and abs(point.index - at) <= NEAR for it, at in found)
                if point.confirmed and not is_known:
                    found.append((row, point.index))
    return len(found)


def _largest_t(values: Array) -> Array:
    """Student's t of the clearest step of each row: (rows,), from (rows, values)."""
    count = values.shape[1]
    before = np.arange(POLICY.confirm, count - POLICY.confirm + 1)
    after = count - before
    sums, squares = np.cumsum(values, 1), (values * values).sum(1, keepdims=True)
    low, high = sums[:, before - 1] / before, (sums[:, -1:] - sums[:, before - 1]) / after
    rest = (squares - before * low**2 - after * high**2) / (count - 2)
    largest: Array = np.abs((high - low) / np.sqrt(rest * (1 / before + 1 / after))).max(1)
    return largest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--machines", type=int, default=30, help="of each kind (default: 30)")
    options = parser.parse_args()
    looks = options.machines * (RUNS - FIRST + 1)
    print("| Series at once | Runs | False alarms in 1,000 runs |\n|--:|--:|--:|")
    for series in (25, 400, 4000):
        alarms = sum(count(series, seed) for seed in range(options.machines))
        print(f"| {series:,} | {looks:,} | {1000 * alarms / looks:.1f} |", flush=True)


if __name__ == "__main__":
    main()
