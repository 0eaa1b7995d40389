"""Finds, on an engine's machine, what containers need of it: by a short container there."""

from __future__ import annotations

import fnmatch
import json

from docker.client import DockerClient
from docker.errors import ContainerError

from ci.devices.exposure import FoundFiles, exposure_of, lease_volume
from ci.errors import InfrastructureError
from ci.plan import DevicePlan, Exposure, RunPlan

HOST = "/host"  # where the container has the machine's files, read-only
HELPER_LABEL = "infini-ci.helper"

# Runs as root, as nobody else can make a folder for everybody, but with no capability.
PROGRAM = f"""
import glob, json, os, stat, sys
wanted = json.loads(sys.argv[1])
files, groups = [], set()
for path in sorted(path for pattern in wanted["files"] for path in glob.glob("{HOST}" + pattern)):
    facts = os.stat(path)
    if stat.S_ISCHR(facts.st_mode):
        files.append(path[len("{HOST}"):])
        if facts.st_mode & stat.S_IWGRP and not facts.st_mode & stat.S_IWOTH:
            groups.add(facts.st_gid)
mounts = [path for path in wanted["mounts"] if os.path.exists("{HOST}" + path)]
if os.stat(wanted["folder"]).st_uid == 0:
    os.chmod(wanted["folder"], 0o1777)
print(json.dumps({{"files": files, "mounts": mounts, "groups": sorted(groups)}}))
"""


def look(client: DockerClient, plan: RunPlan, devices: DevicePlan) -> FoundFiles:
    """Look for the vendor's files, and make the lease folder, which the engine does as root.

    Raises ``InfrastructureError`` where the container needs device files and there are none.
    """
    facts = devices.facts
    wanted = {"files": facts.files, "mounts": facts.mounts, "folder": devices.folder}
    tops = {f"/{path.split('/')[1]}" for path in (*facts.files, *facts.mounts)}
    labels = {k: v for k, v in plan.container.labels.items() if not k.endswith(".run")}
    try:
        printed = client.containers.run(
            plan.needed_image.tag,
            entrypoint=[*plan.needed_image.entry, "python3", "-c", PROGRAM],
            command=[json.dumps(wanted)],
            labels={**labels, HELPER_LABEL: plan.run_id},
            user="0",
            network_mode="none",
            cap_drop=["ALL"],
            security_opt=["no-new-privileges"],
            volumes=[*(f"{top}:{HOST}{top}:ro" for top in tops), lease_volume(devices)],
            remove=True,
        )
    except ContainerError as error:
        message = f"the search for devices on the engine's machine failed: {error}"
        raise InfrastructureError(message) from error
    found = FoundFiles(**{name: tuple(value) for name, value in json.loads(printed).items()})
    if exposure_of(devices) is Exposure.FILES and not fnmatch.filter(found.files, facts.files[0]):
        raise InfrastructureError(
            f"the engine's machine has no device file {facts.files[0]} of {plan.label}",
            remedy=f"Install the vendor's driver there ({facts.management} must list devices), name"
            " another engine, or run without devices (devices.count: 0).",
        )
    return found
