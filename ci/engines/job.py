"""What an engine hands to the agent: the program itself and its job."""

from __future__ import annotations

import io
import json
import sys
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ci.agent.__main__ import PROTOCOL
from ci.engines.devices import PROBE, device_job
from ci.model.plan import CachePlan, RunPlan
from ci.model.platforms import PLATFORMS
from ci.util.files import REPOSITORY, user_cache
from ci.util.lines import LARGEST_DOCUMENT, parse_object

MAIN = "from ci.agent.__main__ import main\n\nmain()\n"
PARTS = ("__init__.py", "agent/*.py", "util/__init__.py", "util/lines.py", "util/text.py")


def agent_modules() -> list[Path]:
    """The agent, and what it uses of the rest: with nothing but the standard library of 3.8."""
    return [module for part in PARTS for module in sorted((REPOSITORY / "ci").glob(part))]


def agent_archive() -> bytes:
    """Return the agent as one file that any Python >= 3.8 can run."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("__main__.py", MAIN)
        for module in agent_modules():
            archive.writestr(str(module.relative_to(REPOSITORY)), module.read_bytes())
    return buffer.getvalue()


def job_document(
    plan: RunPlan,
    *,
    workspace: str,
    results: str,
    environment: Mapping[str, str],
    printed_bytes_per_s: int,
    compiler_cache: Mapping[str, object] | None = None,
    probe: tuple[str, str] = (sys.executable, str(PROBE)),
) -> bytes:
    """Return the agent's input file.

    ``environment`` goes on top of the agent's own; of output that comes faster than
    ``printed_bytes_per_s`` the agent prints a part, while the logs have it all.
    ``compiler_cache`` says where one lies (``ci.engines.job``), ``probe`` which Python
    looks for devices, and by which program, where the agent is.
    """
    facts = PLATFORMS[plan.platform].devices
    document = {
        "protocol": PROTOCOL,
        "run_id": plan.run_id,
        "platform": plan.platform,
        "workspace": workspace,
        "results": results,
        "environment": dict(environment),
        "printed_bytes_per_s": printed_bytes_per_s,
        "stages": [
            {
                "name": stage.name,
                "kind": stage.kind,
                "command": stage.command,
                "environment": dict(stage.environment),
                "timeout_s": stage.timeout_s,
                "device": stage.device,
                "reruns": stage.reruns,
            }
            for stage in plan.stages
        ],
        "artifacts": [
            {"name": artifact.name, "path": artifact.path} for artifact in plan.artifacts
        ],
        "devices": device_job(plan.devices, probe) if plan.devices else None,
        "device_compiler": facts.compiler if facts else None,
        "compiler_cache": compiler_cache and dict(compiler_cache),
    }
    return json.dumps(document, indent=2).encode()


MOUNT = "/cache"
# Below the mount: an engine makes a volume root's own, where the image has no such folder.
FOLDER = f"{MOUNT}/ccache"


def container_cache(plan: RunPlan) -> Mapping[str, object] | None:
    """What the agent in a container is told."""
    return _job(plan.cache, FOLDER, plan.container.workspace) if plan.cache else None


def host_cache(plan: RunPlan, base: Path) -> Mapping[str, object] | None:
    """What the agent on this machine is told; ``base`` has its sources and environment."""
    return _job(plan.cache, str(host_folder(plan.cache)), str(base)) if plan.cache else None


def host_folder(cache: CachePlan) -> Path:
    """The user's own folder for a cache."""
    return user_cache() / cache.name


def is_empty(results: Path) -> bool:
    """Whether nothing lay in the cache when a run's stages had ended, as its agent says."""
    path = results / "environment.json"
    try:  # it is the container's, and may be anything
        if path.stat().st_size > LARGEST_DOCUMENT:
            return False
        cache = parse_object(path.read_text(encoding="utf-8")).get("compiler_cache")
    except (OSError, ValueError):
        return False
    return isinstance(cache, dict) and cache.get("empty") is True


def remove_empty_folder(cache: CachePlan) -> None:
    """Leave no folder behind for a project that compiles nothing."""
    with suppress(OSError):  # it holds something, or was never made
        host_folder(cache).rmdir()


def volume_labels(plan: RunPlan) -> dict[str, str]:
    """What says whose a volume is; it outlives the run."""
    labels = plan.container.labels.items()
    return {name: value for name, value in labels if name != "infini-ci.run"}


def _job(cache: CachePlan, folder: str, base: str) -> Mapping[str, object]:
    return {"folder": folder, "base": base, "cold": cache.cold}
