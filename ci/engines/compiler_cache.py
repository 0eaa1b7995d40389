"""Where the compiler cache of a platform lies: a volume of an engine, or a folder of the user's."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ci.agent.lines import LARGEST_DOCUMENT, parse_object
from ci.plan import CachePlan, RunPlan
from ci.user_cache import user_cache

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
