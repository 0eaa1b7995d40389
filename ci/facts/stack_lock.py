"""The lock of the vendor's stack: what decides a result below the packages of Python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ci.model.results import PlatformResult

STACK_LOCK = "stack.json"
SCHEMA_VERSION = 1
# Equal runs have equal locks, so it has no host, no date and no duration.
_IMAGE = ("reference", "digest", "base", "base_digest", "base_pinned")
_TOOLS = ("python", "compiler", "device_compiler")
_PARTS = ("sdk", "torch_builds", "libraries")


def stack_lock(result: PlatformResult) -> Mapping[str, Any]:
    """Return the lock of a platform's stack, with what its run recorded."""
    image, facts = result.facts("engine", "image"), result.environment
    found = facts.get("devices")
    devices = [it for it in found if isinstance(it, dict)] if isinstance(found, list) else []
    kinds = {(str(it.get("name")), str(it.get("driver"))) for it in devices}
    return {
        "schema_version": SCHEMA_VERSION,
        "platform": result.platform,
        "simulated": result.simulated,
        "image": {name: image.get(name) for name in _IMAGE},
        **{name: facts.get(name) for name in _TOOLS},
        "devices": [{"name": name, "driver": driver} for name, driver in sorted(kinds)],
        **{name: result.facts(name) for name in _PARTS},
    }
