"""Where and of what the figures are: they compare within one machine only."""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from bench.context import ROOT
from ci.util.process import ProcessError, run


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The machine, its load when the run began, and the versions of the tools."""

    cpu_model: str
    cores: int
    memory_mb: int
    load_average: tuple[float, float, float]
    system: str
    python: str
    torch: str
    compiler: str
    cmake: str


@dataclass(frozen=True, kw_only=True)
class Commit:
    """The commit that was measured; ``dirty``: and changes that no commit has."""

    commit: str
    dirty: bool


def describe_machine() -> Machine:
    """Looks; a tool that is missing is an empty version."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return Machine(
        cpu_model=_cpu_model(),
        cores=len(os.sched_getaffinity(0)),
        memory_mb=round(pages / 1e6),
        load_average=os.getloadavg(),
        system=platform.platform(),
        python=platform.python_version(),
        torch=_version("torch"),
        compiler=_first_line(os.environ.get("CXX", "c++"), "--version"),
        cmake=_first_line(str(Path(sys.executable).with_name("cmake")), "--version")
        or _first_line("cmake", "--version"),
    )


def describe_commit() -> Commit:
    """The commit of this working tree; "" outside of git."""
    return Commit(
        commit=_output("git", "rev-parse", "HEAD").strip(),
        dirty=bool(_output("git", "status", "--porcelain")),
    )


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.machine()


def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return ""


def _first_line(*command: str) -> str:
    return _output(*command).partition("\n")[0]


def _output(*command: str) -> str:
    try:
        return run(command, cwd=ROOT).stdout
    except ProcessError:
        return ""
