"""The container of a failed run that stays: renamed, and started again for shells.

It has the labels of its run. Its name shows that the run is judged, so that no later caller adopts
it. While no shell is open, it is stopped and leases nothing. The first shell starts it with a job
that only holds the environment open. Further shells join, and the end of the last one ends it.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from docker.client import DockerClient
from docker.models.containers import Container

from ci.engines import Observer
from ci.engines.docker.attach import open_shell
from ci.engines.docker.containers import Isolation, copy_program, find_containers, read_log, start
from ci.engines.docker.link import Link
from ci.engines.logs import EventReader
from ci.errors import InfrastructureError
from ci.model.plan import RunPlan
from ci.protocol import events

MOST_STARTS = 3  # of a container that ends at once: two first shells may disturb each other


def keep(client: DockerClient, plan: RunPlan) -> str | None:
    """Rename the ended container of a run; return its new name, or ``None`` if there is none."""
    name = plan.container.kept_name
    for container in find_containers(client, plan.container.labels):
        if container.name != name:
            container.rename(name)
        return name
    return None


class Opened(Exception):  # noqa: N818, it is no error
    """The environment is held open."""


class Doorway:
    """Observes the agents of a kept environment, one after the other, until one holds it open."""

    def __init__(self, observer: Observer, stage: str) -> None:
        self.is_open = False
        self.reason: str | None = None  # why the last agent did not hold it open
        self.is_live = False  # whether the events are new
        self._observer = observer
        self._stage = stage

    def event(self, event: events.Event) -> None:
        """Pass a new event on; raises ``Opened`` at the one that the environment is held open."""
        match event:
            case events.RunStarted():
                self.is_open, self.reason = False, None
            case events.StageSkipped() | events.StageLost():
                self.is_open, self.reason = False, self.reason or event.reason
            case events.StageFinished() | events.RunFinished():
                self.is_open = False
            case events.StageStarted(stage=self._stage):
                self.is_open = True
                if self.is_live:
                    raise Opened
                return
        if self.is_live:
            self._observer.event(event)

    def enter(self) -> None:
        """Report to the observer that a shell opens."""
        self._observer.event(events.StageStarted(self._stage))


def enter(link: Link, plan: RunPlan, observer: Observer, *, interactive: bool) -> int | None:
    """Open a shell in the container of a kept plan; return its exit code.

    ``None``: there is no such container. Raises ``InfrastructureError`` if it opens no shell.
    """
    name = plan.container.name
    for _ in range(MOST_STARTS):
        found = find_containers(link.client, plan.container.labels)
        container = next((it for it in found if it.name == name), None)
        if container is None:
            return None
        doorway = Doorway(observer, plan.stages[-1].name)
        is_started_here = container.status != "running"
        try:
            if _is_held_open(link, container, plan, doorway, is_started_here=is_started_here):
                doorway.enter()
                return open_shell(link.client.api, container, plan, interactive=interactive)
        except KeyboardInterrupt:
            _leave(link, container, is_started_here=is_started_here)
            raise
        if doorway.reason:
            raise InfrastructureError(f"no shell was opened in container {name}: {doorway.reason}")
    message = f"no shell was opened: container {name} ended {MOST_STARTS} times at its start"
    raise InfrastructureError(message, remedy=f"{link.product.command} logs {name}")


def _is_held_open(
    link: Link,
    container: Container,
    plan: RunPlan,
    doorway: Doorway,
    *,
    is_started_here: bool,
) -> bool:
    """Start the container if necessary, and follow it until it is held open; ``False``: it ended.

    Its log has the events of its run, and of earlier shells: those are read, but not shown.
    """
    with TemporaryDirectory(prefix="infini-ci-kept-") as folder:
        reader = EventReader(Isolation(container, link, plan, doorway), Path(folder))
        for chunk in container.logs(stream=True, follow=False):
            reader.feed(chunk)
        if is_started_here:
            copy_program(container, plan)
            start(container, plan)
        elif doorway.is_open:
            return True
        doorway.is_live = True
        try:
            link.retry(partial(read_log, container, reader, link.watch), doorway)
        except Opened:
            return True
    return False


def _leave(link: Link, container: Container, *, is_started_here: bool) -> None:
    """End an interrupted session, unless it is the one of other shells too."""
    container.reload()
    commands = container.attrs["ExecIDs"] or ()
    running = [it for it in commands if link.client.api.exec_inspect(it)["Running"]]
    is_last = len(running) <= 1 if running else is_started_here
    if is_last and container.status == "running":
        container.kill(signal="SIGTERM")
