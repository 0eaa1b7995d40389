"""The shared part of all measurements: a scratch folder, an installed library, command costs.

The cost of a command is the CPU time of its whole process tree, and the memory of the largest
process in it.
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from time import monotonic
from typing import Any

from bench.rows import MeasurementError
from ci.util.process import LAST_LINES, ProcessResult, run
from codegen.inputs import SELECTION_VARIABLE

ROOT = Path(__file__).resolve().parent.parent
SAMPLE_SECONDS = 0.1  # a scan of /proc takes about 2 ms
_CACHES = ("ccache", "sccache")
_SOURCES = (".cc", ".cpp", ".cxx", ".c")


@dataclass(frozen=True, kw_only=True)
class CommandCost:
    """CPU and wall seconds of a finished process tree, and the memory of its largest process."""

    user_s: float
    system_s: float
    wall_s: float
    peak_rss_mb: float
    peak_process: str

    @property
    def cpu_s(self) -> float:
        return self.user_s + self.system_s

    def detail(self) -> dict[str, Any]:
        """The figures for the JSON."""
        return {
            name: round(value, 3) if isinstance(value, float) else value
            for name, value in vars(self).items()
        }

    def note(self) -> str:
        """Wall time and memory. In a very short run the largest process has no name."""
        peak = f"{self.peak_rss_mb:.0f} MB {self.peak_process}".strip()
        return f"{self.wall_s:.1f} s wall; peak {peak}"


@dataclass(frozen=True, kw_only=True)
class Context:
    """How to measure; with ``installed``, uses the library installed in this Python."""

    scratch: Path
    output_dir: Path
    repeat: int
    installed: bool
    runs: int
    """Number of runs in the generated history."""
    database: str | None
    """An empty database for the history; None: SQLite."""
    slot_times: Path | None = None
    """Where to write the times of the slots on an accelerator."""

    @property
    def site(self) -> Path:
        """The folder that the library is installed into, outside of the environment's packages."""
        return self.scratch / "site"

    @cached_property
    def library_environment(self) -> dict[str, str]:
        """The environment for using the library; installs it unless a measurement has done so."""
        if self.installed:
            return dict(os.environ)
        if not self.site.exists():
            self.install(self.site, ROOT / "build" / "bench")
        return os.environ | {"PYTHONPATH": str(self.site)}

    def install(self, target: Path, build_dir: Path, **variables: str) -> CommandCost:
        """The cost of ``pip install .`` into ``target``; the environment does not change."""
        command = [sys.executable, "-m", "pip", "install", ".", "--no-build-isolation"]
        command += ["--upgrade", "--target", str(target), "-C", f"build-dir={build_dir}"]
        return self.measure_command(command, **variables)

    def run(self, command: Sequence[str], environment: Mapping[str, str]) -> ProcessResult:
        """Run a program in the repository and return its output."""
        return run(command, cwd=ROOT, environment=environment)

    def measure_command(self, command: Sequence[str], **variables: str) -> CommandCost:
        """The cost of a build command; raises with its last lines of output if it fails."""
        start, log = monotonic(), self.scratch / "log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                list(command),
                cwd=ROOT,
                env=without_compiler_cache() | variables,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # identifies its descendants by their session
            )
        try:
            largest = _watch(process.pid)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        # Unlike RUSAGE_CHILDREN, this covers only this child and the children that it waited for.
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            last = log.read_text(errors="replace").strip().splitlines()[-LAST_LINES:]
            raise MeasurementError(
                f"{' '.join(command)} ended with {process.returncode}:\n" + "\n".join(last)
            )
        return CommandCost(
            user_s=usage.ru_utime,
            system_s=usage.ru_stime,
            wall_s=monotonic() - start,
            peak_rss_mb=usage.ru_maxrss * 1024 / 1e6,
            peak_process=largest,
        )


def without_compiler_cache(variables: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment without compiler caches; raises if one is part of the compiler command."""
    kept = {
        name: value
        for name, value in variables.items()
        if name != SELECTION_VARIABLE
        and not name.endswith(("_COMPILER_LAUNCHER", "_LINKER_LAUNCHER"))
    }
    for name in ("CC", "CXX", "CMAKE_ARGS", "SKBUILD_CMAKE_ARGS", "SKBUILD_CMAKE_DEFINE"):
        if any(cache in kept.get(name, "") for cache in _CACHES):
            raise MeasurementError(
                f"{name}={kept[name]} puts a compiler cache before the compiler. Unset it: cold "
                "builds are measured without a cache."
            )
    # For a ccache that replaces the compiler on PATH.
    return kept | {"CCACHE_DISABLE": "1"}


def _watch(process: int) -> str:
    """Wait until a session's leader ends; return the name of its largest process."""
    largest, peak = "", 0
    descriptor = os.pidfd_open(process)
    try:
        while not select.select([descriptor], [], [], SAMPLE_SECONDS)[0]:
            for entry in Path("/proc").glob("[0-9]*"):
                with suppress(OSError):  # the process has ended
                    if os.getsid(int(entry.name)) != process:
                        continue
                    status = (entry / "status").read_text(encoding="utf-8")
                    rss = re.search(r"VmHWM:\s+(\d+)", status)  # its peak so far, in kB
                    if rss and int(rss[1]) > peak:
                        largest, peak = _name(entry) or largest, int(rss[1])
    finally:
        os.close(descriptor)
    return largest


def _name(entry: Path) -> str:
    """The program, and the source file if it is a compiler."""
    program, *arguments = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
    source = next((Path(word).name for word in arguments if word.endswith(_SOURCES)), "")
    return f"{Path(program).name} {source}".strip()


def proportional_size(process: int) -> int:
    """Proportional set size in bytes: a page shared by n processes counts as 1/n."""
    with suppress(OSError):
        rollup = Path(f"/proc/{process}/smaps_rollup").read_text(encoding="ascii")
        _, _, rest = rollup.partition("\nPss:")
        return int(rest.split()[0]) * 1024 if rest else 0
    return 0
