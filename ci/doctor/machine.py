"""This machine: what the host engine needs of it, and where caches are."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Sequence

from ci import prerequisites
from ci.engines.host import prerequisites_of
from ci.findings import Finding, Level, ok, warning
from ci.plan import RunPlan
from ci.user_cache import user_cache


def cache() -> Finding:
    """The user's folder of caches: a run goes on without it, an image build does not."""
    path = user_cache()
    found = prerequisites.folder("cache", path, remedy="Name another folder with XDG_CACHE_HOME.")
    if found.level is not Level.PROBLEM:
        return found
    expected = "a folder with room, for the compiler cache and the locks of image builds"
    return warning("cache", found.found, expected=expected, remedy=str(found.remedy))


def host_engine(note: str | None, plans: Sequence[RunPlan]) -> Iterator[Finding]:
    """The host engine: a virtual environment of this Python in the temporary folder."""
    subject = "engine host"
    if note is not None:
        yield warning(
            subject,
            f"runs go to this machine, {note}",
            expected="the engine that is named there",
            remedy="Start it, correct the address, or unset it.",
        )
    processors = len(os.sched_getaffinity(0))
    python = f"a virtual environment on this machine, Python {platform.python_version()}"
    yield ok(subject, f"{python}, {platform.machine()}, {processors} processors")
    yield from dict.fromkeys(found for plan in plans for found in prerequisites_of(plan))
