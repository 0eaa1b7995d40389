"""The choice between the engines."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress

from ci.engines import Engine
from ci.engines.docker import DockerEngine
from ci.engines.host import HostEngine
from ci.engines.link import EngineAnswerError, find_address
from ci.engines.pool.cluster import load_ray
from ci.engines.pool.engine import RayEngine
from ci.errors import InfrastructureError
from ci.model.plan import EnginePlan, RunPlan


def preload(plans: Iterable[RunPlan]) -> None:
    """Import what the engines of plans need: processes that are forked after this share it.

    With Ray, it saves each of them 19 MB, and 1 s until it is connected.
    """
    if any(it.kind == "ray" for plan in plans for it in (plan.engine, *plan.other_engines)):
        with suppress(ImportError):  # each platform reports it
            load_ray()


def select_engine(plan: EnginePlan) -> Engine:
    """Return the engine of ``plan``; ``auto`` is Docker where one answers, else the host.

    If an engine that the user named does not answer, a note of the run reports it.
    """
    if plan.kind == "host":
        return HostEngine()
    if plan.kind == "ray":
        return RayEngine(plan)
    try:
        return DockerEngine.connect(plan)
    except InfrastructureError as error:
        # Something answers: a run on this machine would hide that it is broken.
        if plan.kind == "docker" or isinstance(error, EngineAnswerError):
            raise
        named_by = find_address(plan, os.environ).named_by
        return HostEngine(notes=[f"{named_by} was not used: {error}"] if named_by else [])
