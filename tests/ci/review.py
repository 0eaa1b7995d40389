"""Texts that are read in review, in a file of named blocks.

After a wanted change: ``INFINI_OPS_UPDATE_GOLDEN=1 pytest tests/ci/facts -k golden``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def check_golden(path: Path, found: Mapping[str, str]) -> None:
    """Compare texts by their names with the blocks of a file."""
    if os.environ.get("INFINI_OPS_UPDATE_GOLDEN"):
        path.write_text("\n".join(f"## {name}\n{text}\n" for name, text in found.items()))
    blocks = f"\n{path.read_text()}".split("\n## ")[1:]
    recorded = dict(block.rstrip("\n").split("\n", 1) for block in blocks)
    assert found == recorded
