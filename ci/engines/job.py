"""What an engine hands to the agent: the program itself, its job, and what its container has."""

from __future__ import annotations

import io
import sys
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

from docker.types import Ulimit

from ci.engines.devices import CONTAINER_PROBE, PROBE, DeviceFiles, container_devices, device_job
from ci.engines.logs import SHOWN_BYTES_PER_S, STREAMED_BYTES_PER_S
from ci.model.job import CacheJob, Job
from ci.model.plan import CONTAINER_CA_BUNDLE, CachePlan, RunPlan
from ci.model.platforms import PLATFORMS
from ci.util.files import REPOSITORY, user_cache
from ci.util.lines import LARGEST_DOCUMENT, parse_object

MAIN = "from ci.agent.__main__ import main\n\nmain()\n"
PARTS = (
    "__init__.py",
    "agent/*.py",
    *("model/__init__.py", "model/events.py", "model/job.py"),
    *("util/__init__.py", "util/lines.py", "util/text.py"),
)


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
    printed_bytes_per_s: int,
    environment: Mapping[str, str] = MappingProxyType({}),
    compiler_cache: CacheJob | None = None,
    probe: tuple[str, str] = (sys.executable, str(PROBE)),
) -> bytes:
    """Return the agent's input file.

    ``workspace``, ``results`` and ``compiler_cache`` are where the agent is, as is ``probe``: a
    Python that looks for devices, and the program that it runs. ``environment`` goes on top of the
    agent's own.
    """
    facts = PLATFORMS[plan.platform].devices
    job = Job(
        run_id=plan.run_id,
        platform=plan.platform,
        workspace=workspace,
        results=results,
        environment=dict(environment),
        printed_bytes_per_s=printed_bytes_per_s,
        stages=plan.stages,
        artifacts=plan.artifacts,
        devices=device_job(plan.devices, probe) if plan.devices else None,
        device_compiler=facts.compiler if facts else None,
        compiler_cache=compiler_cache,
    )
    return job.to_json().encode()


AGENT = "/opt/infini-ci/agent.pyz"
JOB = "/opt/infini-ci/job.json"
COMMAND = ("python3", AGENT, JOB)
CACHE_MOUNT = "/cache"
# Below the mount: an engine makes a volume root's own, where the image has no such folder.
CACHE_FOLDER = f"{CACHE_MOUNT}/ccache"
PIDS_LIMIT = 32768  # against fork bombs; threads count, and large machines use thousands


def container_options(plan: RunPlan, found: DeviceFiles | None = None) -> dict[str, Any]:
    """Return what ``docker create`` is told beside image and command.

    ``found`` is what there is of the devices' files; without it they are patterns.
    """
    container = plan.container
    ulimits = container.ulimits.items()
    cache = [f"{plan.cache.name}:{CACHE_MOUNT}"] if plan.cache else []
    devices = container_devices(plan.devices, found) if plan.devices else {}
    return {
        "name": container.name,
        "labels": dict(container.labels),
        "user": container.user,
        "environment": {**plan.network.environment, **plan.environment},
        "network_mode": container.network_mode,
        "init": True,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges"],
        "pids_limit": PIDS_LIMIT,
        "shm_size": container.shm_size_bytes,
        "mem_limit": container.memory_bytes,
        "memswap_limit": container.memory_bytes,  # the same: no swap on top
        "ulimits": [Ulimit(name=name, soft=limit, hard=limit) for name, limit in ulimits],
        **devices,
        "volumes": [*cache, *devices.get("volumes", ())],
    }


def container_files(plan: RunPlan) -> dict[str, Path]:
    """The files of this machine that a container gets, root's there, beside agent and job."""
    files = {CONTAINER_PROBE[1]: PROBE} if plan.devices is not None else {}
    if plan.network.ca_bundle is not None:
        files[CONTAINER_CA_BUNDLE] = plan.network.ca_bundle
    return files


def container_folders(plan: RunPlan) -> list[str]:
    """The folders beside the sources that the stages in a container write to."""
    return [plan.container.results, *([CACHE_FOLDER] if plan.cache else [])]


def container_job(plan: RunPlan) -> bytes:
    """The agent's input file in a container."""
    workspace, cache = plan.container.workspace, plan.cache
    return job_document(
        plan,
        workspace=workspace,
        results=plan.container.results,
        printed_bytes_per_s=STREAMED_BYTES_PER_S,
        compiler_cache=CacheJob(CACHE_FOLDER, base=workspace, cold=cache.cold) if cache else None,
        probe=CONTAINER_PROBE,
    )


WORKSPACE = "workspace"  # on this machine, in the folder of the sources and the environment


def host_job(plan: RunPlan, folder: Path) -> bytes:
    """The agent's input file on this machine."""
    cache = plan.cache
    home = str(host_cache_folder(cache)) if cache else ""
    return job_document(
        plan,
        workspace=str(folder / WORKSPACE),
        results=str(plan.results),
        printed_bytes_per_s=SHOWN_BYTES_PER_S,
        compiler_cache=CacheJob(home, base=str(folder), cold=cache.cold) if cache else None,
    )


def host_cache_folder(cache: CachePlan) -> Path:
    """The user's own folder for a cache."""
    return user_cache() / cache.name


def is_cache_empty(results: Path) -> bool:
    """Whether nothing lay in the cache when a run's stages had ended, as its agent says."""
    path = results / "environment.json"
    try:  # it is the container's, and may be anything
        if path.stat().st_size > LARGEST_DOCUMENT:
            return False
        cache = parse_object(path.read_text(encoding="utf-8")).get("compiler_cache")
    except (OSError, ValueError):
        return False
    return isinstance(cache, dict) and cache.get("empty") is True


def remove_empty_cache(cache: CachePlan | None) -> None:
    """Leave no folder behind for a project that compiles nothing."""
    if cache is not None:
        with suppress(OSError):  # it holds something, or was never made
            host_cache_folder(cache).rmdir()


def volume_labels(plan: RunPlan) -> dict[str, str]:
    """What says whose a volume is; it outlives the run."""
    labels = plan.container.labels.items()
    return {name: value for name, value in labels if name != "infini-ci.run"}
