"""The address of a Podman, and a connection to it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, ClassVar

from ci.engines.docker.link import EngineAddress, EngineProduct, Link
from ci.engines.podman.client import PodmanClient
from ci.model.plan import EnginePlan

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
