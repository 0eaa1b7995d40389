"""The Docker engine: the agent is the main process of a labelled container.

A container outlives its caller. The next caller finds it by its labels, reads its log from the
beginning and copies the results out, as the first caller would have done.
"""

from __future__ import annotations

import math
import signal
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from http import HTTPStatus
from time import monotonic
from typing import Any, ClassVar, Self, cast

from docker.client import DockerClient
from docker.errors import APIError
from docker.models.containers import Container
from docker.types import LogConfig

from ci.engines import Capabilities, EngineMachine, ImageEngine, Observer, job, say
from ci.engines.archives import extract
from ci.engines.checks import Finding
from ci.engines.devices import check_exposure, find_device_files
from ci.engines.docker.containers import (
    Isolation,
    as_volumes,
    copy_in,
    find_containers,
    read_log,
    remove_containers,
    start,
)
from ci.engines.docker.doctor import engine_findings
from ci.engines.docker.images import ImageBuilder, build_lock
from ci.engines.docker.leftovers import EngineContents
from ci.engines.docker.link import SDK_ERRORS, Link, explain
from ci.engines.docker.shells import enter_kept, keep_container, open_shell
from ci.engines.docker.wheelhouse import filled_volume
from ci.engines.logs import ENGINE_FILES, EventReader, ImageLog, LiveLogs
from ci.errors import InfrastructureError
from ci.model.execution import ExecutionFacts, ImageFacts
from ci.model.plan import EngineKind, EnginePlan, RunPlan
from ci.plan.given import refuse_machine
from ci.plan.network import loopback_notes
from ci.util.process import delay_interrupt

MOST_MEMORY = f"{job.MEMORY_TENTHS}/10 of the memory of the engine's machine"
REMOVED_NOTE = "container {} was removed from outside, with the results in it"
LAST_S = 3  # for each request after the third Ctrl-C


class DockerEngine(ImageEngine):
    """Runs plans in containers of one Docker Engine."""

    name = EngineKind.DOCKER
    capabilities = Capabilities(isolates_network=True, images=True)
    link_type: ClassVar = Link

    def __init__(self, link: Link) -> None:
        self._link = link
        self.client: DockerClient = link.client  # also used without a run: gc, doctor
        self.images: ImageBuilder = ImageBuilder(link.client, link.info, link.environment)
        self._creating = False  # a container was requested, and the engine has not answered

    @classmethod
    def connect(cls, plan: EnginePlan) -> Self:
        """Return the engine of ``plan``; raises ``InfrastructureError`` if it does not answer."""
        return cls(cls.link_type(plan))

    def close(self) -> None:
        """Close the connection."""
        self._link.close()

    def check(self, plan: RunPlan) -> None:
        """Raise ``ConfigError`` for a plan without an image, or whose devices cannot be exposed.

        Raises ``UsageError`` for a wheel of other machines than the engine's.
        """
        _ = plan.needed_image
        if plan.devices is not None:
            check_exposure(plan.platform, plan.devices)
        if plan.given is not None:
            refuse_machine(plan.given, self.info().get("Architecture"))

    def machine(self) -> EngineMachine:
        """Return the identity and the processors that the engine reports."""
        info = self.info()
        return EngineMachine(identity=info["ID"], processors=info["NCPU"])

    def info(self) -> Mapping[str, Any]:
        """Return the checked facts that the engine reports of itself."""
        return self._link.info()

    def prepare(self, plan: RunPlan, observer: Observer) -> ImageFacts:
        """Find or build the image of ``plan``."""
        with self._link.session(observer):
            return self.images.prepare(plan, ImageLog(plan.results, observer))

    def execute(self, plan: RunPlan, image: ImageFacts, observer: Observer) -> ExecutionFacts:
        """Run the stages of ``plan`` in a new container and remove it."""
        begun = monotonic()
        sync_seconds = 0.0
        facts = ExecutionFacts(engine=self.name, interrupted=True)
        notes: list[str] = []
        with suppress(KeyboardInterrupt), self._link.session(observer):
            try:
                notes += self.notes(plan, image.digest)
                if job.is_privileged(plan):
                    notes.append(job.PRIVILEGED)
                container = self._create(plan, image, observer)
                sync_start = monotonic()
                notes += copy_in(container, plan)
                sync_seconds = monotonic() - sync_start
                start(container, plan)
                facts = self._follow_to_end(container, plan, observer)
            except KeyboardInterrupt:
                pass  # it came before the container started
            finally:
                self._remove(plan, facts, observer)
        return replace(
            facts,
            engine_version=self._link.version,
            image=image,
            sync_seconds=sync_seconds,
            wrapper_seconds=monotonic() - begun,
            notes=(*notes, *facts.notes),
        )

    def resume(self, plan: RunPlan, observer: Observer) -> ExecutionFacts | None:
        """Adopt the container of a caller that died, whether it still runs or has ended."""
        start = monotonic()
        with self._link.session(observer):
            notes = self.notes(plan)
            facts = ExecutionFacts(engine=self.name)
            try:
                found = find_containers(self.client, plan.container.labels)
                judged = plan.container.kept_name
                container = next((it for it in found if it.name != judged), None)
                # Without one, or one that was not started, its caller died before the stages.
                if container is None or container.status == "created":
                    return None
                facts = self._follow_to_end(container, plan, observer)
            finally:
                self._remove(plan, facts, observer)
        return replace(
            facts,
            engine_version=self._link.version,
            image=self.images.facts(plan, container.attrs["Image"], "of the adopted container"),
            wrapper_seconds=monotonic() - start,
            notes=(*notes, *facts.notes),
        )

    def notes(self, plan: RunPlan, image_id: str | None = None) -> tuple[str, ...]:
        """Return what a reader of the results must know about the image and its engine."""
        return (
            *loopback_notes(plan.network.environment),
            *self.images.notes(plan, image_id),
        )

    def find_image(self, plan: RunPlan, digest: str) -> ImageFacts | None:
        """Return the image of an earlier run, if the engine still has it."""
        with self._link.typed_errors():
            found = self.images.find(digest)
            return self.images.facts(plan, digest, "as recorded") if found else None

    def enter(self, plan: RunPlan, *, interactive: bool) -> int:
        """Run a shell in the running container of ``plan``, as the user of its stages."""
        container = self.client.containers.get(plan.container.name)
        return open_shell(self.client.api, container, plan, interactive=interactive)

    def settle(self, plan: RunPlan, *, keep: bool) -> str | None:
        """Rename the container of ``plan``, which has ended, or remove it."""
        with self._link.typed_errors():
            if keep:
                return keep_container(self.client, plan)
            remove_containers(self.client, plan.container.labels)
            return None

    def enter_kept(self, plan: RunPlan, observer: Observer, *, interactive: bool) -> int | None:
        """Run a shell in the kept container of ``plan``, which is started if it has ended."""
        with self._link.session(observer):
            return enter_kept(self._link, plan, observer, interactive=interactive)

    def checks(self, plan: EnginePlan, runs: Sequence[RunPlan]) -> Iterator[Finding]:
        """Check the engine, its images, and the devices of its machine."""
        yield from engine_findings(plan, runs, self._link, self.images)

    def leftovers(self) -> EngineContents:
        """Return the containers, images and volumes that the engine has."""
        return EngineContents.read(self.client, self.info(), self._link.product)

    def describe(self, plan: RunPlan) -> Mapping[str, object]:
        """Return the image and the container of ``plan``."""
        return {"engine_variables": self._link.address.environment, **container_description(plan)}

    def _create(self, plan: RunPlan, image: ImageFacts, observer: Observer) -> Container:
        if plan.cache:  # created first: a volume that comes with a container has no labels
            self.client.volumes.create(plan.cache.name, labels=job.cache_labels(plan))
        found = find_device_files(self.client, plan, plan.devices) if plan.devices else None
        info = self.info()
        lock = partial(build_lock, info["ID"], partial(say, observer))
        reference = image.digest or image.reference  # the tag may name another image
        with filled_volume(self.client, plan, reference, lock) as wheels:
            options = job.container_options(
                plan,
                found,
                machine_memory=info["MemTotal"],
                wheels=wheels,
                trusted_caches=self._trusted_caches(plan),
            )
            return self._create_with(plan, reference, options)

    def _create_with(self, plan: RunPlan, image: str, options: Mapping[str, Any]) -> Container:
        self._creating = True
        try:
            # The engine goes on with an interrupted request: the container would come afterwards.
            with delay_interrupt():
                container = self.client.containers.create(
                    image,
                    # Replaces the image's own entry point, which may be anything.
                    entrypoint=[*plan.needed_image.entry, *job.COMMAND],
                    log_config=LogConfig(type=job.LOG_DRIVER, config=job.LOG_OPTIONS),
                    **{**options, "volumes": as_volumes(options["volumes"])},
                )
                self._creating = False
            return container
        except APIError as error:
            self._creating = False
            if error.status_code != HTTPStatus.CONFLICT:
                raise
            name = plan.container.name
            message = f"platform {plan.platform} already has a container {name}: {explain(error)}"
            remove = f"{self._link.product.command} rm --volumes {name}"
            remedy = f"if it is not needed, run `{remove}`, then resume with --resume"
            raise InfrastructureError(message, remedy=remedy) from error

    def _trusted_caches(self, plan: RunPlan) -> list[str]:
        """Return the volumes that exist among the caches of higher levels.

        The engine would create a missing one, and a run creates nothing of a higher level.
        """
        names = plan.cache.trusted if plan.cache else ()
        if not names:
            return []
        found = {volume.name for volume in self.client.volumes.list(filters={"name": [*names]})}
        return [name for name in names if name in found]

    def _follow_to_end(
        self, container: Container, plan: RunPlan, observer: Observer
    ) -> ExecutionFacts:
        """Follow a container until it ends and copy its results out; reconnect if necessary.

        The first Ctrl-C ends the stages, for which the agent needs at most 10 s. The second one
        kills the container; its results so far are copied. The third one returns at once, and
        gives the engine only ``LAST_S`` to remove the container.
        """
        logs = {stage.name: plan.results / f"{stage.name}.log" for stage in plan.stages}
        live = LiveLogs(observer, logs, most_bytes=plan.result_limits.total_bytes)
        reader = EventReader(Isolation(container, self._link, plan, live), plan.results)
        for number in (None, signal.SIGTERM, signal.SIGKILL):
            interrupted = number is not None
            try:
                if number is not None:
                    what = "the running stage" if number is signal.SIGTERM else "the container"
                    say(observer, f"interrupted: ending {what}")
                    with suppress(APIError):  # it may have just ended by itself
                        container.kill(signal=number.name)
                read = partial(read_log, container, reader, self._link.watch)
                self._link.retry(read, observer)
                left_out = self._link.retry(partial(_copy_results, container, plan), observer)
                if not reader.is_recorded:  # removed under the run: the engine still has the log
                    reader.record_again()
                    self._link.retry(read, observer)
                reader.complete()
                end = reader.finished
                ended_early = not interrupted and (end is None or end.interrupted)
                return ExecutionFacts(
                    engine=self.name,
                    exit_code=container.attrs["State"]["ExitCode"],
                    oom_killed=container.attrs["State"]["OOMKilled"],
                    lost=end is None,
                    interrupted=interrupted,
                    ended_by=self._command(_request_of_others(self.client, container))
                    if ended_early
                    else None,
                    unreadable_lines=reader.unreadable_lines,
                    longest_line=reader.longest_line,
                    notes=tuple(
                        f"not copied from the container's results: {what}" for what in left_out
                    ),
                )
            except KeyboardInterrupt:
                continue
            except SDK_ERRORS as error:
                name, why = plan.container.name, explain(error)
                removed = self._is_removed(plan)
                return ExecutionFacts(
                    engine=self.name,
                    lost=True,
                    interrupted=interrupted,
                    ended_by=self._command(REMOVED) if removed else None,
                    notes=(REMOVED_NOTE.format(name) if removed else lost_note(name, why),),
                )
        self.client.api.timeout = LAST_S
        return ExecutionFacts(engine=self.name, interrupted=True)

    def _command(self, subcommand: str | None) -> str | None:
        """Return a command of the engine's own program, as a user types it."""
        return subcommand and f"{self._link.product.command} {subcommand}"

    def _is_removed(self, plan: RunPlan) -> bool:
        """Whether the engine answers that the container is removed, or about to be."""
        labels = [f"{name}={value}" for name, value in plan.container.labels.items()]
        try:
            found = self.client.api.containers(all=True, filters={"label": labels})
        except SDK_ERRORS:
            return False
        return all(entry["State"] in ("removing", "dead") for entry in found)

    def _remove(self, plan: RunPlan, facts: ExecutionFacts, observer: Observer) -> None:
        """Remove the container by its labels: an interrupt may come before its name is known.

        A container that cannot be reached may still run, and is kept for a later caller. One that
        has ended stays until its verdict is known, if the plan keeps those of failed platforms.
        """
        if facts.may_run and not facts.interrupted:
            return
        stays = plan.keep and facts.exit_code is not None and not facts.interrupted
        removed = False
        try:
            if not stays:
                found = remove_containers(
                    self.client,
                    plan.container.labels,
                    spared=plan.container.kept_name,
                    late=self._creating,
                )
                removed = found or not self._creating
            remove_containers(self.client, plan.container.helper_labels)  # of a killed caller
            # The engine refuses this if another run uses the volume.
            if plan.cache and job.is_cache_empty(plan.results):
                self.client.api.remove_volume(plan.cache.name)
        except SDK_ERRORS:
            pass  # without the engine nothing can be removed; the run is reported as lost
        finally:
            if facts.interrupted and not removed:
                name = plan.container.name
                remedy = f"{self._link.product.command} rm --force --volumes {name}"
                say(observer, f"container {name} may remain; to remove it: {remedy}")


def container_description(plan: RunPlan) -> dict[str, object]:
    """Return the image and the options of a container; patterns stand for files of devices."""
    image = plan.needed_image
    wheels = f"the wheels of {plan.network.wheelhouse}" if plan.network.wheelhouse else None
    options = job.container_options(
        plan, wheels=wheels, trusted_caches=(plan.cache.trusted if plan.cache else ())
    )
    options |= {"mem_limit": options["mem_limit"] or MOST_MEMORY, "mounts": plan.container.writable}
    return {
        "image": image.tag,
        "bundle": image.archive and str(image.archive.bundle),
        "base_image": image.base_image,
        "offline_base_image": image.offline_base_image,
        "build_arguments": image.build_arguments,
        "entry": image.entry,
        "container": options,
    }


def lost_note(container: str, why: str) -> str:
    """Return the note on a container that the engine no longer reaches."""
    return f"lost the connection to container {container}, --resume may find it again: {why}"


# Events that the engine records for requests that end a container. `docker stop` and
# `docker restart` record a `kill` too, and their own event after the container's end.
REQUESTS = ("restart", "stop", "kill")
REMOVED = "rm --force"
EVENT_LAG_S = 1.0  # between a container's end and that event; it took up to 0.5 s


def _request_of_others(client: DockerClient, container: Container) -> str | None:
    """Return the request of another program that ended a container, as a subcommand.

    The engine remembers its last 256 events, so ``None`` proves nothing.
    """
    try:
        begun, ended = (
            datetime.fromisoformat(text).timestamp()
            for text in (container.attrs["Created"], container.attrs["State"]["FinishedAt"])
        )
        events = client.events(
            since=int(begun),
            until=math.ceil(ended + EVENT_LAG_S),
            filters={"container": container.id, "event": list(REQUESTS)},
            decode=True,
        )
        found = {event["Action"] for event in events}
    except (*SDK_ERRORS, KeyError, TypeError, ValueError):
        return None
    return next((name for name in REQUESTS if name in found), None)


def _copy_results(container: Container, plan: RunPlan) -> tuple[str, ...]:
    """Copy the results out; return lines about entries that were left out."""
    chunks, _ = container.get_archive(plan.container.results)
    reserved = ENGINE_FILES - {f"{stage.name}.log" for stage in plan.stages}
    with closing(cast(Generator[bytes], chunks)):  # the connection too, if reading ends early
        return extract(chunks, plan.results, strip=1, reserved=reserved, limits=plan.result_limits)
