"""The protocol every platform satisfies: facts that hold for any project on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Platform(Protocol):
    """Facts about one platform; a project overrides some of them in ``ci.yaml``."""

    @property
    def name(self) -> str:
        """Name on the command line and in ``ci.yaml``."""

    @property
    def label(self) -> str:
        """Name in the results table."""

    @property
    def torch_device(self) -> str:
        """Device type of its tensors in torch."""

    @property
    def base_image(self) -> str:
        """Image that the recipe starts from where a registry can be reached."""

    @property
    def recipe(self) -> str:
        """Dockerfile, relative to this repository."""

    @property
    def offline_base_image(self) -> str | None:
        """Local stand-in for ``base_image`` where it is neither present nor pullable."""

    @property
    def offline_base_command(self) -> tuple[str, ...] | None:
        """Command, relative to this repository, that makes ``offline_base_image``."""

    @property
    def environment(self) -> Mapping[str, str]:
        """Environment variables of every stage."""
