"""Folders in folders, deeper than a path may be."""

from __future__ import annotations

import os
from contextlib import chdir
from pathlib import Path

LEVELS = 1500  # of four characters each; a path has at most 4,096


def make_deep_folder(folder: Path) -> None:
    """Make ``ddd/ddd/…`` in a folder. Python's own functions, and so pytest's, cannot remove it."""
    with chdir(folder):
        for _ in range(LEVELS):
            os.mkdir("ddd")  # noqa: PTH102
            os.chdir("ddd")
