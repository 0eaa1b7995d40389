"""Checks of a Docker Engine: its version, clock, disk, images, and its machine's devices."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import Any

from docker.client import DockerClient
from docker.errors import APIError, ImageNotFound
from rich.filesize import decimal

from ci.engines.checks import (
    Check,
    Finding,
    carry_out,
    check_disk,
    judge_clock,
    ok,
    problem,
    unknown,
    warning,
)
from ci.engines.devices import device_findings
from ci.engines.docker.images import ARCHITECTURES, ImageBuilder
from ci.engines.docker.link import DOCKER, EngineProduct, Link, explain, is_local, typed_reasons
from ci.model.plan import EnginePlan, ImagePlan, RunPlan, base_image_remedy
from ci.util.invocation import PROGRAM_NAME
from ci.util.text import counted


def engine_findings(
    plan: EnginePlan, runs: Sequence[RunPlan], link: Link, images: ImageBuilder
) -> Iterator[Finding]:
    """Check the engine of a link, its images, and what runs need there."""
    info, product = link.info(), link.product
    theirs, mine = datetime.fromisoformat(info["SystemTime"]), datetime.now(UTC)
    yield judge_engine(plan, info, product)
    yield judge_clock(f"clock of engine {plan.name}", theirs, mine)
    looks = {
        f"disk of engine {plan.name}": partial(disk_findings, link.client, info, runs, product)
    }
    for run in runs:
        looks[f"image of {run.platform}"] = partial(image_findings, run, images, info)
        looks[f"devices of {run.platform}"] = partial(_device_findings, run, info)
    place = f"the {product.name}"
    yield from carry_out([Check(it, partial(_typed, look, place)) for it, look in looks.items()])


def _typed(look: Callable[[], Iterator[Finding]], place: str) -> Iterator[Finding]:
    """Yield findings; errors of the SDK are typed ones."""
    with typed_reasons(place):
        yield from look()


def _device_findings(run: RunPlan, info: Mapping[str, Any]) -> Iterator[Finding]:
    """Check the devices of this machine; a run detects those of another machine there."""
    if run.devices is None or is_local(info):
        yield from device_findings(run, tuple(info.get("Runtimes") or ()))
        return
    yield unknown(
        f"devices of {run.platform}",
        "they are on another machine",
        remedy=f"Run {PROGRAM_NAME} doctor {run.platform} there; a run here looks at them too.",
    )


def judge_engine(
    plan: EnginePlan, info: Mapping[str, Any], product: EngineProduct = DOCKER
) -> Finding:
    """Judge the properties that an engine reports."""
    subject = f"engine {plan.name}"
    version, processors = str(info["ServerVersion"]), int(info["NCPU"])
    usual = plan.host or "the default one of this machine"
    found = (
        f"{product.name} {version} on {info['Name']},"
        f" {usual if plan.context is None else f'context {plan.context}'}, {info['Architecture']},"
        f" {counted(processors, 'processor')}, {decimal(info['MemTotal'])} of memory"
    )
    if tuple(map(int, re.findall(r"\d+", version)[:2])) < product.oldest:
        expected = f"{product.oldest[0]}.{product.oldest[1]} or newer"
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
    client: DockerClient,
    info: Mapping[str, Any],
    plans: Sequence[RunPlan],
    product: EngineProduct = DOCKER,
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
        yield check_disk(
            subject, where, free, remedy=f"{product.command} system df shows the rest."
        )


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
    if image.archive:
        yield ok(f"image of {plan.platform}", f"{image.tag} comes with {image.archive.bundle}")
        return
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
