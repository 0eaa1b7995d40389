"""Accelerator devices: how a run finds them, and how a container gets access to them."""

from __future__ import annotations

import fnmatch
import getpass
import json
import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from docker.client import DockerClient
from docker.errors import ContainerError
from docker.types import DeviceRequest

from ci.errors import ConfigError, InfrastructureError
from ci.model.plan import CONTAINER_FOLDER, DevicePlan, Exposure, RunPlan
from ci.protocol.job import DeviceJob
from ci.util.lines import parse_object
from ci.util.text import strip_controls

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
    mounts: tuple[str, ...] = ()
    groups: tuple[int, ...] = ()


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
            found = found or DeviceFiles(files=facts.files, mounts=facts.mounts)
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
    kinds = {"files": str, "mounts": str, "groups": int}
    try:
        found = parse_object(printed.decode(errors="replace"))
        lists = {name: tuple(found[name]) for name in kinds}
        if any(type(it) is not kinds[name] for name, values in lists.items() for it in values):
            raise TypeError("a value of another type")
    except (ValueError, KeyError, TypeError) as error:
        text = strip_controls(printed[:LONGEST_ANSWER].decode(errors="replace"))
        raise InfrastructureError(
            f"python3 of image {image}: got {text!r}, expected the device files as JSON",
            remedy="Use an image whose python3 is Python.",
        ) from error
    return DeviceFiles(**lists)


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
