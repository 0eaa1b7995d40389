"""The replay that the model of queues is compared with; nothing here is timed."""

from __future__ import annotations

from itertools import pairwise

from bench.parts.capacity import Load, replay

JOBS = {"cpu": [0.02, 0.0, 0.01, 0.03, 0.0, 0.01], "ascend": [0.01] * 6}
HOSTS = {"cpu": 1, "ascend": 3}


def test_every_job_runs_once_in_order_and_no_host_has_two() -> None:
    found = replay(Load([0.0] * 6, JOBS), HOSTS)
    for name, runs in found.items():
        assert all(it.end - it.begin >= took for it, took in zip(runs, JOBS[name], strict=True))
        begins = [it.begin for it in runs]
        assert all(sum(it.begin <= at < it.end for it in runs) <= HOSTS[name] for at in begins)
    cpu = found["cpu"]
    assert all(first.end <= later.begin for first, later in pairwise(cpu))
