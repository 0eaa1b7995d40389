"""Lease devices for the stages that need them."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ci.agent.bad_devices import read_mark
from ci.agent.locks import LockFolder
from ci.agent.time_limits import PROBE_KILL_S, PROBE_S
from ci.protocol.events import Event, LeaseReleased, LeaseTaken, LeaseWaiting
from ci.protocol.job import DeviceJob
from ci.util.lines import parse_object

POLL_S = 0.5  # between two attempts, each a few system calls; a lease lasts minutes
PROBE_PAUSE_S = 5.0  # before free but unfit devices are probed again
SIGN_OF_LIFE_S = 60.0  # between events while nothing changes; readers limit the number of events

STATE = ("health", "memory_used", "utilisation")  # facts that a stage can change


class LeaseError(Exception):
    """There will be no lease; the message has the reason and the remedy."""


@dataclass
class Leases:
    """Leases all devices of a job, or none."""

    plan: DeviceJob
    run_id: str
    platform: str
    environment: Mapping[str, str]
    emit: Callable[[Event], None]
    stopped: Callable[[], bool]

    def __post_init__(self) -> None:
        owner = {"run": self.run_id, "platform": self.platform, "user": self.plan.user}
        self._folder = LockFolder(self.plan.folder, owner)
        self._known: list[str] = []
        self._queue_lock: int | None = None  # the lock on the first place of the queue
        self._locks: dict[str, int] = {}
        self.detection = Detection("unknown", "devices have not been probed yet")
        self.records: list[dict[str, Any]] = []  # one per device of every lease of the run

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Descriptors that the processes of a stage inherit, so that they hold the lease too."""
        return tuple(self._locks.values())

    @property
    def _count(self) -> int:
        return self.plan.count * self.plan.shards

    def variables(self, shard: int = 0) -> dict[str, str]:
        """Environment variable that restricts a process to the leased devices of its shard.

        What is no shard uses the devices of the first one.
        """
        key, begin = self.plan.visible_by, shard * self.plan.count
        uuids = [*self._locks][begin : begin + self.plan.count]
        leased = [self.detection.device(uuid) for uuid in uuids]
        # A device that the probe did not find has only its name in the policy.
        names = [str(found["uuid"] if found[key] is None else found[key]) for found in leased]
        return {self.plan.visible: ",".join(names)} if names else {}

    def check(self) -> None:
        """Raise ``LeaseError`` for errors that waiting cannot fix, before an hour of compiling."""
        try:
            self._folder.make()
        except OSError as error:
            folder = self.plan.folder
            text = f"the lease folder {folder} cannot be used: {error.strerror}"
            raise LeaseError(f"{text} (as root: install -d -m 1777 {folder})") from None
        self._detect()
        named, count = self.plan.uuids, self._count
        if self.detection.status != "unknown":
            if missing := [uuid for uuid in named if uuid not in self._known]:
                there = ", ".join(self._known) or "none"
                raise LeaseError(f"no device {', '.join(missing)} (devices.uuids); found: {there}")
        elif not named:
            raise LeaseError(
                f"device detection failed: {self.detection.reason} (install gpustack-runtime and"
                " the vendor's driver, or name the devices in devices.uuids)"
            )
        if len(self._candidates) < count:
            there = ", ".join(self._candidates) or self.detection.reason or "none"
            remedy = "lower the count, or choose another engine; with 0 the run uses no device"
            asked = f"devices.count is {self.plan.count}"
            if self.plan.shards > 1:
                asked += f" for each of {self.plan.shards} shards"
                remedy = f"use fewer shards, {remedy}"
            raise LeaseError(f"{asked}; found: {there} ({remedy})")

    def take(self, stage: str) -> None:
        """Wait until the devices are leased; raises ``LeaseError`` after the time limit."""
        start = reported_at = time.monotonic()
        reported: list[str] = []
        while not (self._locks or self.stopped()):
            reasons, pause = self._attempt()
            waited = time.monotonic() - start
            if self._locks:
                self._record(stage, waited)
            elif waited >= self.plan.wait_s:
                raise LeaseError(
                    f"device lease timed out after {waited:.0f} s: {_join_reasons(reasons)}"
                )
            elif reasons != reported or time.monotonic() - reported_at > SIGN_OF_LIFE_S:
                reported, reported_at = reasons, time.monotonic()
                text = f"{stage} has waited {waited:.0f} s for devices: {_join_reasons(reasons)}"
                self.emit(LeaseWaiting(stage=stage, waited_s=waited, text=text))
            time.sleep(pause)

    def release(self) -> None:
        """Release the leased devices, and record their state."""
        self._leave_queue()
        if not self._locks:
            return
        self._detect()
        left = tuple(self.detection.device(uuid) for uuid in self._locks)
        for record, found in zip(self.records[-len(left) :], left):
            record["after"] = {name: found.get(name) for name in STATE}
        text = f"{', '.join(self._locks)} released"
        _release(self._locks)
        self._locks = {}
        self.emit(LeaseReleased(devices=left, text=text))

    def _detect(self) -> None:
        self.detection = detect(self.plan.probe, self.environment)
        if self.detection.status == "devices":
            named = {*self.environment.get(self.plan.visible, "").split(",")}
            there = [found for found in self.detection.devices if found["uuid"]]
            # A scheduler such as Slurm names the devices that it gave to this job.
            given = [it for it in there if named & {it["uuid"], str(it["index"])}]
            self._known = [found["uuid"] for found in given or there]

    @property
    def _candidates(self) -> list[str]:
        return [*self.plan.uuids] or self._known

    def _attempt(self) -> tuple[list[str], float]:
        """Lease all devices or none; return the reasons, and the seconds until the next attempt.

        Runs with the same candidates wait in a queue. Only the first one takes devices. Without
        the queue, a run that needs two devices would starve beside runs that need one.
        """
        names = ",".join(sorted(self._candidates))
        queue = f"line-{hashlib.sha256(names.encode()).hexdigest()[:16]}"
        if self._queue_lock is None:
            self._queue_lock = self._folder.take(queue)
        if self._queue_lock is None:
            before = self._folder.holder(queue)
            first = [f"{before} is first in the queue"] if before else []
            return self._held_devices() + first, POLL_S
        locks = {uuid: self._folder.take(uuid) for uuid in self._candidates}
        free = {uuid: lock for uuid, lock in locks.items() if lock is not None}
        if len(free) < self._count:
            _release(free)
            return self._held_devices(), POLL_S
        self._detect()
        unfit = {uuid: reason for uuid in free if (reason := self._unfit_reason(uuid))}
        fit = self._least_used([uuid for uuid in free if uuid not in unfit])
        if len(fit) < self._count:
            _release(free)
            reasons = [f"{uuid} {reason}" for uuid, reason in unfit.items()]
            return [*reasons, *self._held_devices()], PROBE_PAUSE_S
        self._locks = {uuid: free.pop(uuid) for uuid in fit}
        for uuid in fit:
            self._folder.record_use(uuid)
        _release(free)
        self._leave_queue()
        return [], 0.0

    def _least_used(self, fit: Sequence[str]) -> list[str]:
        """Return the devices to lease, in the order of ``fit``: those that were idle longest.

        Siblings so get the same work by turns, and show which of them is bad. A run that takes
        another lease keeps its devices: its stages are compared with each other.
        """
        own = {record["uuid"] for record in self.records}
        chosen = sorted(fit, key=lambda uuid: (uuid not in own, self._folder.last_use(uuid)))
        return [uuid for uuid in fit if uuid in chosen[: self._count]]

    def _leave_queue(self) -> None:
        if self._queue_lock is not None:
            os.close(self._queue_lock)
            self._queue_lock = None

    def _held_devices(self) -> list[str]:
        holders = {uuid: self._folder.holder(uuid) for uuid in self._candidates}
        return [f"{uuid} is held by {holder}" for uuid, holder in holders.items() if holder]

    def _unfit_reason(self, uuid: str) -> str | None:
        """Return why a free device is not leased; only one named in the policy may be unknown."""
        mark = read_mark(Path(self.plan.folder), uuid)
        if mark and mark.is_valid:
            return str(mark)
        found = self.detection.device(uuid)
        total, used = found.get("memory_total"), found["memory_used"]
        if self.detection.status == "unknown":
            unknown = f"is unknown: {self.detection.reason}"
        elif found["index"] is None:
            return "is no longer found"
        elif found["health"] not in ("healthy", "unknown"):
            return f"is {found['health']}"
        elif total and used is not None and used > self.plan.busy_memory * total:
            share, limit = used / total, self.plan.busy_memory
            return f"has {share:.0%} of its memory in use without a lease (busy above {limit:.0%})"
        elif found["health"] == "unknown" or used is None or not total:
            unknown = "does not report its health or its memory in use"
        else:
            return None
        return None if uuid in self.plan.uuids else unknown

    def _record(self, stage: str, waited: float) -> None:
        leased = tuple(self.detection.device(uuid) for uuid in self._locks)
        for found in leased:
            fixed = {name: value for name, value in found.items() if name not in STATE}
            before = {name: found.get(name) for name in STATE}
            self.records.append({**fixed, "before": before, "after": None})
        text = f"{stage} has {', '.join(self._locks)} after {waited:.0f} s"
        self.emit(LeaseTaken(stage=stage, waited_s=waited, devices=leased, text=text))


def _release(locks: Mapping[str, int]) -> None:
    for descriptor in locks.values():
        os.close(descriptor)


def _join_reasons(reasons: list[str]) -> str:
    return "; ".join(reasons) or "other runs leased the devices first"


# What a lease needs of an answer, which a vendor's library may have garbled.
FACTS = frozenset(("uuid", "index", "health", "memory_used"))
TEXT = (str, type(None))


@dataclass(frozen=True)
class Detection:
    """The result of a probe: ``devices``, ``none`` or ``unknown``; unknown devices are not free."""

    status: str
    reason: str | None = None
    devices: tuple[dict[str, Any], ...] = ()

    def device(self, uuid: str) -> dict[str, Any]:
        """Return the device of a name; only the name, if the probe did not find it."""
        nothing = {"uuid": uuid, "index": None, "health": "unknown", "memory_used": None}
        return next((found for found in self.devices if found["uuid"] == uuid), nothing)


def detect(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    timeout_s: float = PROBE_S,
) -> Detection:
    """Run the probe; if it fails, the result is ``unknown`` with the reason."""
    try:
        process = subprocess.Popen(
            command,
            env=environment,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    except OSError as error:
        return Detection("unknown", f"{command[0]}: {os.strerror(error.errno or 0)}")
    try:
        output, complaints = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        with suppress(subprocess.TimeoutExpired):  # a hung driver keeps it in the kernel
            process.communicate(timeout=PROBE_KILL_S)
        return Detection("unknown", f"the probe did not answer within {timeout_s:.0f} s")
    if process.returncode != 0:
        return Detection("unknown", _failure(process.returncode, complaints))
    return read_answer(output)


def read_answer(output: bytes) -> Detection:
    """Read the output of a probe; unknown, if it is not an answer."""
    try:  # the last line, since a vendor's library may print others before it
        answer = parse_object(output.splitlines()[-1].decode(errors="replace"))
        status, reason = answer["status"], answer.get("reason")
        devices = tuple(answer.get("devices", ()))
        if not (all(map(_is_device, devices)) and type(status) is str and type(reason) in TEXT):
            raise ValueError("not the answer of a probe")
        return Detection(status, reason, devices)
    except (IndexError, ValueError, TypeError, KeyError):
        text = output[-200:].decode(errors="replace")
        return Detection("unknown", f"the probe did not answer in JSON: {text!r}")


def _is_device(found: object) -> bool:
    """Return whether a device has the facts that a lease needs."""
    if not isinstance(found, dict) or not FACTS.issubset(found):
        return False
    numbers = found["memory_used"], found.get("memory_total")
    return (
        type(found["uuid"]) in TEXT
        and type(found["health"]) is str
        and all(type(number) in (int, float, type(None)) for number in numbers)
    )


def _failure(code: int, complaints: bytes) -> str:
    lines = complaints.decode(errors="replace").split("\n")
    last = next((f": {line.strip()}" for line in reversed(lines) if line.strip()), "")
    try:
        how = f"was killed by {signal.Signals(-code).name}"
    except ValueError:  # a real-time signal has no name
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
    return f"the probe {how}{last}"
