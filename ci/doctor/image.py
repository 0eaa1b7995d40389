"""The image of a platform: there, or what it will be built from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from docker.client import DockerClient
from docker.errors import APIError

from ci.engines.images import ImageBuilder
from ci.engines.sdk_errors import explain
from ci.findings import Finding, ok, problem, warning
from ci.plan import ImagePlan, RunPlan, base_image_remedy

# The kernel's names of processors, and the registries'.
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def image_findings(
    plan: RunPlan, client: DockerClient, info: Mapping[str, Any]
) -> Iterator[Finding]:
    """Whether the image is there, and else its base, here or in a registry."""
    image = plan.needed_image
    subject = f"image of {plan.platform}"
    reason = ImageBuilder(client).reason(plan)
    if reason is None:
        yield ok(subject, f"{image.tag} is there")
        return
    yield ok(subject, f"{image.tag} will be built: {reason}")
    yield from _base_findings(plan.platform, image, client, info)


def _base_findings(
    platform: str, image: ImagePlan, client: DockerClient, info: Mapping[str, Any]
) -> Iterator[Finding]:
    subject = f"base image of {platform}"
    if base := ImageBuilder(client).find(image.base_image):
        yield ok(subject, f"{image.base_image} is there")
        yield from judge_architecture(subject, [base.attrs["Architecture"]], info)
        return
    try:
        answer = client.images.get_registry_data(image.base_image)
    except APIError as error:
        yield judge_unpullable(platform, image, explain(error))
        return
    yield ok(subject, f"{image.base_image} can be pulled")
    platforms = answer.attrs.get("Platforms") or ()
    architectures = [entry["architecture"] for entry in platforms if entry.get("os") == "linux"]
    yield from judge_architecture(subject, architectures, info)


def judge_unpullable(platform: str, image: ImagePlan, why: str) -> Finding:
    """Judge a base image that no registry hands out."""
    subject = f"base image of {platform}"
    found = f"{image.base_image} is not on the engine and cannot be pulled: {why}"
    remedy = base_image_remedy(platform)
    if image.offline_base_image is None:
        return problem(subject, found, remedy=remedy)
    expected = f"the usual base; runs will stand on {image.offline_base_image}, and say so"
    return warning(subject, found, expected=expected, remedy=remedy)


def judge_architecture(
    subject: str, architectures: list[str], info: Mapping[str, Any]
) -> Iterator[Finding]:
    """Say when an image is for other processors than the engine has."""
    engine = ARCHITECTURES.get(info["Architecture"], info["Architecture"])
    if architectures and engine not in architectures:
        yield problem(
            subject,
            f"it is for {', '.join(sorted(set(architectures)))}",
            expected=f"{engine}, as the engine on {info['Name']} has it",
            remedy="Name an image for it, or another engine, in ci.site.yaml.",
        )
