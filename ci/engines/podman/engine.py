"""The Podman engine: the Docker engine's containers, on a Podman of the user or of root.

Podman answers the requests of the Docker SDK, some of them in another way than a Docker Engine.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from hashlib import sha256
from http import HTTPStatus
from typing import Any, ClassVar

from docker.api.client import APIClient
from docker.client import DockerClient
from docker.errors import APIError
from docker.utils import parse_repository_tag

from ci.engines.docker.engine import DockerEngine
from ci.engines.docker.link import EngineAddress, EngineProduct, Link
from ci.model.plan import EngineKind, EnginePlan, RunPlan

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


ROOT_SOCKET = "/run/podman/podman.sock"
PODMAN = EngineProduct(
    name="Podman",
    command="podman",
    variable="CONTAINER_HOST",
    oldest=(4, 3),
    start="start it with `systemctl --user start podman.socket` (root: without --user), or where"
    " there is no systemd with `podman system service --time 0 &`; or name its socket in"
    " CONTAINER_HOST",
    access="it is another user's: use your own, which CONTAINER_HOST names, or start one with"
    " `systemctl --user start podman.socket`",
)


class PodmanLink(Link):
    """A client of a Podman with its connection."""

    product: ClassVar = PODMAN
    client_type: ClassVar = PodmanClient

    @staticmethod
    def find_address(plan: EnginePlan) -> EngineAddress:
        """Return the address that the plan, or else the environment names."""
        if plan.podman_host is not None:
            return _address(plan.podman_host, f"engine {plan.name}")
        if url := os.environ.get("CONTAINER_HOST"):
            return _address(url, "CONTAINER_HOST")
        return _address(f"unix://{own_socket(os.environ, os.geteuid())}", None)

    def info(self) -> Mapping[str, Any]:
        """Return what Podman reports, with an identity: its own is new for each request."""
        facts = super().info()
        place = f"{facts['Name']}:{facts['DockerRootDir']}"
        return {**facts, "ID": sha256(place.encode()).hexdigest()[:16]}


def _address(url: str, named_by: str | None) -> EngineAddress:
    return EngineAddress(url=url, environment={PODMAN.variable: url}, named_by=named_by)


def own_socket(environ: Mapping[str, str], user: int) -> str:
    """Return the socket on which a user's Podman listens by default."""
    if user == 0:
        return ROOT_SOCKET
    runtime = environ.get("XDG_RUNTIME_DIR") or f"/run/user/{user}"
    return f"{runtime}/podman/podman.sock"


NO_LIMITS = (
    "Podman limits neither memory nor processes of the container: rootless, it needs cgroups v2"
)


class PodmanEngine(DockerEngine):
    """Runs plans in containers of one Podman."""

    name = EngineKind.PODMAN
    link_type: ClassVar = PodmanLink

    def notes(self, plan: RunPlan, image_id: str | None = None) -> tuple[str, ...]:
        """Return the notes of every container, and one if stages have no limits."""
        info = self.info()
        unlimited = info.get("Rootless") and info.get("CgroupVersion") == "1"
        return (*super().notes(plan, image_id), *([NO_LIMITS] if unlimited else ()))
