"""What the tests compile: once for all their processes, and from a cache in the next run."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock


def built_once(factory: pytest.TempPathFactory, name: str, build: Callable[[Path], None]) -> Path:
    """A folder that the first process of a test run fills while the others wait for it.

    After a failed build the next process builds from the start, and fails as well.
    """
    folder = _base(factory) / f"built-{name}"
    with FileLock(f"{folder}.lock"):
        finished = Path(f"{folder}.finished")
        if not finished.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            build(folder)
            finished.touch()
    return folder


def cached_compiler(request: pytest.FixtureRequest) -> dict[str, str]:
    """CMake's environment for compilations that the next run in this checkout finds again."""
    ccache = shutil.which("ccache")
    cache = request.config.cache
    if ccache is None or cache is None:
        return {}
    return {
        "CMAKE_CXX_COMPILER_LAUNCHER": ccache,
        "CCACHE_DIR": str(cache.mkdir("ccache")),
        # Another folder in each run, which may not count.
        "CCACHE_BASEDIR": str(_base(request.getfixturevalue("tmp_path_factory"))),
        "CCACHE_NOHASHDIR": "1",
        "CCACHE_MAXSIZE": "500M",
    }


def _base(factory: pytest.TempPathFactory) -> Path:
    """The temporary folder of the whole run: each worker has a folder of its own in it."""
    base = factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
