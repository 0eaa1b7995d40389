"""Finds Triton, and compiles variants in worker processes unless they are in the cache."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import queue
import re
import subprocess
import tempfile
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from codegen.errors import GenerationError
from codegen.output import digest_of
from codegen.triton.spec import Plan, Variant

_WORKER = Path(__file__).parent / "worker.py"
CACHE_VARIABLE = "INFINI_OPS_TRITON_CACHE"

PINNED = "3.9.0"  # of the dependency group `triton`
OLDEST = (3, 3)  # 3.2 has another `ASTSource`
_CHOOSE = "Set TRITON_PYTHON_EXECUTABLE to a Python that has Triton, or WITH_TRITON to OFF."

# Do not import triton, which takes a second. Do not look for a distribution named "triton" either:
# some builds of torch bring one with another name.
_FIND = """
import importlib.util, json, pathlib, re
spec = importlib.util.find_spec("triton")
if spec and spec.origin:
    origin = pathlib.Path(spec.origin)
    folder = origin.parent
    version = re.search(r"^__version__ = .([^'\\"]+)", origin.read_text(), re.MULTILINE)
    print(json.dumps({
        "folder": str(folder),
        "version": version[1] if version else "of unknown version",
        "assemblers": sorted(map(str, folder.glob("backends/nvidia/bin/ptxas*"))),
    }))
"""


@dataclass(frozen=True, kw_only=True)
class Toolchain:
    """An installed Triton."""

    python: tuple[str, ...]  # the command that runs it
    version: str
    assemblers: str  # version output of its own ptxas; there can be several


def find_toolchain(python: str) -> Toolchain:
    """Find Triton with ``python``.

    An isolated build hides the environment's packages by environment variables. The second attempt,
    with ``-I``, ignores these variables.
    """
    for flags in ((), ("-I",)):
        command = (python, *flags)
        if answer := _run([*command, "-c", _FIND], python).strip():
            break
    else:
        raise GenerationError(f"{python} has no Triton. {_remedy(python)}")
    try:
        found = json.loads(answer)
    except ValueError as error:
        raise GenerationError(
            f"{python} is not a Python interpreter: it printed {answer[:40]!r}. {_CHOOSE}"
        ) from error
    match = re.match(r"(\d+)\.(\d+)", found["version"])
    if not match or (int(match[1]), int(match[2])) < OLDEST:
        raise GenerationError(
            f"{found['folder']} is Triton {found['version']}; expected "
            f"{'.'.join(map(str, OLDEST))} or later. {_remedy(python)}"
        )
    versions = [_run([path, "--version"], python) for path in found["assemblers"]]
    return Toolchain(python=command, version=found["version"], assemblers="".join(versions))


def _remedy(python: str) -> str:
    return (
        f"Run `{python} -m pip install triton=={PINNED}`, set TRITON_PYTHON_EXECUTABLE to a Python "
        "that has it, or set WITH_TRITON to OFF."
    )


def _run(command: list[str], python: str) -> str:
    try:
        finished = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise GenerationError(
            f"{command[0]!r} can't be run ({error.strerror}). {_CHOOSE}"
        ) from error
    if finished.returncode:
        message = finished.stderr.strip() or f"exit code {finished.returncode}"
        raise GenerationError(f"{command[0]} failed: {message}. {_remedy(python)}")
    return finished.stdout


@dataclass(frozen=True, kw_only=True)
class CompiledKernel:
    """A compiled variant: its machine code, and the data that a launcher needs."""

    cubin: bytes
    entry: str  # the name in the cubin
    parameters: tuple[str, ...]  # in order, without compile-time constants
    hidden: int  # number of scratch pointers after those; they are always null
    num_warps: int
    shared: int  # bytes of dynamic shared memory


def default_folder() -> Path:
    """The folder of cached kernels; users can delete it at any time."""
    if folder := os.environ.get(CACHE_VARIABLE):
        return Path(folder)
    user = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(user, "infini-ops", "triton")


def load(folder: Path, key: str) -> CompiledKernel | None:
    """Read a kernel from the cache; None if it is missing or damaged."""
    try:
        digest, text = _entry(folder, key).read_bytes().split(b"\n", 1)
        if digest.decode() != hashlib.sha256(text).hexdigest():
            return None
        return _decode(json.loads(text))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def store(folder: Path, key: str, kernel: CompiledKernel) -> None:
    """Write a kernel into the cache. Several processes can do so at once."""
    fields = {**asdict(kernel), "cubin": base64.b64encode(kernel.cubin).decode()}
    text = json.dumps(fields).encode()
    path = _entry(folder, key)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}.partial")
    partial.write_bytes(hashlib.sha256(text).hexdigest().encode() + b"\n" + text)
    partial.replace(path)


def _decode(fields: dict[str, Any]) -> CompiledKernel:
    """Decode a kernel from the answer of a worker or a cache entry."""
    cubin = base64.b64decode(fields["cubin"], validate=True)
    return CompiledKernel(**fields | {"cubin": cubin, "parameters": tuple(fields["parameters"])})


def _entry(folder: Path, key: str) -> Path:
    return folder / key[:2] / f"{key}.kernel"


@dataclass(frozen=True, kw_only=True)
class CompileJob:
    """One variant for one target."""

    kernel: Path  # the file
    variant: Variant
    target: int

    def text(self) -> str:
        """The job as JSON for a worker, without the path of the file, which is not in the key."""
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
                # nvcc does the same for PyTorch's own kernels: round once after a multiplication
                # and addition.
                "enable_fp_fusion": True,
            },
        }
        return json.dumps(fields, sort_keys=True)

    def key(self, toolchain: Toolchain) -> str:
        """A digest of everything that the compiled kernel depends on."""
        texts = (self.text(), toolchain.version, toolchain.assemblers)
        files = (self.kernel.read_bytes(), _WORKER.read_bytes())
        return digest_of([*map(str.encode, texts), *files])


def jobs_of(plans: Sequence[Plan]) -> list[CompileJob]:
    """Every variant for every target."""
    return [
        CompileJob(kernel=plan.kernel, variant=variant, target=target)
        for plan in plans
        for target, variants in plan.variants.items()
        for variant in variants
    ]


@dataclass(frozen=True, kw_only=True)
class Compilation:
    """The kernels by the keys of their jobs."""

    kernels: Mapping[str, CompiledKernel]
    fresh: int  # number of kernels that were not in the cache
    notes: tuple[str, ...]


def compile_all(
    jobs: Sequence[CompileJob], toolchain: Toolchain, *, folder: Path, workers: int
) -> Compilation:
    """Take kernels from the cache in ``folder``; compile the others and add them to it."""
    wanted = {job.key(toolchain): job for job in jobs}
    found = {key: load(folder, key) for key in wanted}
    kernels = {key: kernel for key, kernel in found.items() if kernel}
    missing = [(key, job) for key, job in wanted.items() if key not in kernels]
    fresh = _compile(missing, toolchain, workers)
    notes: tuple[str, ...] = ()
    try:
        for key, kernel in fresh.items():
            store(folder, key, kernel)
    except OSError as error:  # a home folder that is not writable is not an error
        notes = (f"{folder}: {error.strerror}; kernels are not cached (set {CACHE_VARIABLE})",)
    return Compilation(kernels={**kernels, **fresh}, fresh=len(fresh), notes=notes)


def _compile(
    jobs: Sequence[tuple[str, CompileJob]], toolchain: Toolchain, workers: int
) -> dict[str, CompiledKernel]:
    """Compile jobs in one process per thread.

    Each process compiles many jobs, because importing triton takes a second.
    """
    pending: queue.SimpleQueue[tuple[str, CompileJob]] = queue.SimpleQueue()
    for job in jobs:
        pending.put(job)
    kernels: dict[str, CompiledKernel] = {}
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
    # Triton's variables change its output. Its own cache is off: its key contains less than ours.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("TRITON_")}
    environment["TRITON_CACHE_DIR"] = scratch
    # Without line information the code contains no paths of this machine. It is the same on every
    # machine, and smaller.
    environment["TRITON_DISABLE_LINE_INFO"] = "1"
    return subprocess.Popen(
        [*toolchain.python, _WORKER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )


def _ask(process: subprocess.Popen[str], job: CompileJob) -> CompiledKernel:
    assert process.stdin
    assert process.stdout
    request = {**json.loads(job.text()), "path": str(job.kernel)}
    where = f"{job.kernel}, variant {job.variant.name!r}, target {job.target}"
    try:
        print(json.dumps(request), file=process.stdin, flush=True)
        answer = json.loads(process.stdout.readline())
    except (OSError, ValueError) as error:
        raise GenerationError(f"{where}: Triton ended unexpectedly; its output is above") from error
    if "error" in answer:
        raise GenerationError(f"{where}:\n{answer['error']}")
    return _decode(answer)
