"""What an engine hands to the agent: the program itself and its job."""

from __future__ import annotations

import io
import sys
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ci.engines.devices import PROBE, device_job
from ci.model.job import CacheJob, Job
from ci.model.plan import CachePlan, RunPlan
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
    environment: Mapping[str, str],
    printed_bytes_per_s: int,
    compiler_cache: CacheJob | None = None,
    probe: tuple[str, str] = (sys.executable, str(PROBE)),
) -> bytes:
    """Return the agent's input file.

    ``workspace``, ``results`` and ``compiler_cache`` are where the agent is, as is ``probe``: a
    Python that looks for devices, and the program that it runs.
    """
    facts = PLATFORMS[plan.platform].devices
    job = Job(
        run_id=plan.run_id,
        platform=plan.platform,
        workspace=workspace,
        results=results,
        environment=environment,
        printed_bytes_per_s=printed_bytes_per_s,
        stages=plan.stages,
        artifacts=plan.artifacts,
        devices=device_job(plan.devices, probe) if plan.devices else None,
        device_compiler=facts.compiler if facts else None,
        compiler_cache=compiler_cache,
    )
    return job.to_json().encode()


MOUNT = "/cache"
# Below the mount: an engine makes a volume root's own, where the image has no such folder.
FOLDER = f"{MOUNT}/ccache"


def container_cache(plan: RunPlan) -> CacheJob | None:
    """Where the agent in a container finds the compiler cache."""
    if plan.cache is None:
        return None
    return CacheJob(folder=FOLDER, base=plan.container.workspace, cold=plan.cache.cold)


def host_cache(plan: RunPlan, base: Path) -> CacheJob | None:
    """Where the agent on this machine does; ``base`` has its sources and environment."""
    if plan.cache is None:
        return None
    return CacheJob(folder=str(host_folder(plan.cache)), base=str(base), cold=plan.cache.cold)


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
