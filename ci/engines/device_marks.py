"""The marks of devices that are set aside on this machine: see ``ci.agent.bad_devices``."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ci.agent.bad_devices import (
    LARGEST_MARK,
    LONGEST_REASON,
    SUFFIX,
    DeviceMark,
    read_mark,
    write_mark,
)
from ci.agent.locks import lock_name
from ci.errors import UsageError
from ci.util.lines import parse_object
from ci.util.text import join_names, strip_controls


def has_lease_file(folder: Path, uuid: str) -> bool:
    """Return whether a device was leased on this machine."""
    return (folder / f"{lock_name(uuid)}.lock").is_file()


def ends_of_marks(folder: Path, uuids: Iterable[str]) -> dict[str, float]:
    """Return until when devices are, or were, set aside, in seconds since 1970."""
    marks = (read_mark(folder, uuid) for uuid in uuids)
    return {mark.uuid: mark.until for mark in marks if mark}


def set_aside(folder: Path, uuid: str, reason: str, seconds: float) -> DeviceMark:
    """Set a device aside from now on; leases skip it. Raises ``OSError``."""
    now = time.time()
    mark = DeviceMark(uuid, strip_controls(reason)[:LONGEST_REASON], now, now + seconds)
    write_mark(folder, mark)
    return mark


def clear_device(folder: Path, uuid: str) -> None:
    """End the time for which a device is set aside; raises ``UsageError`` if it is not.

    The mark stays: the runs before now are no evidence any more.
    """
    mark = read_mark(folder, uuid)
    if mark is None or not mark.is_valid:
        known = [it.uuid for it in _marks(folder) if it.is_valid]
        message = f"--clear-device: {folder}: got '{uuid}', expected a device that is set aside"
        there = f"Name one of them: {join_names(known)}." if known else "None is set aside."
        raise UsageError(message, remedy=strip_controls(there))
    write_mark(folder, replace(mark, until=time.time()))


def _marks(folder: Path) -> Iterator[DeviceMark]:
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        with suppress(OSError, ValueError):
            document = parse_object(path.read_bytes()[:LARGEST_MARK].decode(errors="replace"))
            if mark := read_mark(folder, str(document.get("uuid"))):
                yield mark
