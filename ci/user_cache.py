"""Where this program keeps what a user may delete at any time."""

from __future__ import annotations

import os
from pathlib import Path


def user_cache() -> Path:
    """The user's folder, as the XDG base directory specification has it; it may not be there."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "infini-ci")
