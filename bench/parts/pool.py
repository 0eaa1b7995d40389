"""How a Ray cluster queues jobs for 50 hosts, beside the model of `python -m ci capacity`.

The jobs are those of the part `capacity`. The hosts are places on four raylets of this machine, and
each job is a task that waits and holds a place of its platform. The engine starts an actor for each
platform, which takes a process and 0.6 CPU-seconds. Nine of them per second need six cores, so a
place keeps its process here.
"""

from __future__ import annotations

import logging
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from threading import Event, Thread
from time import monotonic, sleep
from typing import Any

from bench.context import Context, proportional_size
from bench.parts.capacity import HOSTS, RUNS, Load, Replayed, compare
from bench.rows import Measurement, MeasurementError
from ci.engines.ray.cluster import PLATFORM_RESOURCE, load_ray

RAYLETS = 4
STORE_BYTES = 100_000_000  # of Ray's objects, on each raylet
SAMPLE_S = 0.5
START_S = 300.0  # for 50 processes, on a machine that does much else
# Raylets tell the others what is free every 100 ms, which are 10 recorded seconds.
SETTINGS = {"raylet_report_resources_period_milliseconds": 10}
KEYS = ("pool-replay", "pool-throughput", "pool-memory")


def measure(context: Context) -> Iterator[Measurement]:
    """Replay the jobs on a cluster, and simulate the same."""
    try:
        ray = load_ray()
    except ImportError:
        for key in KEYS:
            yield Measurement(key=key, note="no Ray: pip install --group ray")
        return
    load = Load.recorded(context)
    empty = Load([0.0] * RUNS, dict.fromkeys(HOSTS, [0.0] * RUNS))
    with _cluster(ray), _memory() as sizes:
        _start_processes(ray, context.scratch)
        replayed = replay(load.faster(), context.scratch / "jobs")
        at_once = replay(empty, context.scratch / "empty-jobs")
    yield compare("pool-replay", load, replayed)
    jobs, seconds = RUNS * len(HOSTS), _end(at_once)
    note = f"{jobs:,} without duration, at once; the replay took {_end(replayed):.0f} s"
    yield Measurement(key="pool-throughput", value=jobs / seconds, note=note)
    yield Measurement(key="pool-memory", value=max(sizes) / 1e6, note="proportional")


def replay(load: Load, log: Path) -> dict[str, list[Replayed]]:
    """Run jobs as tasks of the cluster that this process is connected to.

    Each writes its label to ``log`` on its host. Raises ``MeasurementError`` if that shows a job
    that did not run exactly once.
    """
    task = _as_task(run_job)

    def submit(name: str, number: int, seconds: float) -> Any:
        place = {PLATFORM_RESOURCE.format(name): 1}
        return task.options(resources=place).remote(f"{name}-{number}", seconds, str(log))

    start, references = load.submit(submit)
    found = {
        name: [
            Replayed(begin - start, end - start) for begin, end in import_module("ray").get(some)
        ]
        for name, some in references.items()
    }
    require_each_once(log.read_text(encoding="ascii").split(), load)
    return found


def _as_task(function: Callable[..., object]) -> Any:
    ray = import_module("ray")
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # hosts lack this module
    return ray.remote(max_retries=0, num_cpus=0)(function)


def run_job(label: str, seconds: float, log: str) -> tuple[float, float]:
    """Take so long; return the begin and the end, by the clock that all processes here share."""
    begin = monotonic()
    with Path(log).open("a", encoding="ascii") as file:
        file.write(f"{label}\n")  # in one piece: it is short
    sleep(seconds)
    return begin, monotonic()


def require_each_once(labels: list[str], load: Load) -> None:
    """Raise ``MeasurementError`` if a job was lost or doubled."""
    expected = {
        f"{name}-{number}" for name, some in load.jobs.items() for number in range(len(some))
    }
    counts = Counter(labels)
    lost, doubled = expected - counts.keys(), [name for name, times in counts.items() if times > 1]
    if lost or doubled:
        raise MeasurementError(f"lost jobs: {sorted(lost)}; doubled jobs: {sorted(doubled)}")


def _end(replayed: Mapping[str, list[Replayed]]) -> float:
    return max(it.end for some in replayed.values() for it in some)


@contextmanager
def _cluster(ray: Any) -> Iterator[None]:
    """Start a head and raylets with the hosts, and connect."""
    places = _places()
    utilities = import_module("ray.cluster_utils")
    head = {"num_cpus": 0, "_system_config": SETTINGS}
    cluster = utilities.Cluster(initialize_head=True, head_node_args=head)
    try:
        for resources in places:
            # As many idle processes as CPUs live on.
            cluster.add_node(
                num_cpus=int(sum(resources.values())),
                resources=resources,
                object_store_memory=STORE_BYTES,
            )
        ray.init(cluster.address, log_to_driver=False, logging_level=logging.CRITICAL)
        yield
    finally:
        ray.shutdown()
        cluster.shutdown()


def _places() -> list[dict[str, float]]:
    """The hosts of all platforms, dealt out to the raylets."""
    places: list[dict[str, float]] = [{} for _ in range(RAYLETS)]
    hosts = [
        PLATFORM_RESOURCE.format(name) for name, number in HOSTS.items() for _ in range(number)
    ]
    for number, resource in enumerate(hosts):
        place = places[number % RAYLETS]
        place[resource] = place.get(resource, 0) + 1
    return places


def _start_processes(ray: Any, folder: Path) -> None:
    """Have each host start its process: all hold their places until the last one has begun."""
    go, log = folder / "go", folder / "started"
    task = _as_task(_hold)
    references = [
        task.options(resources={PLATFORM_RESOURCE.format(name): 1}).remote(str(log), str(go))
        for name, number in HOSTS.items()
        for _ in range(number)
    ]
    deadline = monotonic() + START_S
    while not log.exists() or len(log.read_text().split()) < len(references):
        if monotonic() > deadline:
            raise MeasurementError(f"the cluster did not start its processes in {START_S:.0f} s")
        sleep(SAMPLE_S)
    go.touch()
    ray.get(references)


def _hold(log: str, go: str) -> None:
    with Path(log).open("a", encoding="ascii") as file:
        file.write("started\n")
    while not Path(go).exists():
        sleep(SAMPLE_S)


@contextmanager
def _memory() -> Iterator[list[int]]:
    """Yield a list that gets the proportional sizes of this process until the block ends."""
    sizes: list[int] = []
    end = Event()

    def sample() -> None:
        while not end.wait(SAMPLE_S):
            sizes.append(proportional_size(os.getpid()))

    thread = Thread(target=sample)
    thread.start()
    try:
        yield sizes
    finally:
        end.set()
        thread.join()
