"""Compiles variants in worker processes, or takes them from the cache."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from codegen.errors import GenerationError
from codegen.output import digest_of
from codegen.triton import cache
from codegen.triton.cache import Kernel
from codegen.triton.spec import Variant
from codegen.triton.toolchain import Toolchain
from codegen.triton.tree import Plan, Source

_WORKER = Path(__file__).parent / "worker.py"


@dataclass(frozen=True, kw_only=True)
class Job:
    """One variant for one target."""

    source: Source
    variant: Variant
    target: int

    def text(self) -> str:
        """The job as a worker reads it, where the file lies apart: it is no part of a key."""
        variant = self.variant
        fields = {
            "function": variant.kernel,
            "types": dict(variant.types),
            "constants": dict(variant.constants),
            "divisible": sorted(variant.divisible),
            "target": self.target,
            "options": {
                "num_warps": variant.num_warps,
                "num_stages": variant.num_stages,
                # As nvcc does for PyTorch's own kernels: a product and a sum are rounded once.
                "enable_fp_fusion": True,
            },
        }
        return json.dumps(fields, sort_keys=True)

    def key(self, toolchain: Toolchain) -> str:
        """A digest of everything that the compiled kernel depends on."""
        texts = (self.text(), toolchain.version, toolchain.assemblers)
        files = (self.source.kernel, _WORKER)
        return digest_of(
            [*(text.encode() for text in texts), *(path.read_bytes() for path in files)]
        )


def jobs_of(plans: Sequence[Plan]) -> list[Job]:
    """Every variant for every target."""
    return [
        Job(source=plan.source, variant=variant, target=target)
        for plan in plans
        for target, variants in plan.variants.items()
        for variant in variants
    ]


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """The kernels by the keys of their jobs."""

    kernels: Mapping[str, Kernel]
    fresh: int  # how many of them were not in the cache
    notes: tuple[str, ...]


def compile_all(
    jobs: Sequence[Job], toolchain: Toolchain, *, folder: Path, workers: int
) -> Compiled:
    """Takes kernels from the cache in ``folder``, compiles the others and puts them there."""
    wanted = {job.key(toolchain): job for job in jobs}
    found = {key: cache.load(folder, key) for key in wanted}
    kernels = {key: kernel for key, kernel in found.items() if kernel}
    missing = [(key, job) for key, job in wanted.items() if key not in kernels]
    fresh = _compile(missing, toolchain, workers)
    notes = _store(fresh, folder)
    return Compiled(kernels={**kernels, **fresh}, fresh=len(fresh), notes=notes)


def _store(kernels: Mapping[str, Kernel], folder: Path) -> tuple[str, ...]:
    try:
        for key, kernel in kernels.items():
            cache.store(folder, key, kernel)
    except OSError as error:  # a home folder that is not writable is no reason to fail
        return (f"{folder}: {error.strerror}; kernels are not kept (set {cache.VARIABLE})",)
    return ()


def _compile(
    jobs: Sequence[tuple[str, Job]], toolchain: Toolchain, workers: int
) -> dict[str, Kernel]:
    """Each thread feeds a process of its own, job after job: importing triton takes a second."""
    pending: queue.SimpleQueue[tuple[str, Job]] = queue.SimpleQueue()
    for job in jobs:
        pending.put(job)
    kernels: dict[str, Kernel] = {}
    failed = threading.Event()

    def work(scratch: str) -> None:
        with _start_worker(toolchain, scratch) as process:
            try:
                while not failed.is_set():
                    key, job = pending.get_nowait()
                    kernels[key] = _ask(process, job)
            except queue.Empty:
                pass
            except BaseException:
                failed.set()  # one failure is enough
                raise

    count = min(workers, len(jobs))
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(count or 1) as pool:
        for future in [pool.submit(work, scratch) for _ in range(count)]:
            future.result()
    return kernels


def _start_worker(toolchain: Toolchain, scratch: str) -> subprocess.Popen[str]:
    # Triton's variables change what it compiles, and its own cache knows less than ours.
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("TRITON_")
    }
    environment["TRITON_CACHE_DIR"] = scratch
    # Paths of this machine are not in the code, so it is the same everywhere; and it is smaller.
    environment["TRITON_DISABLE_LINE_INFO"] = "1"
    return subprocess.Popen(
        [*toolchain.python, _WORKER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )


def _ask(process: subprocess.Popen[str], job: Job) -> Kernel:
    assert process.stdin
    assert process.stdout
    request = {**json.loads(job.text()), "path": str(job.source.kernel)}
    where = f"{job.source.kernel}, variant {job.variant.name!r}, target {job.target}"
    try:
        print(json.dumps(request), file=process.stdin, flush=True)
        answer = json.loads(process.stdout.readline())
    except (OSError, ValueError) as error:
        raise GenerationError(f"{where}: Triton ended unexpectedly; its output is above") from error
    if "error" in answer:
        raise GenerationError(f"{where}:\n{answer['error']}")
    return cache.decode(answer)
