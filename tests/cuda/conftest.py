"""Shared by the tests of the CUDA sources."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from emulated import Emulated, build


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the emulator's programs."""
    folder = tmp_path_factory.mktemp("emulator")
    build(folder)
    return folder


@pytest.fixture(scope="module")  # not longer: tests/e2e waits until no child is left
def emulated(programs: Path) -> Iterator[Emulated]:
    """The CUDA implementations on host memory."""
    process = Emulated(programs)
    yield process
    process.close()
