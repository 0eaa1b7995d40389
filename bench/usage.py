"""What a command costs: CPU time of its whole process tree, and its largest process."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

from bench.errors import MeasurementError

SAMPLE_SECONDS = 0.1  # looking through /proc takes about 2 ms
_LAST_LINES = 20
_SOURCES = (".cc", ".cpp", ".cxx", ".c")


@dataclass(frozen=True, kw_only=True)
class Usage:
    """CPU and wall seconds of a finished process tree; memory of the largest process in it."""

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
        return {name: _rounded(value) for name, value in vars(self).items()}

    def note(self) -> str:
        """Wall time and memory; too short a run has no name for its largest process."""
        peak = f"{self.peak_rss_mb:.0f} MB {self.peak_process}".strip()
        return f"{self.wall_s:.1f} s wall; peak {peak}"


def run_measured(
    command: Sequence[str], *, cwd: Path, environment: Mapping[str, str], log: Path
) -> Usage:
    """Runs a command to its end, output to ``log``; raises with its last lines if it fails."""
    start = monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            list(command),
            cwd=cwd,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # its session tells its descendants from others
        )
    try:
        largest = _watch(process.pid)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    # Unlike RUSAGE_CHILDREN, of this child and those it waited for alone.
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        last = log.read_text(errors="replace").strip().splitlines()[-_LAST_LINES:]
        raise MeasurementError(
            f"{' '.join(command)} ended with {process.returncode}:\n" + "\n".join(last)
        )
    return Usage(
        user_s=usage.ru_utime,
        system_s=usage.ru_stime,
        wall_s=monotonic() - start,
        peak_rss_mb=usage.ru_maxrss * 1024 / 1e6,
        peak_process=largest,
    )


def _watch(process: int) -> str:
    """Waits for the end of a session's leader; returns the name of its largest process."""
    largest, peak = "", 0
    descriptor = os.pidfd_open(process)
    try:
        while not select.select([descriptor], [], [], SAMPLE_SECONDS)[0]:
            for entry in Path("/proc").iterdir():
                if entry.name.isdigit() and (rss := _peak_rss(entry, process)) > peak:
                    largest, peak = _name(entry) or largest, rss
    finally:
        os.close(descriptor)
    return largest


def _peak_rss(entry: Path, session: int) -> int:
    """The most memory in kB that a process of the session had so far; 0 for all others."""
    try:
        if os.getsid(int(entry.name)) != session:
            return 0
        status = (entry / "status").read_text(encoding="utf-8")
    except OSError:  # it has ended
        return 0
    _, _, rest = status.partition("VmHWM:")
    return int(rest.split()[0]) if rest else 0


def _name(entry: Path) -> str:
    """The program, and the source file if it compiles one."""
    try:
        program, *arguments = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return ""
    source = next((word for word in arguments if word.endswith(_SOURCES)), "")
    return " ".join(filter(None, (Path(program).name, Path(source).name if source else "")))


def _rounded(value: Any) -> Any:
    return round(value, 3) if isinstance(value, float) else value
