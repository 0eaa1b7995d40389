"""Containers: find and remove them by their labels, fill them, start them, and read their logs.

By labels, as an interrupt may come before an id is known.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from tempfile import TemporaryFile
from time import monotonic, sleep

from docker.client import DockerClient
from docker.errors import APIError
from docker.models.containers import Container
from docker.types import CancellableStream

from ci.engines import Observer, job, say
from ci.engines.archives import pack
from ci.engines.devices import exposure_of
from ci.engines.docker.link import SDK_ERRORS, Link, explain
from ci.engines.docker.watch import Watch
from ci.engines.logs import EventReader
from ci.errors import InfrastructureError
from ci.model.plan import CONTAINER_CREDENTIALS, CONTAINER_WHEELS, Exposure, RunPlan
from ci.plan import source
from ci.protocol.events import Event, NetworkWaiting

LATE_S = 5.0  # for a container whose request was interrupted; an engine makes one in 0.1 s
LATE_POLL_S = 0.2


def find_containers(client: DockerClient, labels: Mapping[str, str]) -> list[Container]:
    """Return the containers that have these labels."""
    wanted = [f"{name}={value}" for name, value in labels.items()]
    # The SDK asks for each container by itself, and one may be removed meanwhile.
    found: list[Container] = client.containers.list(
        all=True, filters={"label": wanted}, ignore_removed=True
    )
    return found


def remove_containers(
    client: DockerClient,
    labels: Mapping[str, str],
    *,
    spared: str | None = None,
    late: bool = False,
) -> bool:
    """Remove the containers that have these labels; return whether there were any.

    ``spared`` is the name of one that stays. ``late``: one was requested, and may come only now.
    """

    def find() -> list[Container]:
        return [it for it in find_containers(client, labels) if it.name != spared]

    found = find()
    deadline = monotonic() + LATE_S
    while late and not found and monotonic() < deadline:
        sleep(LATE_POLL_S)
        found = find()
    for container in found:
        container.remove(force=True, v=True)
    return bool(found)


def as_volumes(binds: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return ``source:target[:mode]`` as the SDK understands it.

    Of a list it reads a mode such as ``nocopy`` as a part of the path, and asks for another volume.
    """
    found = (bind.split(":") for bind in binds)
    return {
        source: {"bind": target, "mode": "".join(mode) or "rw"} for source, target, *mode in found
    }


@contextmanager
def follow_log(container: Container) -> Iterator[CancellableStream[bytes]]:
    """Yield the log of a container, from its beginning until the container ends."""
    stream = container.logs(stream=True, follow=True)
    try:
        yield stream
    finally:  # if reading ends early, close the connection, in two steps
        with suppress(OSError):
            stream.close()  # unread data in the buffers still keeps it open
        deque(stream, maxlen=0)


# Errors of engines that cannot expose devices. The remedy depends on the requested exposure.
DEVICES_REFUSED = ("could not select device driver", "CDI device injection failed")
DEVICE_REMEDIES = {
    Exposure.REQUEST: "install the NVIDIA Container Toolkit on the engine's machine, run"
    " `nvidia-ctk runtime configure --runtime=docker` and restart the engine",
    Exposure.CDI: "CDI needs Docker 25 or later with CDI enabled, and a specification of the"
    " devices in /etc/cdi; or set devices.exposure to another value",
}


def start(container: Container, plan: RunPlan) -> None:
    """Start the container; only now does the engine look for the devices."""
    try:
        container.start()
    except APIError as error:
        refused = any(text in str(error) for text in DEVICES_REFUSED)
        if plan.devices is None or not refused:
            raise
        exposure = exposure_of(plan.devices)
        message = f"the engine cannot expose {plan.label} devices by {exposure}: {explain(error)}"
        raise InfrastructureError(message, remedy=DEVICE_REMEDIES[exposure]) from error


def copy_in(container: Container, plan: RunPlan) -> Iterator[str]:
    """Copy all files into the container; yield a note for each source file left out."""
    owner = int(plan.container.user)
    folders = {plan.container.workspace: (plan.source, plan.packed)}
    if plan.network.wheels is not None:
        folders[CONTAINER_WHEELS] = (plan.network.wheels, True)
    for place, trees in job.by_place(plan, folders).items():
        for prefix, (folder, packed) in trees.items():
            with TemporaryFile() as tar:
                left_out = source.write_archive(
                    folder, tar, prefix=prefix, owner=owner, packed=packed
                )
                tar.seek(0)
                container.put_archive(place, tar)
            if folder is plan.source:
                yield from (f"left out of the sources: {name}" for name in left_out)
    copy_program(container, plan)


def copy_program(container: Container, plan: RunPlan) -> None:
    """Copy all files beside the sources into the container: the agent and its job."""
    files = {name: path.read_bytes() for name, path in job.container_files(plan).items()}
    files |= {job.AGENT: job.agent_archive(), job.JOB: job.container_job(plan)}
    owners = {}
    if credentials := job.credentials_of(plan):
        lines = (f"{name}={value}\n" for name, value in credentials.items())
        files[CONTAINER_CREDENTIALS] = "".join(lines).encode()
        owners[CONTAINER_CREDENTIALS] = job.agent_user(plan)
    named, private = job.by_place(plan, files), job.by_place(plan, owners)
    empty = job.by_place(plan, job.container_folders(plan))
    for place in {*named, *empty}:
        archive = pack(
            named.get(place, {}), folders=empty.get(place, {}), private=private.get(place, {})
        )
        container.put_archive(place, archive)


def read_log(container: Container, reader: EventReader, watch: Watch) -> None:
    """Read the log from its beginning until the container has ended."""
    while True:
        reader.restart()
        with follow_log(container) as stream, watch.reading(stream):
            for chunk in stream:
                reader.feed(chunk)
        container.reload()
        if container.status != "running":
            return


class Isolation:
    """Disconnects the container when a stage waits for that, and passes all events on."""

    def __init__(self, container: Container, link: Link, plan: RunPlan, observer: Observer) -> None:
        self._container = container
        self._link = link
        self._observer = observer
        self._wanted = any(stage.isolated for stage in plan.stages)

    def event(self, event: Event) -> None:
        self._observer.event(event)
        if self._wanted and isinstance(event, NetworkWaiting):
            try:
                self._link.retry(self._disconnect, self._observer)
            except SDK_ERRORS as error:  # the agent asks again, and its stage does not run
                name = self._container.name
                say(self._observer, f"container {name} cannot be disconnected: {explain(error)}")

    def _disconnect(self) -> None:
        self._container.reload()
        if self._container.status == "running":
            for name in self._container.attrs["NetworkSettings"]["Networks"]:
                api = self._link.client.api
                api.disconnect_container_from_network(str(self._container.id), name)
