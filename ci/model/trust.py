"""How far the code of a run is trusted."""

from __future__ import annotations

from enum import StrEnum


class Trust(StrEnum):
    """A trust level. A run writes caches of its level, and reads those of higher ones too."""

    RELEASE = "release"
    BRANCH = "branch"
    UNTRUSTED = "untrusted"

    @property
    def higher(self) -> tuple[Trust, ...]:
        """The more trusted levels, the highest first."""
        levels = tuple(Trust)
        return levels[: levels.index(self)]
