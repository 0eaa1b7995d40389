"""Accelerator devices: how a run finds them, a container gets them, and doctor checks them."""

from __future__ import annotations

import fcntl
import fnmatch
import getpass
import json
import os
import shutil
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from docker.client import DockerClient
from docker.errors import ContainerError
from docker.types import DeviceRequest
from pydantic import TypeAdapter, ValidationError

from ci.agent.bad_devices import read_mark
from ci.agent.lease import Detection, detect
from ci.agent.locks import lock_name, owner_text, read_owner
from ci.engines.checks import REQUEST_S, Finding, ok, problem, unknown, warning
from ci.errors import ConfigError, InfrastructureError
from ci.model.plan import CONTAINER_FOLDER, DevicePlan, Exposure, RunPlan
from ci.protocol.job import DeviceJob
from ci.util.process import inherited_environment
from ci.util.text import counted, join_names, strip_controls

PROBE: Final = Path(__file__).parent / "probe" / "probe.py"
# In images the probe has a Python of its own, because the stages use the vendor's.
CONTAINER_PROBE: Final = ("/opt/devices/bin/python", f"{CONTAINER_FOLDER}/devices.py")


def device_job(devices: DevicePlan, probe: tuple[str, str], shards: int) -> DeviceJob:
    """Return the device part of the agent's job; ``probe`` is a Python and its program."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # the user id has no name, as in many containers
        user = str(os.getuid())
    return DeviceJob(
        count=devices.count,
        uuids=devices.uuids,
        wait_s=devices.wait_s,
        busy_memory=devices.busy_memory,
        folder=devices.folder,
        probe=(*probe, devices.facts.manufacturer),
        visible=devices.facts.visible,
        visible_by=devices.facts.visible_by,
        user=f"{user}@{socket.gethostname()}",
        shards=shards,
    )


@dataclass(frozen=True, kw_only=True)
class DeviceFiles:
    """The device files and driver files of a vendor that exist on an engine's machine.

    Attributes:
        files: device files
        mounts: folders and files of the driver
        groups: ids of the groups that may use the device files
    """

    files: tuple[str, ...]
    mounts: tuple[str, ...]
    groups: tuple[int, ...]


def exposure_of(devices: DevicePlan) -> Exposure:
    """Return how devices are exposed; ``auto`` becomes the vendor's usual way."""
    if devices.exposure is not Exposure.AUTO:
        return devices.exposure
    return Exposure.REQUEST if devices.facts.request else Exposure.FILES


def check_exposure(platform: str, devices: DevicePlan) -> None:
    """Raise ``ConfigError`` if this vendor does not support the configured exposure."""
    exposure, facts = exposure_of(devices), devices.facts
    possible = {Exposure.REQUEST: facts.request, Exposure.CDI: facts.cdi, Exposure.FILES: True}
    if not possible[exposure]:
        known = ", ".join(way for way, there in possible.items() if there)
        raise ConfigError(
            f"platforms.{platform}.devices.exposure: got '{exposure}', expected one of {known}"
        )


def container_devices(devices: DevicePlan, found: DeviceFiles | None = None) -> dict[str, Any]:
    """Return the device options of a container; without ``found``, files are patterns."""
    facts = devices.facts
    options: dict[str, Any] = {"volumes": [lease_volume(devices)]}
    match exposure_of(devices):
        case Exposure.REQUEST:
            # Same as `--gpus`. `utility` adds the management library, which detection needs.
            which = {"device_ids": list(devices.uuids)} if devices.uuids else {"count": -1}
            request = DeviceRequest(capabilities=[["gpu", "compute", "utility"]], **which)
            options["device_requests"] = [request]
        case Exposure.CDI:
            names = [f"{facts.cdi}={uuid}" for uuid in devices.uuids or ("all",)]
            options["device_requests"] = [DeviceRequest(driver="cdi", device_ids=names)]
        case _:
            found = found or DeviceFiles(files=facts.files, mounts=facts.mounts, groups=())
            options["devices"] = [f"{path}:{path}:rw" for path in found.files]
            options["volumes"] += [f"{path}:{path}:ro" for path in found.mounts]
            options["group_add"] = [str(number) for number in found.groups]
    if devices.privileged:
        options["privileged"] = True
    return options


def lease_volume(devices: DevicePlan) -> str:
    """Return the volume of the lease folder, at the same path in every container."""
    return f"{devices.folder}:{devices.folder}"


MOUNT = "/host"  # mount point of the machine's files in the container, read-only
LONGEST_ANSWER = 200  # bytes that an error quotes

# Runs as root, because only root can make a folder for all users, but without capabilities.
SEARCH_PROGRAM = f"""
import glob, json, os, stat, sys
wanted = json.loads(sys.argv[1])
files, groups = [], set()
for path in sorted(path for pattern in wanted["files"] for path in glob.glob("{MOUNT}" + pattern)):
    facts = os.stat(path)
    if stat.S_ISCHR(facts.st_mode):
        files.append(path[len("{MOUNT}"):])
        if facts.st_mode & stat.S_IWGRP and not facts.st_mode & stat.S_IWOTH:
            groups.add(facts.st_gid)
mounts = [path for path in wanted["mounts"] if os.path.exists("{MOUNT}" + path)]
if os.stat(wanted["folder"]).st_uid == 0:
    os.chmod(wanted["folder"], 0o1777)
print(json.dumps({{"files": files, "mounts": mounts, "groups": sorted(groups)}}))
"""


def read_files(printed: bytes, image: str) -> DeviceFiles:
    """Read what ``SEARCH_PROGRAM`` printed; the ``python3`` of an image may be any program.

    Raises ``InfrastructureError`` for anything else.
    """
    try:
        return TypeAdapter(DeviceFiles).validate_json(printed, strict=True)
    except ValidationError as error:
        text = strip_controls(printed[:LONGEST_ANSWER].decode(errors="replace"))
        raise InfrastructureError(
            f"python3 of image {image}: got {text!r}, expected the device files as JSON",
            remedy="Use an image whose python3 is Python.",
        ) from error


def find_device_files(client: DockerClient, plan: RunPlan, devices: DevicePlan) -> DeviceFiles:
    """Find the vendor's files on the engine's machine, and create the lease folder as root.

    Raises ``InfrastructureError`` if the container needs device files and the machine has none.
    """
    facts = devices.facts
    wanted = {"files": facts.files, "mounts": facts.mounts, "folder": devices.folder}
    tops = {f"/{path.split('/')[1]}" for path in (*facts.files, *facts.mounts)}
    try:
        printed = client.containers.run(
            plan.needed_image.tag,
            entrypoint=[*plan.needed_image.entry, "python3", "-c", SEARCH_PROGRAM],
            command=[json.dumps(wanted)],
            labels=plan.container.helper_labels,
            user="0",
            network_mode="none",
            cap_drop=["ALL"],
            security_opt=["no-new-privileges"],
            volumes=[*(f"{top}:{MOUNT}{top}:ro" for top in tops), lease_volume(devices)],
            remove=True,
        )
    except ContainerError as error:
        message = f"the search for devices on the engine's machine failed: {error}"
        raise InfrastructureError(message) from error
    found = read_files(printed, plan.needed_image.tag)
    if exposure_of(devices) is Exposure.FILES and not fnmatch.filter(found.files, facts.files[0]):
        raise InfrastructureError(
            f"the engine's machine has no device file {facts.files[0]} of {plan.label}",
            remedy=f"Install the vendor's driver there ({facts.management} must list devices), name"
            " another engine, or run without devices (devices.count: 0).",
        )
    return found


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
    mark = read_mark(Path(devices.folder), uuid)
    if mark and mark.is_valid:
        return strip_controls(str(mark))
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
