"""Images that come with a bundle: found by their digest, or loaded."""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, cast

from docker.client import DockerClient
from docker.errors import ImageNotFound
from docker.models.images import Image

from ci.engines.addresses import is_here
from ci.engines.image_log import ImageLog
from ci.errors import InfrastructureError
from ci.plan import ImageArchive, ImagePlan

LOADED = "from the bundle"
PRESENT = "from the bundle, and here already"
LONGEST_S = 24 * 3600
TIMES = 2  # the engine unpacks the archive before it takes the layers out


def bundled_image(
    client: DockerClient, plan: ImagePlan, archive: ImageArchive, log: ImageLog
) -> tuple[Image, str]:
    """Return the image of a bundle, and whether it had to be loaded."""
    if found := _present(client, plan.tag, archive):
        return found, PRESENT
    _check_space(client, archive)
    log.write(f"loading {plan.tag} from {archive.bundle}")
    with tarfile.open(archive.bundle, mode="r:") as members:
        content = cast(IO[bytes], members.extractfile(archive.member))
        with patience(client):
            images = client.images.load(content)
    for image in images:
        if _is(image, archive):
            return image, LOADED
    message = f"the engine loaded {', '.join(str(image.id) for image in images)} from"
    raise InfrastructureError(f"{message} {archive.bundle}, expected {archive.id}")


@contextmanager
def patience(client: DockerClient) -> Iterator[None]:
    """Wait as long as it takes: before its first answer an engine copies the whole image."""
    usual, client.api.timeout = client.api.timeout, LONGEST_S
    try:
        yield
    finally:
        client.api.timeout = usual


def _present(client: DockerClient, tag: str, archive: ImageArchive) -> Image | None:
    for reference in (archive.id, tag):
        try:
            image = client.images.get(reference)
        except ImageNotFound:
            continue
        if _is(image, archive):
            return image
    return None


def _is(image: Image, archive: ImageArchive) -> bool:
    """Engines that store images in containerd count ids otherwise; layers are the same in all."""
    return image.id == archive.id or tuple(image.attrs["RootFS"]["Layers"]) == archive.layers


def _check_space(client: DockerClient, archive: ImageArchive) -> None:
    info = client.info()
    folder = str(info["DockerRootDir"])
    if not is_here(info):  # its own error, of a full disk, comes later
        return
    needed, free = TIMES * archive.size, shutil.disk_usage(folder).free
    if free < needed:
        message = f"{free:,} bytes are free in {folder}, loading the image takes {needed:,}"
        raise InfrastructureError(message, remedy="Make room: docker system df says by what.")
