"""The platforms this program knows, each registered once, here."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from ci.platforms import cpu
from ci.platforms.base import Platform

_ALL: Final[tuple[Platform, ...]] = (cpu.PLATFORM,)

PLATFORMS: Final = MappingProxyType({platform.name: platform for platform in _ALL})

__all__ = ["PLATFORMS", "Platform"]
