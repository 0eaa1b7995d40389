"""A folder of wheels for containers: a volume that runs mount, and a server of it for image builds.

A build cannot mount a volume. It shares the network namespace of a container that serves the volume
on its own loopback, so neither a build nor a run needs the network of the engine's machine.
"""

from __future__ import annotations

import hashlib
import tarfile
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from docker.client import DockerClient
from docker.errors import APIError, NotFound
from docker.models.containers import Container

from ci.engines.archives import CHUNK
from ci.engines.docker.containers import as_volumes, follow_log, remove_containers
from ci.engines.docker.link import explain, long_timeout
from ci.errors import InfrastructureError
from ci.model.plan import CONTAINER_WHEELS, LOOPBACK, WHEELHOUSE_PORT, RunPlan
from ci.plan.source import TIMESTAMP
from ci.util.process import delay_interrupt

PREFIX = "infini-ci-wheels-"  # of the volumes' names
COMPLETE = ".complete"  # the last file that a volume gets; pip ignores it
SERVER = (  # its entry point
    *("python3", "-I", "-u", "-m", "http.server", str(WHEELHOUSE_PORT)),
    *("--bind", LOOPBACK, "--directory", CONTAINER_WHEELS),
)
READY = b"Serving HTTP"  # what it prints when it listens
# The server needs no rights: its files are those of root, and everyone may read them.
OPTIONS: dict[str, Any] = {
    "user": "65534",  # owns no files
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges"],
    "read_only": True,
    "pids_limit": 64,  # a thread per connection; pip opens one at a time
    "init": True,
    # For the build, which shares it. A name server may drop questions: one dropped those beyond
    # 40 a second of all programs of the machine. The default is 2 attempts of 5 s.
    "dns_opt": ["attempts:5"],
}

MakeLock = Callable[[], AbstractContextManager[object]]


@contextmanager
def served(client: DockerClient, plan: RunPlan, image: str) -> Iterator[str | None]:
    """Serve the plan's wheelhouse, if any, from a container of ``image``.

    Yield the network mode in which a build reaches it. The caller holds the lock on the engine's
    builds. Raises ``InfrastructureError`` if the image has no Python 3, or if a build failed
    because the server had ended: its log shows only that it had no network.
    """
    if plan.network.wheelhouse is None:
        yield None
        return
    with _container(client, plan, plan.network.wheelhouse, image, nullcontext) as (container, _):
        printed = ""
        try:
            container.start()
            with follow_log(container) as lines:
                ready = any(READY in line for line in lines)
            printed = container.logs().decode(errors="replace").strip()
        except APIError as error:
            ready, printed = False, explain(error)
        if not ready:
            raise InfrastructureError(
                f"image {image} cannot serve the wheelhouse {plan.network.wheelhouse}: {printed}",
                remedy="Use a base image with Python 3, or set pip_find_links to an address.",
            )
        try:
            yield f"container:{container.id}"
        except InfrastructureError as error:
            if state := _end_of(container):
                message = f"{error}\nThe build lost its wheelhouse: {container.name} {state}."
                remedy = "Run again. Do not remove the containers of a run before it ends."
                raise InfrastructureError(message, remedy=remedy) from error
            raise


def _end_of(container: Container) -> str | None:
    """Return how a container ended; ``None`` if it runs."""
    try:
        container.reload()
    except NotFound:
        return "was removed"
    state = container.attrs["State"]
    return None if state["Running"] else f"ended with exit code {state['ExitCode']}"


@contextmanager
def filled_volume(
    client: DockerClient, plan: RunPlan, image: str, lock: MakeLock
) -> Iterator[str | None]:
    """Yield the name of a volume with the plan's wheelhouse, if any.

    Nothing removes the volume until the block ends. ``lock`` makes a lock for filling it.
    """
    if plan.network.wheelhouse is None:
        yield None
        return
    with _container(client, plan, plan.network.wheelhouse, image, lock) as (_, volume):
        yield volume


@contextmanager
def _container(
    client: DockerClient, plan: RunPlan, folder: Path, image: str, lock: MakeLock
) -> Iterator[tuple[Container, str]]:
    """Yield a container that is not started, and its volume, which has the wheels.

    The engine removes no volume of a container.
    """
    volume = volume_name(folder)
    client.volumes.create(volume, labels=plan.container.shared_labels)
    requested, complete = True, False
    try:
        # As for the container of a run: the engine goes on with an interrupted request.
        with delay_interrupt():
            container = client.containers.create(
                image,
                name=f"{plan.container.name}-wheels",
                labels=plan.container.helper_labels,
                volumes=as_volumes([f"{volume}:{CONTAINER_WHEELS}:nocopy"]),
                entrypoint=list(SERVER),
                **OPTIONS,
            )
            requested = False
        if not _is_complete(container):
            with lock():
                if not _is_complete(container):  # another run may have filled it meanwhile
                    with long_timeout(client):
                        container.put_archive(CONTAINER_WHEELS, wheel_archive(folder))
        complete = True
        yield container, volume
    finally:
        remove_containers(client, plan.container.helper_labels, late=requested)
        if not complete:  # it may have filled the disk
            with suppress(APIError):  # another run fills it, too
                client.api.remove_volume(volume)


def volume_name(folder: Path) -> str:
    """Return the name of the volume for a folder of wheels; it changes with the files."""
    found = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in _files(folder)]
    return PREFIX + hashlib.sha256(repr(found).encode()).hexdigest()[:16]


def _files(folder: Path) -> list[Path]:
    """Return the files of a wheelhouse; pip does not look into its folders."""
    return sorted(path for path in folder.iterdir() if path.is_file())


def _is_complete(container: Container) -> bool:
    try:
        chunks, _ = container.get_archive(f"{CONTAINER_WHEELS}/{COMPLETE}")
    except NotFound:
        return False
    deque(chunks, maxlen=0)  # which gives the connection back
    return True


def wheel_archive(folder: Path) -> Iterator[bytes]:
    """Yield a tar file of the wheels, owned by root; the mark that all are there comes last."""
    for path in _files(folder):
        entry = tarfile.TarInfo(path.name)
        entry.size, entry.mtime = path.stat().st_size, TIMESTAMP
        yield entry.tobuf(tarfile.PAX_FORMAT)
        left = entry.size
        with path.open("rb") as file:
            while chunk := file.read(min(CHUNK, left)):
                left -= len(chunk)
                yield chunk
        if left:
            message = f"{path} became shorter while it was copied into a volume"
            raise InfrastructureError(message, remedy="run again when it is complete")
        yield bytes(-entry.size % tarfile.BLOCKSIZE)
    yield tarfile.TarInfo(COMPLETE).tobuf(tarfile.PAX_FORMAT)
    yield bytes(2 * tarfile.BLOCKSIZE)
