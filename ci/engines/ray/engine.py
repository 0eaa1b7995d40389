"""The Ray engine: a host of a pool carries the plan out, with its own Docker or host engine.

A detached actor on the host serves the platform. If this process dies, what runs there goes on, and
a later caller finds it: by the actor's name, or by the record of its host.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import cast

from ci.engines import Capabilities, Engine, EngineMachine, Observer
from ci.engines.checks import Finding, error_findings, ok
from ci.engines.docker.engine import container_description
from ci.engines.host.environment import environment_description
from ci.engines.ray.cluster import (
    LOGS,
    ActorGoneError,
    HostLostError,
    PoolCluster,
    RayCluster,
)
from ci.engines.ray.hosted import HostedPlatform
from ci.engines.ray.messages import HostStep, StepOutcome
from ci.engines.ray.placement import (
    Placement,
    Record,
    find_or_start_actor,
    host_lost,
    require_host,
)
from ci.engines.ray.transfer import Trees
from ci.errors import CiError, InfrastructureError, UsageError
from ci.model.execution import ExecutionFacts, ImageFacts
from ci.model.plan import EngineKind, EnginePlan, RunPlan
from ci.util.text import counted

MOST_WAITING = 1000  # platforms of a run: the pool has a queue of its own
INTERRUPTED = ExecutionFacts(engine=EngineKind.RAY, interrupted=True)
NO_SHELL = "an engine of kind ray cannot open a shell"
SHELL_REMEDY = (
    "Log in to the host and open the shell there, or start a new run with --engine docker or"
    " --engine host."
)


class RayEngine(Engine):
    """Runs plans on the hosts of a Ray cluster."""

    name = EngineKind.RAY
    capabilities = Capabilities(isolates_network=True, images=False)

    def __init__(
        self,
        plan: EnginePlan,
        connect: Callable[[EnginePlan], PoolCluster] = RayCluster,
        trees: Trees | None = None,
    ) -> None:
        """``connect`` and ``trees`` may be those of all platforms of a run."""
        self._plan = plan
        self._connect = connect
        self._trees = Trees(trees)
        self._platforms: dict[str, HostedPlatform] = {}

    @classmethod
    def connect(cls, plan: EnginePlan) -> RayEngine:
        """Return the engine, which connects when it is used."""
        return cls(plan)

    @cached_property
    def _cluster(self) -> PoolCluster:
        return self._connect(self._plan)

    def close(self) -> None:
        """Close the connection."""
        self._trees.close()
        if "_cluster" in vars(self):
            self._cluster.close()

    def check(self, plan: RunPlan) -> None:
        """Raise ``InfrastructureError`` if the pool has no host for the platform.

        A run that an earlier caller began needs the same host. Raises ``UsageError`` for a
        distribution that was made elsewhere: only the sources travel.
        """
        if plan.given is not None:
            message = f"{plan.given.path.name}: the engine ray copies no such file to its hosts"
            raise UsageError(message, remedy="Use another engine, such as: --engine docker")
        record = self._earlier(plan)
        if record is None:
            require_host(self._cluster, plan)
        elif self._is_gone(record):
            raise host_lost(plan, f"host {record.name} ({record.address})", "has left the pool")

    def _earlier(self, plan: RunPlan) -> Record | None:
        """Return the record of a host that an earlier caller used, and that may still run it."""
        record = Record.read(plan)
        if record is None or (self._is_gone(record) and _has_expired(record, plan)):
            return None
        return record

    def _is_gone(self, record: Record) -> bool:
        return self._cluster.host_at(record.address) is None

    def machine(self) -> EngineMachine:
        """Return the cluster; its own queue limits what runs at once."""
        return EngineMachine(identity=self._cluster.identity(), processors=MOST_WAITING)

    def prepare(self, plan: RunPlan, observer: Observer) -> ImageFacts:
        """Wait for a host of the platform, and find or create the environment there."""
        hosted = self._place(plan, observer)
        with _ended_after_failure(hosted, remove=True):
            answer = hosted.carry_out(HostStep.PREPARE)
            if answer.interrupted:
                raise KeyboardInterrupt
            self._platforms[plan.platform] = hosted
            return cast(ImageFacts, answer.value)

    def execute(self, plan: RunPlan, image: ImageFacts, _observer: Observer) -> ExecutionFacts:
        """Run the stages on the host of ``prepare``, and copy the results here."""
        hosted = self._platforms.pop(plan.platform)
        with _ended_after_failure(hosted, remove=False):
            # Again: pulling or building an image has no limit.
            record = Record(address=hosted.host.address, name=hosted.host.name, began=time.time())
            record.write(plan)
            answer = hosted.carry_out(HostStep.EXECUTE, image=image)
            if answer.value is None and not answer.interrupted:  # nothing to adopt
                raise InfrastructureError(
                    f"{hosted.name}: the program was lost before the stages began",
                    remedy=f"See Ray's logs on that host, in {LOGS}, then continue with"
                    " run --resume RUN.",
                )
        return self._finish(plan, hosted, answer)

    def resume(self, plan: RunPlan, observer: Observer) -> ExecutionFacts | None:
        """Adopt what an earlier caller started on its host, or copy what it left there."""
        record = self._earlier(plan)
        if record is None:
            return None
        actor, host = find_or_start_actor(self._cluster, plan, record.address)
        hosted = HostedPlatform(self._cluster, plan, observer, actor, host)
        with _ended_after_failure(hosted, remove=False):
            answer = hosted.adopt(self._trees.program())
            if answer.value is None and not answer.interrupted:
                hosted.end(remove=True)
                return None
        return self._finish(plan, hosted, answer)

    def enter(self, _plan: RunPlan, *, interactive: bool) -> int:  # noqa: ARG002
        """Raise ``InfrastructureError``: an actor has no terminal."""
        raise InfrastructureError(NO_SHELL, remedy=SHELL_REMEDY)

    def settle(self, plan: RunPlan, *, keep: bool) -> str | None:
        """Keep the environment on its host, or remove it."""
        hosted = self._platforms.pop(plan.platform, None)
        if hosted is None:
            return None
        kept = cast(str | None, hosted.carry_out(HostStep.SETTLE, keep=keep).value)
        hosted.end(remove=kept is None)
        Record.forget(plan)
        return kept and f"{kept} on {hosted.name}"

    def enter_kept(self, plan: RunPlan, _observer: Observer, *, interactive: bool) -> int | None:
        """Raise ``InfrastructureError``: an actor has no terminal."""
        return self.enter(plan, interactive=interactive)

    def checks(self, plan: EnginePlan, runs: Sequence[RunPlan]) -> Iterator[Finding]:
        """Check the hosts of the pool, and whether one of them can run each platform."""
        hosts = [f"{host.name} ({host.address})" for host in self._cluster.hosts()]
        found = f"a pool of {counted(len(hosts), 'host')}: {', '.join(hosts)}"
        yield ok(f"engine {plan.name}", found)
        for run in runs:
            subject = f"host of {run.platform}"
            try:
                self.check(run)
                yield ok(subject, "the pool has one")
            except InfrastructureError as error:
                yield from error_findings(subject, error)

    def describe(self, plan: RunPlan) -> Mapping[str, object]:
        """Return what the engine of a host makes of ``plan``."""
        if self._plan.node_engine == EngineKind.HOST:
            return environment_description(plan, {})
        return container_description(plan)

    def _place(self, plan: RunPlan, observer: Observer) -> HostedPlatform:
        """Wait for a host, and send what the platform needs there."""
        actor, host = Placement(self._cluster, plan, observer).wait()
        Record(address=host.address, name=host.name).write(plan)
        hosted = HostedPlatform(self._cluster, plan, observer, actor, host)
        with _ended_after_failure(hosted, remove=True):
            hosted.begin(self._trees.of(plan))
        return hosted

    def _finish(self, plan: RunPlan, hosted: HostedPlatform, answer: StepOutcome) -> ExecutionFacts:
        """End the actor, unless ``settle`` needs it; a run that may go on keeps its files."""
        facts = cast(ExecutionFacts, answer.value or INTERRUPTED)
        if facts.may_run and not facts.interrupted:
            hosted.end(remove=False)
        elif plan.keep and not facts.interrupted:
            self._platforms[plan.platform] = hosted
        else:
            hosted.end(remove=True)
        notes = (f"ran on {hosted.name} of the pool", *hosted.notes, *facts.notes, *answer.notes)
        return replace(facts, notes=notes)


def _has_expired(record: Record, plan: RunPlan) -> bool:
    """Whether what a host was given has surely ended, by the time limits of its stages."""
    return record.began is not None and time.time() - record.began > plan.longest_s


@contextmanager
def _ended_after_failure(hosted: HostedPlatform, *, remove: bool) -> Iterator[None]:
    """End the actor after an error, unless its host is lost: then it ends by itself."""
    try:
        yield
    except HostLostError:
        raise
    except ActorGoneError as error:
        raise hosted.program_ended(error) from error
    except (CiError, KeyboardInterrupt) as error:
        # What a third Ctrl-C leaves to end there needs its actor for a moment.
        if remove or isinstance(error, CiError):
            hosted.end(remove=remove)
        raise
