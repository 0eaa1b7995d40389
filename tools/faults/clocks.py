"""Clocks of the machine and of the container that are wrong, jump or run fast."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tools.faults.model import KILLED, PASSES, SLOW, Left
from tools.faults.running import FaultRun, kill_orchestrator

KIND = "Clocks"
LIBRARIES = ("/usr/lib/*/faketime/libfaketimeMT.so.1", "/usr/lib/faketime/libfaketimeMT.so.1")
# The time of day alone: durations are measured with the monotonic clock, which no one sets.
WALL = {"DONT_FAKE_MONOTONIC": "1", "FAKETIME_NO_CACHE": "1"}
# libfaketime 0.9.10 takes a moment of the real monotonic clock, as Python's `time.sleep` passes it,
# for one of its own clock, and the sleep fails. This comes before it and sleeps.
SLEEP = """\
#define _GNU_SOURCE
#include <errno.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_nanosleep(clockid_t clock, int flags, const struct timespec *until, struct timespec *rest)
{ return syscall(SYS_clock_nanosleep, clock, flags, until, rest) ? errno : 0; }
"""
IN_CONTAINER = {"LD_PRELOAD": "/workspace/clock.so"}
YEARS_AGO = """\
import time
def test_a():
    assert time.time() < 1e9
"""
FAST = """\
import time
def test_a():
    begun, real = time.time(), time.monotonic()
    while time.monotonic() - real < 1:  # the library also shortens a sleep
        pass
    assert time.time() - begun > 20
"""


def library() -> Path:
    """Return libfaketime; skip if it is not installed."""
    for pattern in LIBRARIES:
        for path in Path("/").glob(pattern[1:]):
            return path
    pytest.skip("libfaketime is not installed: apt-get install faketime")


@contextmanager
def faked(run: FaultRun) -> Iterator[Path]:
    """Let the commands of a run take their clock from a file: ``+0`` is the right time."""
    clock = run.folder / "clock"
    clock.write_text("+0")
    sleep = run.folder / "sleep.so"
    if shutil.which("cc") is None:
        pytest.skip("no C compiler `cc`")
    command = ("cc", "-shared", "-fPIC", "-xc", "-", "-o", str(sleep))
    subprocess.run(command, input=SLEEP, text=True, check=True)
    run.environment |= {**WALL, "LD_PRELOAD": f"{sleep}:{library()}"}
    run.environment |= (
        {} if "FAKETIME" in run.environment else {"FAKETIME_TIMESTAMP_FILE": str(clock)}
    )
    yield clock


@contextmanager
def in_container(run: FaultRun) -> Iterator[None]:
    """Bring the library with the sources, for the processes of the container."""
    shutil.copy(library(), run.project / "clock.so")
    yield


def back(run: FaultRun, platform: str) -> None:
    """Set the clock back by ten years while the tests run."""
    run.wait_for(platform)
    run.setting.write_text("-10y")


def back_and_kill(run: FaultRun, platform: str) -> None:
    kill_orchestrator()(run, platform)
    run.setting.write_text("-10y")


FAKED = replace(PASSES, kind=KIND, around=faked)
FAULTS = (
    replace(
        FAKED, name="the clock is set back by ten years while the tests run", files=SLOW, act=back
    ),
    replace(
        FAKED,
        name="the machine's clock shows 2001",
        environment={"FAKETIME": "@2001-02-03 04:05:06"},
    ),
    replace(
        FAKED,
        name="the machine's clock shows 2099",
        environment={"FAKETIME": "@2099-02-03 04:05:06"},
    ),
    replace(
        FAKED,
        name="the machine's clock runs 60 times too fast",
        files=SLOW,
        environment={"FAKETIME": "+0 x60"},
    ),
    replace(
        FAKED,
        name="the clock is set back by ten years before `--resume`",
        files=SLOW,
        act=back_and_kill,
        exits=(KILLED, 0),
        left=Left.CONTAINER,
    ),
    replace(
        FAKED,
        name="the container's clock is 26 years slow",
        files={"test_it.py": YEARS_AGO},
        around=in_container,
        settings={"environment": {**IN_CONTAINER, "FAKETIME": "-26y", "DONT_FAKE_MONOTONIC": "1"}},
    ),
    replace(
        FAKED,
        name="the container's time of day runs 60 times too fast",
        files={"test_it.py": FAST},
        around=in_container,
        settings={
            "environment": {**IN_CONTAINER, "FAKETIME": "+0 x60", "DONT_FAKE_MONOTONIC": "1"}
        },
    ),
)
