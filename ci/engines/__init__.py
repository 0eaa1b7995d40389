"""Engines: how a plan is carried out, and the choice between them."""

from __future__ import annotations

import os

from ci.engines.base import Engine, ExecutionFacts, ImageFacts, Observer
from ci.engines.docker import DockerEngine
from ci.engines.host import HostEngine
from ci.errors import InfrastructureError
from ci.plan import EnginePlan

__all__ = ["Engine", "ExecutionFacts", "ImageFacts", "Observer", "select_engine"]


def select_engine(plan: EnginePlan) -> Engine:
    """Return the engine of ``plan``; ``auto`` is Docker where one answers, else the host.

    A DOCKER_HOST that does not answer is told in the notes of the run: somebody expected it to.
    """
    if plan.kind == "host":
        return HostEngine()
    try:
        return DockerEngine.connect()
    except InfrastructureError as error:
        if plan.kind == "docker":
            raise
        expected = os.environ.get("DOCKER_HOST")
        return HostEngine(notes=[f"not on DOCKER_HOST: {error}"] if expected else [])
