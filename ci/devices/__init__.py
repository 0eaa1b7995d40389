"""Devices of accelerators: how a run finds them, and how a container gets at them."""

from __future__ import annotations

import getpass
import os
import socket
from pathlib import Path
from typing import Any, Final

from ci.plan import DevicePlan

PROBE: Final = Path(__file__).parent / "probe.py"
# In images: a Python of its own, as that of the stages is the vendor's.
CONTAINER_PROBE: Final = ("/opt/devices/bin/python", "/opt/infini-ci/devices.py")


def device_job(devices: DevicePlan, probe: tuple[str, str]) -> dict[str, Any]:
    """What the agent is told about devices; ``probe`` is a Python and the program it runs."""
    facts = devices.facts
    return {
        "count": devices.count,
        "uuids": devices.uuids,
        "wait_s": devices.wait_s,
        "busy_memory": devices.busy_memory,
        "folder": devices.folder,
        "probe": [*probe, facts.manufacturer],
        "visible": facts.visible,
        "visible_by": facts.visible_by,
        "user": f"{_user()}@{socket.gethostname()}",
    }


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a number without a name, as in many containers
        return str(os.getuid())
