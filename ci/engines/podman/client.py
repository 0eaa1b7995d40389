"""A client of Podman's Docker API: what it asks and answers in another way than a Docker Engine."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from docker.api.client import APIClient
from docker.client import DockerClient
from docker.errors import APIError
from docker.utils import parse_repository_tag

# Registries that Podman puts before a name without one.
REGISTRIES = ("docker.io/", "localhost/")
NAME_TAKEN = "that name is already in use"


class PodmanAPI(APIClient):
    """The requests of the Docker SDK, as Podman understands them."""

    def tag(self, image: str, repository: str, tag: str | None = None, force: bool = False) -> bool:
        """Tag an image; Podman reads no tag in the name of a repository."""
        repository, named = parse_repository_tag(repository)
        done: bool = super().tag(image, repository, tag or named, force)
        return done

    def create_container_from_config(self, *arguments: Any, **options: Any) -> Any:
        """Create a container; a taken name is a conflict, as it is for a Docker Engine."""
        try:
            return super().create_container_from_config(*arguments, **options)  # type: ignore[no-untyped-call]
        except APIError as error:
            if error.response is not None and NAME_TAKEN in str(error):
                error.response.status_code = HTTPStatus.CONFLICT
            raise

    def images(self, *arguments: Any, **options: Any) -> Any:
        """Return the images, with the names that they were given."""
        found = super().images(*arguments, **options)
        return [_short(it) if isinstance(it, dict) else it for it in found]

    def inspect_image(self, image: str) -> Any:
        """Return the facts of an image, with the names that it was given."""
        return _short(super().inspect_image(image))  # type: ignore[no-untyped-call]

    def df(self) -> Any:
        """Return what is stored, from the lists: Podman's own answer has no labels."""
        usage = {it["Name"]: it.get("UsageData") for it in super().df().get("Volumes") or ()}
        volumes = self.volumes().get("Volumes") or ()
        return {
            "Containers": self.containers(all=True, size=True),
            "Images": self.images(),
            "Volumes": [{**it, "UsageData": usage.get(it["Name"])} for it in volumes],
        }


def _short(image: Mapping[str, Any]) -> dict[str, Any]:
    names = image.get("RepoTags") or ()
    return {**image, "RepoTags": [_without_registry(name) for name in names]}


def _without_registry(name: str) -> str:
    for registry in REGISTRIES:
        if name.startswith(registry):
            return name.removeprefix(registry)
    return name


class PodmanClient(DockerClient):
    """A client of a Podman."""

    def __init__(self, **options: Any) -> None:
        self.api = PodmanAPI(**options)
