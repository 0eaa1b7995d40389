"""Devices that are set aside: a file beside their leases has the reason and the time limit.

The file is never removed, as those of the leases: after its time limit it has no meaning but that
older runs prove nothing more.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from ci.agent.locks import lock_name, open_shared
from ci.util.lines import parse_object

SUFFIX = ".bad.json"
LARGEST_MARK = 1 << 12  # bytes; one has some hundred
LONGEST_REASON = 400  # characters
LATEST = 253_402_300_000.0  # the year 9999


@dataclass(frozen=True)
class DeviceMark:
    """Why and until when a device is set aside, in seconds since 1970."""

    uuid: str
    reason: str
    since: float
    until: float

    @property
    def is_valid(self) -> bool:
        return time.time() < self.until

    def __str__(self) -> str:
        """``is set aside until 2026-01-08 12:00 UTC: its process hung in 2 runs``."""
        until = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(self.until))
        return f"is set aside until {until}: {self.reason}"


def read_mark(folder: Path, uuid: str) -> DeviceMark | None:
    """Return the mark of a device; ``None`` without a readable one, as anyone may write it."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        descriptor = os.open(_mark_path(folder, uuid), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            document = parse_object(os.read(descriptor, LARGEST_MARK).decode(errors="replace"))
        finally:
            os.close(descriptor)
        reason, times = document["reason"], (document["since"], document["until"])
        if (
            document["uuid"] == uuid
            and type(reason) is str
            and all(type(it) in (int, float) and 0 <= it <= LATEST for it in times)
        ):
            return DeviceMark(uuid, reason[:LONGEST_REASON], *map(float, times))
    return None


def write_mark(folder: Path, mark: DeviceMark) -> None:
    """Write the mark of a device, or replace that of any user; raises ``OSError``."""
    descriptor = open_shared(_mark_path(folder, mark.uuid))
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(asdict(mark)).encode(), 0)
    finally:
        os.close(descriptor)


def _mark_path(folder: Path, uuid: str) -> Path:
    return folder / f"{lock_name(uuid)}{SUFFIX}"
