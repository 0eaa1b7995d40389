"""Find, read and remove containers; by labels, as an interrupt may come before an id is known."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from time import monotonic, sleep

from docker.client import DockerClient
from docker.models.containers import Container
from docker.types import CancellableStream

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
    client: DockerClient, labels: Mapping[str, str], *, late: bool = False
) -> bool:
    """Remove the containers that have these labels; return whether there were any.

    ``late``: one was requested, and may come only now.
    """
    found = find_containers(client, labels)
    deadline = monotonic() + LATE_S
    while late and not found and monotonic() < deadline:
        sleep(LATE_POLL_S)
        found = find_containers(client, labels)
    for container in found:
        container.remove(force=True, v=True)
    return bool(found)


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
