"""The interpreter lock is released while a kernel runs, and threads do not disturb one another."""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from harness import Arguments, equal
from installed import TORCH_SLOT, Overload, overloads, selection
from programs import output_of
from samples import Sample
from samples.values import leaves

import infini.ops
import torch


@pytest.fixture
def _no_forced_switches() -> Iterator[None]:
    """Disable forced switches: a thread keeps the interpreter lock until it releases it."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("_no_forced_switches")
@pytest.mark.parametrize("as_array", [False, True], ids=["tensors", "arrays"])
def test_another_thread_runs_while_a_kernel_does(*, as_array: bool) -> None:
    x, out = torch.ones(512, 512), torch.zeros(512, 512)
    operands = (x.numpy(), x.numpy(), out.numpy()) if as_array else (x, x, out)
    gate, ran = threading.Lock(), []
    gate.acquire()

    def other() -> None:
        with gate:
            ran.append(True)

    thread = threading.Thread(target=other)
    thread.start()
    gate.release()
    for _ in range(1000):  # nothing else in this loop releases the lock
        infini.ops.mm(*operands)
        if ran:
            break
    assert ran, "the other thread never got the lock during 1000 matrix products"
    thread.join()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.operators
def test_eight_threads_compute_what_one_does() -> None:
    work = list(_work())
    expected = [_result(overload, sample) for overload, sample in work]
    assert len(work) > (0 if selection() else 500)
    start = threading.Barrier(8)

    def run(thread: int) -> list[str]:
        start.wait()
        order = range(len(work)) if thread % 2 else reversed(range(len(work)))
        return [
            work[i][0].qualified_name for i in order if not _same(_result(*work[i]), expected[i])
        ]

    with ThreadPoolExecutor(8) as pool:
        differences = list(pool.map(run, range(8)))
    assert differences == [[]] * 8


def _work() -> Iterator[tuple[Overload, Sample]]:
    for overload in overloads():
        samples = overload.samples()
        # All threads share one random generator, and uninitialized memory is random.
        if samples and not _is_random(overload.aten()) and "empty" not in overload.name:
            yield overload, samples[0]


def _is_random(aten: object) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(aten, "tags", ())


def _result(overload: Overload, sample: Sample) -> list[torch.Tensor] | str:
    arguments = sample.bind(overload.aten()._schema, "cpu")
    call: Callable[[Arguments], object] = overload.call(TORCH_SLOT, by_keyword=True)
    try:
        call(arguments)
    except Exception as error:
        return type(error).__name__
    return [value for value in leaves(list(arguments.values())) if isinstance(value, torch.Tensor)]


def _same(left: list[torch.Tensor] | str, right: list[torch.Tensor] | str) -> bool:
    if isinstance(left, str) or isinstance(right, str):
        return left == right
    return all(equal(*pair) for pair in zip(left, right, strict=True))


def test_a_warning_in_another_thread() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with ThreadPoolExecutor(1) as pool:
            pool.submit(infini.ops.abs, torch.ones(3), torch.zeros(5)).result()
    assert [warning.category for warning in caught] == [UserWarning]


FORKS = """
import os, sys, threading, warnings
from pathlib import Path

import infini.ops
import torch

tasks = Path("/proc/self/task")
torch.set_num_threads(1)  # so that torch's own calls start none
x, weight = torch.arange(1024.0).expand(64, 1024).contiguous(), torch.ones(1024)
expected = x.numpy() / (x[0].square().mean().item() + 1e-6) ** 0.5
torch.set_num_threads(4)  # these do not survive a fork
warnings.simplefilter("ignore", DeprecationWarning)  # of a fork with threads


def check():
    out = torch.empty(64, 1024)
    out.numpy()[:] = -1
    infini.ops.rms_norm(x, weight, out, implementation_index=0)
    assert abs(out.numpy() - expected).max() < 1e-4, "wrong results"


def started():
    before = set(tasks.iterdir())
    for _ in range(3):
        check()
    return len(set(tasks.iterdir()) - before)


def fork(generations, run):
    child = os.fork()
    if child == 0:
        try:
            run()
            if generations > 1:
                fork(generations - 1, run)
            os._exit(0)
        except BaseException as error:
            print(error, file=sys.stderr, flush=True)
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0, "a child failed"


def start_own():
    assert started() > 0, "the child started no threads"
    assert started() == 0, "the child lost its threads"


assert started() > 0
for _ in range(3):
    fork(2, start_own)
    assert started() == 0, "the parent lost its threads"

# By a thread that is not the main one, while that is in calls.
forks = threading.Thread(target=lambda: [fork(1, check) for _ in range(5)])
forks.start()
while forks.is_alive():
    check()
fork(1, start_own)
"""


@pytest.mark.cpu_kernels
@pytest.mark.operators("rms_norm")
def test_children_of_forks_start_threads_of_their_own() -> None:
    """They have none of their parents', and must not wait for them. Those still have theirs."""
    output_of([sys.executable, "-c", FORKS], timeout=60)
