"""The devices of a platform: their files, tools, state and holders."""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ci.agent.lease import Detection, detect
from ci.agent.locks import lock_name, owner_text, read_owner
from ci.engines.checks import REQUEST_S, Finding, ok, problem, unknown, warning
from ci.engines.devices import PROBE, exposure_of
from ci.model.plan import DevicePlan, Exposure, RunPlan
from ci.util.process import inherited_environment
from ci.util.text import counted, join_names

FREE = "free"
DETECTION_REMEDY = (
    "Install the vendor's driver and, in this Python, gpustack-runtime"
    " (python -m pip install --group devices); or name the devices in devices.uuids."
)


def device_findings(plan: RunPlan, runtimes: Sequence[str] | None = None) -> Iterator[Finding]:
    """Check the devices on this machine; ``runtimes`` are those of an engine of containers."""
    subject = f"devices of {plan.platform}"
    devices = plan.devices
    if devices is None:
        if plan.simulated:
            yield ok(subject, "simulated: no vendor hardware is needed or used")
        return
    files = {name: Path("/").glob(name.lstrip("/")) for name in devices.facts.files}
    yield judge_files(subject, {name: sorted(map(str, found)) for name, found in files.items()})
    if (path := shutil.which(devices.facts.management)) is not None:
        yield ok(subject, f"management tool {path}")
    else:
        yield warning(
            subject,
            f"{devices.facts.management} is not on PATH",
            expected="the vendor's management tool",
            remedy="Install the vendor's driver and tools, or put them on PATH.",
        )
    if runtimes is not None:
        yield from judge_runtimes(subject, devices, runtimes)
    folder = Path(devices.folder)
    yield judge_lease_folder(subject, folder)
    # In a process of its own: a vendor's library may crash.
    probe = [sys.executable, str(PROBE), devices.facts.manufacturer]
    detection = detect(probe, inherited_environment(), timeout_s=REQUEST_S)
    yield judge_probe(subject, devices, detection, held_leases(folder))


def judge_files(subject: str, found: Mapping[str, Sequence[str]]) -> Finding:
    """Judge whether the vendor's device files exist."""
    missing = [pattern for pattern, paths in found.items() if not paths]
    there = [path for paths in found.values() for path in paths]
    if not missing:
        return ok(subject, f"device files {join_names(there)}")
    return problem(
        subject,
        f"no device file {', '.join(missing)}" + (f"; found {join_names(there)}" if there else ""),
        expected="the files that the vendor's driver makes",
        remedy="Install the driver and look at its log (dmesg), or run on a machine that has the"
        " devices: `engines:` in ci.site.yaml.",
    )


def judge_runtimes(subject: str, devices: DevicePlan, runtimes: Sequence[str]) -> Iterator[Finding]:
    """Judge whether the engine can hand devices out on request."""
    by_request = exposure_of(devices) is Exposure.REQUEST
    if not by_request or any(devices.facts.manufacturer in name for name in runtimes):
        return
    yield warning(
        subject,
        f"the engine has no runtime of {devices.facts.manufacturer}, only {', '.join(runtimes)}",
        expected="the runtime that hands out devices on request (--gpus)",
        remedy="Install nvidia-container-toolkit, run `nvidia-ctk runtime configure`, restart the"
        " engine; or set devices.exposure.",
    )


def judge_probe(
    subject: str, devices: DevicePlan, probe: Detection, held: Mapping[str, str]
) -> Finding:
    """Judge the detected devices and their holders by the policy of the platform."""
    wanted = counted(devices.count, "device")
    if probe.status == "none":
        remedy = "Install a device and its driver, or run on another machine."
        found = probe.reason or "none was detected"
        return problem(subject, found, expected=wanted, remedy=remedy)
    if probe.status != "devices":
        found = f"detection failed: {probe.reason or 'no reason given'}"
        return unknown(subject, found, remedy=DETECTION_REMEDY)
    states = {str(each["uuid"]): _device_state(each, devices, held) for each in probe.devices}
    if devices.uuids:
        states = {uuid: state for uuid, state in states.items() if uuid in devices.uuids}
    found = (
        ", ".join(f"{uuid} {state}" for uuid, state in states.items())
        or "none of the allowed devices"
    )
    expected = f"{wanted} (devices.count)"
    if len(states) < devices.count:
        remedy = "Lower devices.count or correct devices.uuids, in ci.site.yaml or ci.yaml."
        return problem(subject, found, expected=expected, remedy=remedy)
    if sum(state == FREE for state in states.values()) < devices.count:
        wait = f"A run waits up to {devices.wait_s:g} s for them (devices.wait_s)."
        return warning(subject, found, expected=f"{expected}, free", remedy=wait)
    return ok(subject, found)


def _device_state(found: Mapping[str, Any], devices: DevicePlan, held: Mapping[str, str]) -> str:
    """Return ``free``, or why a run would not use the device; an unknown one must be named."""
    uuid, health = str(found["uuid"]), found.get("health")
    used, total = found.get("memory_used"), found.get("memory_total")
    if owner := held.get(lock_name(uuid)):
        return f"held by {owner}"
    if health not in ("healthy", "unknown", None):
        return str(health)
    if used is not None and total and used > devices.busy_memory * total:
        return f"busy ({used / total:.0%} of its memory)"
    if health == "healthy" and used is not None and total:
        return FREE
    return FREE if uuid in devices.uuids else "of unknown health or memory"


def judge_lease_folder(subject: str, folder: Path) -> Finding:
    """Judge whether leases can be taken."""
    there = next(path for path in (folder, *folder.parents) if path.exists())
    if there.is_dir() and os.access(there, os.W_OK | os.X_OK):
        return ok(subject, f"leases are taken in {folder}")
    return problem(
        subject,
        f"the lease folder {folder} cannot be used by this user",
        expected="a folder that every user may write to",
        remedy=f"As root: install -d -m 1777 {folder}",
    )


def held_leases(folder: Path) -> dict[str, str]:
    """Return the held leases, with the holders that their files name."""
    found = {}
    for path in sorted(folder.glob("*.lock")):
        with suppress(OSError), path.open() as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                found[path.stem] = owner_text(read_owner(lock.fileno()))
    return found
