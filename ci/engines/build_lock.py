"""One image build at a time on an engine.

Images of several platforms share most layers. Built at once, each build would make its own: the
engine looks for a layer when it is needed, not while another build makes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from filelock import FileLock, Timeout

from ci.user_cache import user_cache


@contextmanager
def build_lock(engine_id: str, say: Callable[[str], None]) -> Iterator[None]:
    """Hold this user's lock of an engine, which ends with its holder; say so where that waits."""
    cache = user_cache()
    cache.mkdir(parents=True, exist_ok=True)
    lock = FileLock(cache / f"build-{engine_id.replace(':', '')}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        say("waiting for another image build on this engine")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()
