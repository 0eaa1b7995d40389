"""Shared by the tests of the CUDA sources."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.built import built_once, cached_compiler
from tests.cuda.emulated import Emulated, build


@pytest.fixture(scope="session")
def programs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the emulator's programs."""
    environment = {**os.environ, **cached_compiler(request)}
    return built_once(tmp_path_factory, "emulator", lambda folder: build(folder, environment))


@pytest.fixture(scope="module")
def emulated(programs: Path) -> Iterator[Emulated]:
    """The CUDA implementations on host memory."""
    process = Emulated(programs)
    yield process
    process.close()
