"""Shared by the tests of the generators: the schemas of the installed torch, read once."""

from __future__ import annotations

from pathlib import Path

import pytest

from codegen.aten import Schemas, load_schemas

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository."""
    return ROOT


@pytest.fixture(scope="session")
def schemas() -> Schemas:
    """The out= and in-place schemas of the installed torch."""
    pytest.importorskip("torchgen", reason="torch is not installed")
    return load_schemas()
