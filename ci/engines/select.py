"""The choice between the engines."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress

from ci.engines import Engine
from ci.engines.docker.engine import DockerEngine
from ci.engines.docker.link import EngineAnswerError, find_address, lacks_permission
from ci.engines.host.engine import HostEngine
from ci.engines.podman.engine import PodmanEngine
from ci.engines.ray.engine import RayEngine
from ci.engines.ray.shared import shared_connection
from ci.engines.ray.transfer import Trees
from ci.errors import CiError, InfrastructureError
from ci.model.plan import EngineKind, EnginePlan, RunPlan

Connect = Callable[[EnginePlan], Engine]


@contextmanager
def shared_connections(plans: Sequence[RunPlan], connect: Connect) -> Iterator[Connect]:
    """Yield ``connect`` for processes that are forked in the block.

    Those with the same Ray engine share a connection, and the archives of the sources.
    """
    users = {it: plan for plan in plans for it in (plan.engine, *plan.other_engines)}
    with ExitStack() as stack:
        shared = {
            it: stack.enter_context(shared_connection(it))
            for it in users
            if it.kind == EngineKind.RAY
        }
        trees = stack.enter_context(closing(Trees()))
        with suppress(CiError, OSError):  # each platform reports it
            for it in shared:
                trees.of(users[it])
        yield lambda it: RayEngine(it, shared[it], trees) if it in shared else connect(it)


# A new engine is its room, a member of ``EngineKind``, and a row here.
ENGINES: Mapping[EngineKind, type[Engine]] = {
    EngineKind.DOCKER: DockerEngine,
    EngineKind.HOST: HostEngine,
    EngineKind.PODMAN: PodmanEngine,
    EngineKind.RAY: RayEngine,
}


def select_engine(plan: EnginePlan) -> Engine:
    """Return the engine of ``plan``; ``auto`` is Docker where one answers, else the host.

    A note of the run reports an engine that the user named and that does not answer, and one that
    is there but that the user may not use.
    """
    if plan.kind != EngineKind.AUTO:
        return ENGINES[plan.kind].connect(plan)
    try:
        return DockerEngine.connect(plan)
    except EngineAnswerError:
        raise  # something answers: a run on this machine would hide that it is broken
    except InfrastructureError as error:
        wanted = find_address(plan, os.environ).named_by
        if wanted is None and lacks_permission(error):
            wanted = "this machine's Docker Engine"
        return HostEngine(notes=[f"{wanted} was not used: {error}"] if wanted else [])
