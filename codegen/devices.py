"""The platforms of the library, read from ``ci/platforms``, which has one file for each.

``python -m codegen platforms`` writes them for C++ and CMake when a build is configured, and
``infini.ops.platforms()`` returns them. ``docs/add-a-platform.md`` describes the files.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from codegen.errors import GenerationError

FOLDER = Path(__file__).resolve().parents[1] / "ci" / "platforms"


@dataclass(frozen=True, kw_only=True)
class Platform:
    """One platform."""

    name: str
    order: int  # the value of its C++ enumerator
    torch_device: str  # torch's device type
    torch_plugin: str | None = None  # module that registers the type in torch, if any
    detected_by: tuple[str, ...] = ()  # patterns of files that show that a machine has its devices
    hardware: str | None = None  # a pattern for torch's names of its devices
    examples: tuple[str, ...] = ()  # such names

    @property
    def enumerator(self) -> str:
        """The enumerator of ``infini::ops::DeviceType``."""
        return f"k{self.name.capitalize()}"


@cache
def platforms(folder: Path = FOLDER) -> tuple[Platform, ...]:
    """Read all files, in their order; raises ``GenerationError`` for a wrong one."""
    found = sorted(map(_read_platform, sorted(folder.glob("*.toml"))), key=lambda each: each.order)
    for expected, platform in enumerate(found):
        if platform.order != expected:
            raise GenerationError(
                f"{folder / platform.name}.toml: order: got {platform.order}, expected {expected}: "
                "all files together count from 0, each number once"
            )
    return tuple(found)


def _read_platform(path: Path) -> Platform:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        facts: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        fields = {
            key: facts[key] for key in ("order", "torch_device", "torch_plugin") if key in facts
        }
        for key, value in facts.get("library", {}).items():
            fields[key] = tuple(value) if isinstance(value, list) else value
        return Platform(name=path.stem, **fields)
    except (TypeError, ValueError) as error:
        raise GenerationError(f"{path}: {error}. See docs/add-a-platform.md") from error
