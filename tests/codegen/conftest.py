"""Shared by the tests of the generators: the schemas of the installed torch, read once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from codegen.aten import NativeFunctions, find_torch, load_schemas, native_functions
from codegen.inputs import SELECTION_VARIABLE
from codegen.model import Schemas

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _all_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ignore a selection in the caller's environment."""
    monkeypatch.delenv(SELECTION_VARIABLE, raising=False)


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository."""
    return ROOT


@pytest.fixture(scope="session")
def schemas() -> Schemas:
    """The out= and in-place schemas of the installed torch."""
    pytest.importorskip("torchgen", reason="torch is not installed")
    return load_schemas(find_torch())


@pytest.fixture(scope="session")
def functions() -> Iterator[NativeFunctions]:
    """All functions of the installed torch, in torchgen's model."""
    pytest.importorskip("torchgen", reason="torch is not installed")
    with native_functions(find_torch()) as parsed:
        yield parsed
