"""Engines: whether they answer, their properties, disks and images."""

from __future__ import annotations

import os
import platform
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any

from docker.client import DockerClient
from docker.errors import APIError, ImageNotFound
from rich.filesize import decimal

from ci.engines.docker.engine import DockerEngine
from ci.engines.docker.images import ARCHITECTURES, ImageBuilder
from ci.engines.docker.link import explain, is_local
from ci.engines.host.engine import HostEngine, prerequisites_of
from ci.engines.host.environment import base_python
from ci.engines.ray.engine import RayEngine
from ci.engines.select import select_engine
from ci.errors import InfrastructureError
from ci.model.plan import EnginePlan, ImagePlan, RunPlan, base_image_remedy
from ci.upkeep.doctor.checks import Check, carry_out, error_findings, judge_clock
from ci.upkeep.doctor.devices import device_findings
from ci.util import prerequisites
from ci.util.files import user_cache
from ci.util.prerequisites import Finding, Severity, check_disk, ok, problem, unknown, warning
from ci.util.text import counted

CONNECT_S = 25.0  # by ssh, perhaps over a slow connection, with all checks of the engine
OLDEST = (20, 10)  # the oldest version that this program is tested with
NO_TORCH = "no known Python of this machine has torch"
DISK_REMEDY = "docker system df shows the rest."


def engine_check(plan: EnginePlan, plans: Sequence[RunPlan]) -> Check:
    """Return the check of one engine, and of the things that its platforms need there."""
    return Check(f"engine {plan.name}", partial(_findings, plan, plans), limit_s=CONNECT_S)


def _findings(plan: EnginePlan, plans: Sequence[RunPlan]) -> Iterator[Finding]:
    engine = select_engine(plan)
    if isinstance(engine, DockerEngine):
        client, info = engine.client, engine.info()
        theirs, mine = datetime.fromisoformat(info["SystemTime"]), datetime.now(UTC)
        yield judge_engine(plan, info)
        yield judge_clock(f"clock of engine {plan.name}", theirs, mine)
        look = partial(disk_findings, client, info, plans)
        checks = [Check(f"disk of engine {plan.name}", look)]
        for run in plans:
            look = partial(image_findings, run, engine.images, info)
            checks.append(Check(f"image of {run.platform}", look))
            checks.append(_device_check(run, info))
        yield from carry_out(checks)
    elif isinstance(engine, HostEngine):
        yield from _host_findings("; ".join(engine.notes), plans)
        yield from carry_out([_device_check(run, None) for run in plans])
    elif isinstance(engine, RayEngine):
        yield from _pool_findings(engine, plan, plans)


def _pool_findings(
    engine: RayEngine, plan: EnginePlan, plans: Sequence[RunPlan]
) -> Iterator[Finding]:
    """The hosts of a pool, and whether one of them can run each platform."""
    with closing(engine):
        hosts = [f"{host.name} ({host.address})" for host in engine.hosts()]
        yield ok(
            f"engine {plan.name}", f"a pool of {counted(len(hosts), 'host')}: {', '.join(hosts)}"
        )
        for run in plans:
            subject = f"host of {run.platform}"
            try:
                engine.check(run)
                yield ok(subject, "the pool has one")
            except InfrastructureError as error:
                yield from error_findings(subject, error)


def _device_check(run: RunPlan, info: Mapping[str, Any] | None) -> Check:
    return Check(f"devices of {run.platform}", partial(device_findings, run, info))


def _host_findings(notes: str, plans: Sequence[RunPlan]) -> Iterator[Finding]:
    """The host engine: a virtual environment of this Python in the temporary folder."""
    subject = "engine host"
    if notes:
        yield warning(
            subject,
            f"runs use this machine: {notes}",
            expected="the engine named in that setting",
            remedy="Start it, correct the address, or unset it.",
        )
    processors = len(os.sched_getaffinity(0))
    python = f"a virtual environment on this machine, Python {platform.python_version()}"
    yield ok(subject, f"{python}, {platform.machine()}, {processors} processors")
    for run in plans:
        if run.host.sees_torch:
            yield _torch_finding(run)
    yield from prerequisites_of(*plans)


def _torch_finding(run: RunPlan) -> Finding:
    """Find the torch of a platform whose requirements bring none."""
    subject, base = f"torch of {run.platform}", base_python(run.host)
    if base.is_seen:
        return ok(subject, f"that of {base.path}")
    where = f"{base.path} has no torch" if run.host.interpreter else NO_TORCH
    remedy = "Name the vendor's Python: --python PATH, or python: of the platform in ci.site.yaml."
    expected = "the vendor's torch, as the requirements bring none"
    return warning(subject, where, expected=expected, remedy=remedy)


def judge_engine(plan: EnginePlan, info: Mapping[str, Any]) -> Finding:
    """Judge the properties that an engine reports."""
    subject = f"engine {plan.name}"
    version, processors = str(info["ServerVersion"]), int(info["NCPU"])
    usual = plan.docker_host or "the default one of this machine"
    found = (
        f"Docker Engine {version} on {info['Name']},"
        f" {usual if plan.context is None else f'context {plan.context}'}, {info['Architecture']},"
        f" {counted(processors, 'processor')}, {decimal(info['MemTotal'])} of memory"
    )
    if tuple(map(int, re.findall(r"\d+", version)[:2])) < OLDEST:
        expected = f"{OLDEST[0]}.{OLDEST[1]} or newer"
        remedy = "Update it: older versions are not tested."
        return warning(subject, found, expected=expected, remedy=remedy)
    if plan.capacity is not None and plan.capacity > processors:
        return warning(
            subject,
            found,
            expected=f"a processor for each of the {plan.capacity} platforms that it runs at once",
            remedy=f"Lower engines.{plan.name}.capacity in ci.site.yaml.",
        )
    return ok(subject, found)


def disk_findings(
    client: DockerClient, info: Mapping[str, Any], plans: Sequence[RunPlan]
) -> Iterator[Finding]:
    """Yield the free space on the disk with the engine's images."""
    subject, where = f"disk of the engine on {info['Name']}", str(info["DockerRootDir"])
    free = shutil.disk_usage(where).free if is_local(info) else _free_on_engine(client, plans)
    if free is None:
        yield unknown(
            subject,
            f"{where} is on that machine; a container can measure it, but no image is there yet",
            remedy="Run doctor again after the first run.",
        )
    else:
        yield check_disk(subject, where, free, remedy=DISK_REMEDY)


def _free_on_engine(client: DockerClient, plans: Sequence[RunPlan]) -> int | None:
    """Measure inside a container, whose root is on the engine's disk."""
    for plan in plans:
        if plan.image is None:
            continue
        with suppress(ImageNotFound):
            client.images.get(plan.image.tag)
            printed = client.containers.run(
                plan.image.tag,
                ["-Pk", "/"],
                entrypoint=["df"],
                labels=dict(plan.container.labels),
                network_disabled=True,
                remove=True,
            )
            return parse_free(printed.decode())
    return None


def parse_free(printed: str) -> int:
    """Return the bytes that ``df -Pk`` reports as free."""
    return int(printed.splitlines()[-1].split()[3]) * 1024


def image_findings(
    plan: RunPlan, images: ImageBuilder, info: Mapping[str, Any]
) -> Iterator[Finding]:
    """Check for the image, or else for its base, on the engine or in a registry."""
    image, client = plan.needed_image, images.client
    reason = images.build_reason(plan)
    if reason is None:
        yield ok(f"image of {plan.platform}", f"{image.tag} is there")
        return
    yield ok(f"image of {plan.platform}", f"{image.tag} will be built: {reason}")
    subject = f"base image of {plan.platform}"
    if base := images.find(image.base_image):
        yield ok(subject, f"{image.base_image} is there")
        yield from judge_architecture(subject, [base.attrs["Architecture"]], info)
        return
    try:
        answer = client.images.get_registry_data(image.base_image)
    except APIError as error:
        offline = image.offline_base_image
        has_offline = offline is not None and images.find(offline) is not None
        yield judge_unpullable(plan.platform, image, explain(error), has_offline=has_offline)
        return
    yield ok(subject, f"{image.base_image} can be pulled")
    platforms = answer.attrs.get("Platforms") or ()
    architectures = [entry["architecture"] for entry in platforms if entry.get("os") == "linux"]
    yield from judge_architecture(subject, architectures, info)


def judge_unpullable(platform: str, image: ImagePlan, why: str, *, has_offline: bool) -> Finding:
    """Judge a base image that cannot be pulled; ``has_offline``: the offline base is there."""
    subject = f"base image of {platform}"
    found = f"{image.base_image} is not on the engine and cannot be pulled: {why}"
    remedy = base_image_remedy(platform, image)
    if image.offline_base_image is None:
        return problem(subject, found, remedy=remedy)
    if has_offline:
        remedy = "To use the usual base, load it with docker load."
    expected = f"the usual base; runs will use {image.offline_base_image}, and note it"
    return warning(subject, found, expected=expected, remedy=remedy)


def judge_architecture(
    subject: str, architectures: list[str], info: Mapping[str, Any]
) -> Iterator[Finding]:
    """Yield a problem if an image is for other processors than the engine's."""
    engine = ARCHITECTURES.get(info["Architecture"], info["Architecture"])
    if architectures and engine not in architectures:
        yield problem(
            subject,
            f"it is for {', '.join(sorted(set(architectures)))}",
            expected=f"{engine}, the architecture of the engine on {info['Name']}",
            remedy="Name an image for it, or another engine, in ci.site.yaml.",
        )


def cache_finding() -> Finding:
    """Judge the user's cache folder: a run does without it, an image build does not."""
    remedy = "Name another folder with XDG_CACHE_HOME."
    found = prerequisites.check_folder("cache", user_cache(), remedy=remedy)
    if found.level is not Severity.PROBLEM:
        return found
    expected = "a folder with room, for the compiler cache and the locks of image builds"
    return warning("cache", found.found, expected=expected, remedy=str(found.remedy))
