"""Processors that an image is not made for: found before anything is built or run.

What a container would say instead is "exec format error", of whatever comes first in it.
"""

from __future__ import annotations

import platform

from docker.client import DockerClient
from docker.models.images import Image

from ci.errors import InfrastructureError

# What the kernel calls them, and what images and engines do.
NAMES = {"x86_64": "amd64", "aarch64": "arm64"}


def check_image(client: DockerClient, image: Image) -> Image:
    """Return ``image``; raises ``InfrastructureError`` where the engine cannot run it."""
    made_for = image.attrs["Architecture"]
    if made_for:  # an image by hand may not say it
        _check(f"image {image.tags[0] if image.tags else image.id} is", made_for, client)
    return image


def check_made_here(client: DockerClient) -> None:
    """The same for an image that this machine would make from its own packages."""
    machine = platform.machine()
    _check("an image made of this machine's packages would be", NAMES.get(machine, machine), client)


def _check(what: str, made_for: str, client: DockerClient) -> None:
    there = client.version()["Arch"]
    if made_for != there:
        raise InfrastructureError(
            f"{what} for {made_for}, the engine's machine is {there}",
            remedy=f"name a base image for {there}, or run the platform on another engine",
        )
