"""Bounds on time and memory that hold for every input of a target."""

from __future__ import annotations

import resource
import signal
from collections.abc import Callable

# CPU-seconds. The largest inputs take 0.5; with the tracing of a coverage-guided fuzzer, 3.
MOST_CPU_S = 20.0
# Bytes of a process's address space; the program itself takes 0.6 GiB of it.
MOST_MEMORY = 2 << 30


class TooSlowError(Exception):
    """An input took more than its bound."""


def run_within_time(check: Callable[[bytes], None], data: bytes) -> None:
    """Check an input; raises ``TooSlowError`` in the middle of what takes too long."""
    before = signal.signal(signal.SIGPROF, _stop)
    signal.setitimer(signal.ITIMER_PROF, MOST_CPU_S)
    try:
        check(data)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _stop(*_: object) -> None:
    raise TooSlowError(f"more than {MOST_CPU_S:g} CPU-seconds")


def limit_memory() -> None:
    """Let this process fail with ``MemoryError`` beyond ``MOST_MEMORY``."""
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
