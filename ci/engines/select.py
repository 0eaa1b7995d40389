"""The choice between the engines."""

from __future__ import annotations

import os

from ci.engines import Engine
from ci.engines.docker import DockerEngine
from ci.engines.host import HostEngine
from ci.engines.link import EngineAnswerError, find_address
from ci.engines.pool.engine import RayEngine
from ci.errors import InfrastructureError
from ci.model.plan import EnginePlan


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
