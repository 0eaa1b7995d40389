"""The devices of a platform: their files, tools and state, and who holds them."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ci.engines.devices import PROBE
from ci.errors import InfrastructureError
from ci.model.plan import DevicePlan, Exposure, RunPlan
from ci.upkeep.doctor.checks import REQUEST_S
from ci.util.lines import parse_object
from ci.util.prerequisites import Finding, ok, problem, unknown, warning
from ci.util.process import run
from ci.util.text import counted, first_names

FREE = "free"
MOST_READ = 1 << 16  # characters of a lock file, to which containers can write
DETECTION_REMEDY = (
    "Install the vendor's driver and, in this Python, gpustack-runtime"
    " (python -m pip install --group devices); or name the devices in devices.uuids."
)


@dataclass(frozen=True, kw_only=True)
class Probe:
    """What the device probe has answered: status ``devices``, ``none`` or ``unknown``."""

    status: str
    reason: str | None = None
    devices: tuple[Mapping[str, Any], ...] = ()


def device_findings(
    plan: RunPlan, *, here: bool, runtimes: Sequence[str] | None
) -> Iterator[Finding]:
    """Check the devices on this machine; ``runtimes`` are the engine's, where it is one.

    ``here``: the platform runs on this machine. Another's devices are found by its own runs.
    """
    subject = f"devices of {plan.platform}"
    if plan.devices is None:
        if plan.simulated:
            yield ok(subject, "simulated: no vendor hardware is needed or used")
        return
    if not here:
        yield unknown(
            subject,
            "they are on another machine",
            remedy=f"Run python -m ci doctor {plan.platform} there; a run here looks at them too.",
        )
        return
    devices = plan.devices
    yield judge_files(subject, _matches(devices.facts.files))
    yield judge_tool(subject, devices, shutil.which(devices.facts.management))
    if runtimes is not None:
        yield from judge_runtimes(subject, devices, runtimes)
    folder = Path(devices.folder)
    yield lease_folder(subject, folder)
    probe = ask_probe(devices.facts.manufacturer)
    yield from judge_probe(subject, devices, probe, leases(folder))


def ask_probe(manufacturer: str) -> Probe:
    """Ask gpustack-runtime in a process of its own, which a vendor's library may crash."""
    try:
        done = run([sys.executable, str(PROBE), manufacturer], timeout_s=REQUEST_S)
        answer = parse_object(done.stdout.splitlines()[-1])
        return Probe(
            status=answer["status"],
            reason=answer.get("reason"),
            devices=tuple(answer.get("devices", ())),
        )
    except InfrastructureError as error:
        return Probe(status="unknown", reason=str(error).splitlines()[0])
    except (IndexError, ValueError, KeyError, TypeError):
        return Probe(status="unknown", reason="the probe did not answer in JSON")


def judge_files(subject: str, found: Mapping[str, Sequence[str]]) -> Finding:
    """Judge which of the vendor's device files are there."""
    missing = [pattern for pattern, paths in found.items() if not paths]
    there = [path for paths in found.values() for path in paths]
    if not missing:
        return ok(subject, f"device files {first_names(there)}")
    return problem(
        subject,
        f"no device file {', '.join(missing)}" + (f"; found {first_names(there)}" if there else ""),
        expected="those that the vendor's driver makes",
        remedy="Install the driver and look at its log (dmesg), or run on a machine that has the"
        " devices: `engines:` in ci.site.yaml.",
    )


def judge_tool(subject: str, devices: DevicePlan, path: str | None) -> Finding:
    """Judge whether the vendor's command line tool is there: its driver brings it."""
    tool = devices.facts.management
    if path is not None:
        return ok(subject, f"management tool {path}")
    return warning(
        subject,
        f"{tool} is not on PATH",
        expected="the vendor's management tool",
        remedy="Install the vendor's driver and tools, or put them on PATH.",
    )


def judge_runtimes(subject: str, devices: DevicePlan, runtimes: Sequence[str]) -> Iterator[Finding]:
    """Judge whether the engine can hand devices out on request."""
    by_request = devices.exposure is Exposure.REQUEST or (
        devices.exposure is Exposure.AUTO and devices.facts.request
    )
    if not by_request or any(devices.facts.manufacturer in name for name in runtimes):
        return
    yield warning(
        subject,
        f"the engine knows no runtime of {devices.facts.manufacturer}, only {', '.join(runtimes)}",
        expected="the one that hands out devices on request (--gpus)",
        remedy="Install nvidia-container-toolkit, run `nvidia-ctk runtime configure`, restart the"
        " engine; or set devices.exposure.",
    )


def judge_probe(
    subject: str, devices: DevicePlan, probe: Probe, held: Mapping[str, str]
) -> Iterator[Finding]:
    """Judge what was detected, and who holds it, against what the policy asks for."""
    if probe.status == "none":
        yield problem(
            subject,
            probe.reason or "none was detected",
            expected=_wanted(devices),
            remedy="Put one in, install its driver, or run on another machine.",
        )
        return
    if probe.status != "devices":
        yield unknown(
            subject,
            f"detection failed: {probe.reason or 'no reason given'}",
            remedy=DETECTION_REMEDY,
        )
        return
    states = {str(found["uuid"]): _state(found, devices, held) for found in probe.devices}
    if devices.uuids:
        states = {uuid: state for uuid, state in states.items() if uuid in devices.uuids}
    yield _judge_count(subject, devices, states)


def _judge_count(subject: str, devices: DevicePlan, states: Mapping[str, str]) -> Finding:
    found = ", ".join(f"{uuid} {state}" for uuid, state in states.items()) or "none that is allowed"
    expected = f"{_wanted(devices)} by the policy"
    free = sum(state == FREE for state in states.values())
    if len(states) < devices.count:
        return problem(
            subject,
            found,
            expected=expected,
            remedy="Lower devices.count or correct devices.uuids, in ci.site.yaml or ci.yaml.",
        )
    if free < devices.count:
        wait = f"A run waits up to {devices.wait_s:g} s for them (devices.wait_s)."
        return warning(subject, found, expected=f"{expected}, free", remedy=wait)
    return ok(subject, found)


def _wanted(devices: DevicePlan) -> str:
    return counted(devices.count, "device")


def _state(found: Mapping[str, Any], devices: DevicePlan, held: Mapping[str, str]) -> str:
    """``free``, or why a run would not take a device; only a named one may be unknown."""
    uuid, health = str(found["uuid"]), found.get("health")
    used, total = found.get("memory_used"), found.get("memory_total")
    if owner := held.get(lease_name(uuid)):
        return f"held by {owner}"
    if health not in ("healthy", "unknown", None):
        return str(health)
    if used is not None and total and used > devices.busy_memory * total:
        return f"busy ({used / total:.0%} of its memory)"
    if health == "healthy" and used is not None and total:
        return FREE
    return FREE if uuid in devices.uuids else "of unknown health or memory"


def lease_name(uuid: str) -> str:
    """The name of a device's lease, as its file has it."""
    return re.sub("[^A-Za-z0-9-]", "_", uuid)


def lease_folder(subject: str, folder: Path) -> Finding:
    """Judge whether leases can be taken."""
    there = next(path for path in (folder, *folder.parents) if path.exists())
    if there.is_dir() and os.access(there, os.W_OK | os.X_OK):
        return ok(subject, f"leases are taken in {folder}")
    return problem(
        subject,
        f"the lease folder {folder} cannot be used by this user",
        expected="one that every user may write to",
        remedy=f"As root: install -d -m 1777 {folder}",
    )


def leases(folder: Path) -> dict[str, str]:
    """The leases that are held, and by whom."""
    paths = sorted(folder.glob("*.lock"))
    return {path.stem: owner for path in paths if (owner := holder(path))}


def holder(path: Path) -> str | None:
    """Say who holds a lease, from what the holder has written into its file."""
    with suppress(OSError), path.open(errors="replace") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            try:
                owner = parse_object(lock.read(MOST_READ))
                return f"run {owner['run']} ({owner['platform']}) of user {owner['user']}"
            except (ValueError, KeyError, TypeError):
                return "a run that does not say which"
    return None


def _matches(patterns: Sequence[str]) -> dict[str, list[str]]:
    root = Path("/")
    return {pattern: sorted(map(str, root.glob(pattern.lstrip("/")))) for pattern in patterns}
