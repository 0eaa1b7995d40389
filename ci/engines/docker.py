"""The Docker engine: the agent is the main process of a labelled container.

A container outlives its caller. Whoever comes next finds it by its labels, reads its log
from the beginning and takes the results out, as the first caller would have done.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from tempfile import TemporaryFile
from time import monotonic
from typing import Any

from docker.client import DockerClient
from docker.errors import APIError, DockerException, StreamParseError
from docker.models.containers import Container
from docker.types import LogConfig
from urllib3.exceptions import HTTPError

from ci import source
from ci.engines.archives import extract, pack
from ci.engines.base import ExecutionFacts, ImageFacts, Observer, typed_errors
from ci.engines.describe import describe_docker
from ci.engines.events import EventReader
from ci.engines.image_log import ImageLog
from ci.engines.images import ImageBuilder
from ci.engines.job import agent_archive, job_document
from ci.engines.wheelhouse import serve
from ci.errors import InfrastructureError
from ci.plan import CONTAINER_CA_BUNDLE, RunPlan

AGENT = "/opt/infini-ci/agent.pyz"
JOB = "/opt/infini-ci/job.json"
COMMAND = ("python3", AGENT, JOB)

# What the SDK lets through when the connection is cut, beside its own errors.
ERRORS = (DockerException, StreamParseError, HTTPError, OSError)

PIDS_LIMIT = 32768  # against fork bombs; threads count, and large machines use thousands

START_REMEDY = "start one with docker/start-engine, or use --engine host"


@dataclass(frozen=True, kw_only=True)
class _Ending:
    """How a container ended."""

    exit_code: int | None = None
    oom_killed: bool = False
    lost: bool = False
    interrupted: bool = False
    abandoned: bool = False  # out of reach, perhaps running: left for a later caller
    notes: tuple[str, ...] = ()


class DockerEngine:
    """Runs plans in containers of one Docker Engine."""

    name = "docker"

    def __init__(self, client: DockerClient, version: str) -> None:
        self._client = client
        self._version = version
        self._images = ImageBuilder(client)

    @classmethod
    def connect(cls) -> DockerEngine:
        """Return an engine for the environment's DOCKER_HOST, or the local socket."""
        try:
            client = DockerClient.from_env()
            return cls(client, str(client.version()["Version"]))
        except ERRORS as error:
            raise InfrastructureError(
                f"no Docker Engine answers: {error}", remedy=START_REMEDY
            ) from error

    def prepare(self, plan: RunPlan, observer: Observer) -> ImageFacts:
        """Find or build the image of ``plan``."""
        with (
            _typed_errors(),
            ImageLog(plan.results, observer) as log,
            serve(plan.network),
        ):
            return self._images.prepare(plan, log)

    def execute(self, plan: RunPlan, image: ImageFacts, observer: Observer) -> ExecutionFacts:
        """Run the stages of ``plan`` in a new container and remove it."""
        start = monotonic()
        sync_seconds = 0.0
        ending = _Ending(interrupted=True)
        notes: list[str] = []
        try:
            with _typed_errors(), serve(plan.network):
                notes += self._images.notes(plan)
                container = self._create(plan)
                sync_start = monotonic()
                notes += _put_sources(container, plan)
                _put_agent(container, plan)
                sync_seconds = monotonic() - sync_start
                container.start()
                ending = _attend(container, plan, observer)
        except KeyboardInterrupt:
            pass  # the second one, or one that came before the start
        finally:
            if not ending.abandoned:
                self._remove(plan)
        return self._facts(image, ending, notes, sync_seconds, monotonic() - start)

    def resume(self, plan: RunPlan, observer: Observer) -> ExecutionFacts | None:
        """Adopt the container that a dead caller left behind, running or ended."""
        start = monotonic()
        with _typed_errors(), serve(plan.network):
            notes = self._images.notes(plan)
            container = next(iter(self._containers(plan)), None)
            if container is None:
                return None
            ending = _Ending()
            try:
                if container.status == "created":  # its caller died before it could start it
                    return None
                ending = _attend(container, plan, observer)
            finally:
                if not ending.abandoned:
                    self._remove(plan)
        image = ImageFacts(
            reference=plan.image.tag,
            digest=container.attrs["Image"],
            built=False,
            seconds=0.0,
            reason="of the adopted container",
        )
        return self._facts(image, ending, notes, 0.0, monotonic() - start)

    def describe(self, plan: RunPlan) -> str:
        """Return the commands that do the same by hand."""
        return describe_docker(plan, container_options(plan), COMMAND)

    def _create(self, plan: RunPlan) -> Container:
        return self._client.containers.create(
            plan.image.tag,
            entrypoint=list(COMMAND),  # an entry point of the image would come in between
            log_config=LogConfig(type="json-file"),  # the one that is sure to be readable
            **container_options(plan),
        )

    def _containers(self, plan: RunPlan) -> list[Container]:
        labels = [f"{name}={value}" for name, value in plan.container.labels.items()]
        found: list[Container] = self._client.containers.list(all=True, filters={"label": labels})
        return found

    def _remove(self, plan: RunPlan) -> None:
        """Remove by label: an interrupt may have come before the container's name was known."""
        try:
            for container in self._containers(plan):
                container.remove(force=True, v=True)
        except ERRORS:
            pass  # with the engine gone there is nothing to be done; the run says that it was lost

    def _facts(
        self,
        image: ImageFacts,
        ending: _Ending,
        notes: Sequence[str],
        sync_seconds: float,
        wrapper_seconds: float,
    ) -> ExecutionFacts:
        return ExecutionFacts(
            engine=self.name,
            engine_version=self._version,
            image=image,
            sync_seconds=sync_seconds,
            exit_code=ending.exit_code,
            oom_killed=ending.oom_killed,
            lost=ending.lost,
            interrupted=ending.interrupted,
            wrapper_seconds=wrapper_seconds,
            notes=(*notes, *ending.notes),
        )


def container_options(plan: RunPlan) -> Mapping[str, Any]:
    """Return what ``docker create`` is told beside image and command."""
    container = plan.container
    return {
        "name": container.name,
        "labels": dict(container.labels),
        "user": container.user,
        "environment": {**plan.network.environment, **plan.environment},
        "network_mode": container.network_mode,
        "init": True,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges"],
        "pids_limit": PIDS_LIMIT,
        "shm_size": container.shm_size_bytes,
        "mem_limit": container.memory_bytes,
        "memswap_limit": container.memory_bytes,  # the same: no swap on top
    }


def _put_sources(container: Container, plan: RunPlan) -> list[str]:
    """Copy the sources in; return a note for each file that had to stay out."""
    with TemporaryFile() as archive:
        left_out = source.write_archive(
            plan.source,
            archive,
            prefix=plan.container.workspace.strip("/"),
            owner=int(plan.container.user),
        )
        archive.seek(0)
        container.put_archive("/", archive)
    return [f"left out of the sources: {name}" for name in left_out]


def _put_agent(container: Container, plan: RunPlan) -> None:
    job = job_document(
        plan,
        workspace=plan.container.workspace,
        results=plan.container.results,
        environment={},  # the container's own
    )
    contents = {AGENT: agent_archive(), JOB: job}
    if plan.network.ca_bundle is not None:
        contents[CONTAINER_CA_BUNDLE] = plan.network.ca_bundle.read_bytes()
    files = {name.strip("/"): content for name, content in contents.items()}
    owner = int(plan.container.user)
    folder = plan.container.results.strip("/")
    container.put_archive("/", pack(files, folder=folder, owner=owner))


def _attend(container: Container, plan: RunPlan, observer: Observer) -> _Ending:
    """Follow a container to its end, and take its results out."""
    reader = EventReader(observer)
    interrupted = False
    try:
        try:
            _follow(container, reader)
        except KeyboardInterrupt:
            interrupted = True
            observer.event({"event": "engine", "text": "interrupted: ending the running stage"})
            with suppress(APIError):  # it may have ended by itself just now
                container.kill(signal="SIGTERM")
            _follow(container, reader)  # the agent takes 10 s at most; a second Ctrl-C, none
        refused = _collect(container, plan)
        state = container.attrs["State"]
    except ERRORS as error:
        note = f"lost the container {plan.container.name}, --resume may find it again: {error}"
        return _Ending(lost=True, interrupted=interrupted, abandoned=not interrupted, notes=(note,))
    return _Ending(
        exit_code=state["ExitCode"],
        oom_killed=state["OOMKilled"],
        lost=reader.finished is None,
        interrupted=interrupted,
        notes=tuple(f"refused from the results: {source.printable(name)}" for name in refused),
    )


def _follow(container: Container, reader: EventReader) -> None:
    """Read the log from its beginning until the container has ended."""
    while True:
        reader.restart()
        with _log(container) as chunks:
            for chunk in chunks:
                reader.feed(chunk)
        container.reload()
        if container.status != "running":
            return


@contextmanager
def _log(container: Container) -> Iterator[Iterator[bytes]]:
    """Stream the log; when that ends early, close the connection, which takes two steps."""
    stream = container.logs(stream=True, follow=True)
    try:
        yield stream
    finally:
        with suppress(OSError):
            stream.close()  # half of it: what is left in the buffers keeps it open
        deque(stream, maxlen=0)


def _collect(container: Container, plan: RunPlan) -> tuple[str, ...]:
    chunks, _ = container.get_archive(plan.container.results)
    with TemporaryFile() as archive:
        for chunk in chunks:
            archive.write(chunk)
        archive.seek(0)
        plan.results.mkdir(parents=True, exist_ok=True)
        return extract(archive, plan.results, strip=1)


def _typed_errors() -> AbstractContextManager[None]:
    """Turn errors of the SDK, the connection and the disk into typed ones."""
    remedy = "look at `docker info` and the engine's log, then run again"
    return typed_errors("the run on the Docker Engine", *ERRORS, remedy=remedy)
