"""The CPU platform: no device, any Debian image with Python."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final


@dataclass(frozen=True, kw_only=True)
class _Cpu:
    name: str = "cpu"
    label: str = "CPU"
    torch_device: str = "cpu"
    base_image: str = "python:3.11-slim-bookworm"
    recipe: str = "docker/cpu.Dockerfile"
    offline_base_image: str | None = "infini-ops-base:bookworm"
    offline_base_command: tuple[str, ...] | None = ("docker/make-base-image",)
    environment: Mapping[str, str] = field(default_factory=dict)


PLATFORM: Final = _Cpu()
