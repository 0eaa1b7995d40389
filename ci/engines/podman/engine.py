"""The Podman engine: the Docker engine's containers, on a Podman of the user or of root."""

from __future__ import annotations

from typing import ClassVar

from ci.engines.docker.engine import DockerEngine
from ci.engines.podman.link import PodmanLink
from ci.model.plan import EngineKind, RunPlan

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
