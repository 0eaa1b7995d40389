"""What the replay on a cluster counts; ``tests/e2e/test_ray.py`` replays some jobs on one."""

from __future__ import annotations

import pytest

from bench.parts.capacity import HOSTS, Load
from bench.parts.pool import RAYLETS, _places, require_each_once
from bench.rows import MeasurementError

LOAD = Load([0.0, 0.0], {"cpu": [1.0, 1.0], "moore": [1.0, 1.0]})
LABELS = ["cpu-0", "moore-0", "moore-1", "cpu-1"]


@pytest.mark.parametrize(
    ("labels", "error"),
    [
        (LABELS[1:], r"lost jobs: \['cpu-0'\]; doubled jobs: \[\]"),
        ([*LABELS, "moore-1"], r"lost jobs: \[\]; doubled jobs: \['moore-1'\]"),
        ([*LABELS[1:], "moore-1"], r"lost jobs: \['cpu-0'\]; doubled jobs: \['moore-1'\]"),
    ],
)
def test_each_job_counts_once(labels: list[str], error: str) -> None:
    require_each_once(LABELS, LOAD)
    with pytest.raises(MeasurementError, match=error):
        require_each_once(labels, LOAD)


def test_all_hosts_are_dealt_out() -> None:
    places = _places()
    sizes = [sum(place.values()) for place in places]
    assert (len(places), max(sizes) - min(sizes)) == (RAYLETS, 1)
    for name, hosts in HOSTS.items():
        assert sum(place.get(f"platform:{name}", 0) for place in places) == hosts
