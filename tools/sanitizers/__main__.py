"""Tests ``src/core``, ``src/cpu`` and the bindings with sanitizers: ``nox -s sanitizers``.

AddressSanitizer with UndefinedBehaviorSanitizer, then ThreadSanitizer. The library has the
hand-written operators alone, with and without torch's implementations of them. Python and torch are
not instrumented: what is found is the library's own. Each sanitizer must first report planted
faults, so that silence means something.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from codegen.inputs import SELECTION_VARIABLE
from tools.compat.steps import ROOT, Planned, Step, run_step

HERE = Path(__file__).parent
# Randomized more, the runtime of ThreadSanitizer in GCC up to 13 finds no place for its memory.
MOST_RANDOM_BITS = 28
RANDOM_BITS = Path("/proc/sys/vm/mmap_rnd_bits")
_REPORT = re.compile(r"Sanitizer: |: runtime error: ")  # the second is UBSan's
ISAS = ("baseline", "avx2", "best")  # each has kernels of its own


@dataclass(frozen=True, kw_only=True)
class Sanitizer:
    """The sanitizers that one build can have."""

    name: str
    flags: str
    """Of the compiler."""
    preloaded: tuple[str, ...]
    """Libraries that the interpreter, which is not instrumented, loads first."""
    faults: tuple[str, ...]
    """Functions of ``faults.cc`` that must be reported."""
    options: Mapping[str, str]
    environment: Mapping[str, str]
    checks: str = ""
    """Of the threads, for pytest's ``-k``; empty: all."""
    suite: str = ""
    """Of the library's tests, as ``checks``."""


ADDRESS = Sanitizer(
    name="address",
    flags="-fsanitize=address,undefined -fno-sanitize-recover=undefined",
    # Exceptions are thrown before the program that loads libstdc++ later has initialized it.
    preloaded=("libasan.so", "libstdc++.so"),
    faults=("beyond", "overflow"),
    # The interpreter keeps memory until it ends. The copies of stacks that a use after a return
    # needs are not aligned for AVX-512 (GCC 12).
    options={"detect_leaks": "0", "detect_stack_use_after_return": "0", "print_stacktrace": "1"},
    environment={"PYTHONMALLOC": "malloc"},  # each object has a block of its own
    # Its allocator may stay locked in a process that is forked while another thread allocates.
    checks="not fork",
)
THREAD = Sanitizer(
    name="thread",
    flags="-fsanitize=thread",
    preloaded=("libtsan.so",),
    faults=("race",),
    options={"die_after_fork": "0", "suppressions": str(HERE / "thread.supp")},
    environment={"OPENBLAS_NUM_THREADS": "1"},  # NumPy's threads are not instrumented
    # It takes the threads of a process for running ones in its fork, where others get their names.
    suite="not child_of_a_fork",
)
SANITIZERS = (ADDRESS, THREAD)
VARIABLES = {"address": ("ASAN_OPTIONS", "UBSAN_OPTIONS"), "thread": ("TSAN_OPTIONS",)}


@dataclass(frozen=True)
class Checks:
    """The library with a sanitizer, and its tests."""

    sanitizer: Sanitizer
    folder: Path
    """For builds, logs and reports; a later run uses the builds again."""

    def run(self) -> Iterator[Step]:
        """Yield all steps; those of a build end at the first one that fails."""
        self.folder.mkdir(parents=True, exist_ok=True)
        library = self.folder / "faults.so"
        compiler = ("c++", "-std=c++17", "-g", "-O1", *self.sanitizer.flags.split())
        sources = ("-shared", "-fPIC", "-o", library, HERE / "faults.cc")
        yield run_step("faults", (*compiler, *sources), {}, self.folder / "faults.log")
        yield from (self.fault(library, name) for name in self.sanitizer.faults)
        yield self.test(
            "threads",
            "tests/cpu/test_parallel.py",
            "-k",
            self.sanitizer.checks,
            CXXFLAGS=self.sanitizer.flags,
        )
        for torch in ("OFF", "ON"):
            for planned in self._built(torch):
                yield (step := self._step(planned))
                if step.exit_code:
                    return
            yield from self._tested(torch)

    def fault(self, library: Path, name: str) -> Step:
        """Call a planted fault; the step fails unless it is reported."""
        call = f"import ctypes; ctypes.CDLL('{library}').{name}()"
        planned = name, (*self._prefix, sys.executable, "-c", call), self._environment(preload=True)
        step = self._step(planned)
        reported = step.exit_code != 0 and _REPORT.search(step.last_lines) is not None
        return replace(step, exit_code=0 if reported else 1, summary="reported" if reported else "")

    def test(
        self, name: str, *tests: str, preload: bool = False, site: Path | None = None, **own: str
    ) -> Step:
        """Run tests; the step fails if one fails or if anything is reported."""
        environment = {**self._environment(preload=preload), **own}
        if site is not None:
            environment["PYTHONPATH"] = str(site)
        pytest = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "2", *tests)
        return self._step((name, (*self._prefix, *pytest), environment))

    def _built(self, torch: str) -> Iterator[Planned]:
        build, site = self.folder / f"build-torch-{torch}", self._site(torch)
        shutil.rmtree(site, ignore_errors=True)
        package = site / "infini/ops"
        shutil.copytree(ROOT / "src/infini/ops", package)
        # The flags of a build type that CMake knows come after ours.
        defines = {
            "Python_EXECUTABLE": sys.executable,
            "CMAKE_BUILD_TYPE": "None",
            "CMAKE_CXX_FLAGS": f"{self.sanitizer.flags} -fno-omit-frame-pointer -g -O1",
            "WITH_TORCH": torch,
            "AUTO_DETECT_DEVICES": "OFF",
            "AUTO_DETECT_BACKENDS": "OFF",
        }
        options = [f"-D{name}={value}" for name, value in defines.items()]
        selected = {SELECTION_VARIABLE: _operators()}
        make: tuple[str | Path, ...] = ("cmake", "-S", ROOT, "-B", build, "-G", "Ninja", *options)
        yield f"configured, torch {torch}", make, selected
        yield f"built, torch {torch}", ("cmake", "--build", build), selected
        yield f"installed, torch {torch}", ("cmake", "--install", build, "--prefix", package), {}

    def _tested(self, torch: str) -> Iterator[Step]:
        tests, isas = ("tests/ops", ISAS[-1:]) if torch == "ON" else ("tests/native", ISAS)
        for isa in isas:
            own = {SELECTION_VARIABLE: _operators(), "INFINI_OPS_CPU_ISA": isa}
            chosen = (tests, "-k", self.sanitizer.suite)
            yield self.test(f"{tests}, {isa}", *chosen, preload=True, site=self._site(torch), **own)

    def _site(self, torch: str) -> Path:
        return self.folder / f"site-torch-{torch}"

    @property
    def _prefix(self) -> tuple[str, ...]:
        bits = int(RANDOM_BITS.read_text()) if RANDOM_BITS.exists() else 0
        too_random = self.sanitizer is THREAD and bits > MOST_RANDOM_BITS
        return ("setarch", "--addr-no-randomize") if too_random else ()

    @property
    def _reports(self) -> Path:
        return self.folder / "reports"

    def _environment(self, *, preload: bool) -> dict[str, str]:
        options = {**self.sanitizer.options, "log_path": str(self._reports / "report")}
        text = ":".join(f"{name}={value}" for name, value in options.items())
        found = dict.fromkeys(VARIABLES[self.sanitizer.name], text) | {**self.sanitizer.environment}
        if preload:
            found["LD_PRELOAD"] = " ".join(map(_library, self.sanitizer.preloaded))
        return found

    def _step(self, planned: Planned) -> Step:
        """Run a step; it fails with anything that the sanitizer reports, in any of its processes.

        A test may pass nonetheless: ThreadSanitizer lets a process go on.
        """
        name, command, environment = planned
        shutil.rmtree(self._reports, ignore_errors=True)
        self._reports.mkdir()
        log = self.folder / f"{name.replace('/', '-')}.log"
        step = run_step(name, command, environment, log)
        reports = [path.read_text(errors="replace") for path in sorted(self._reports.iterdir())]
        if not reports:
            return step
        text = "\n".join(reports)
        with log.open("a") as file:
            file.write(text)
        return replace(step, exit_code=step.exit_code or 1, last_lines=text[:3000])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all checks; return 0 if nothing was reported, else 1."""
    options = _parser().parse_args(arguments)
    if missing := [name for name in ("c++", "setarch") if shutil.which(name) is None]:
        print(f"sanitizers: got no {', '.join(missing)} on PATH", file=sys.stderr)
        return 3
    failed = False
    for sanitizer in SANITIZERS:
        if options.only in (None, sanitizer.name):
            folder = options.work_dir.resolve() / sanitizer.name
            for step in Checks(sanitizer, folder).run():
                failed = failed or step.exit_code != 0
                end = "failed" if step.exit_code else step.summary or "yes"
                print(f"{sanitizer.name}: {step.name}: {end} ({step.cpu_s:.0f} CPU-s)", flush=True)
                if step.exit_code:
                    print(f"see {step.log}:\n{step.last_lines}\n")
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="nox -s sanitizers --", description=__doc__.partition("\n")[0], allow_abbrev=False
    )
    parser.add_argument(
        "--work-dir", type=Path, required=True, metavar="DIR", help="folder for builds and logs"
    )
    names = [it.name for it in SANITIZERS]
    parser.add_argument("only", nargs="?", choices=names, help="the only one (default: all)")
    return parser


def _operators() -> str:
    """The hand-written operators, as a selection."""
    return ",".join(sorted(path.stem for path in (ROOT / "src/base").glob("*.h")))


def _library(name: str) -> str:
    """The path of a library of the compiler."""
    command = ["c++", f"-print-file-name={name}"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
