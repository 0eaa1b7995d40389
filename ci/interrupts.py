"""Moments at which an interrupt would cost what was measured."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)
Handler = Callable[[int, FrameType | None], None] | signal.Handlers


@contextmanager
def interrupts_go_to(handler: Handler) -> Iterator[None]:
    """Let ``handler`` have every Ctrl-C and cancel in place of a ``KeyboardInterrupt``."""
    before = {number: signal.signal(number, handler) for number in SIGNALS}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
