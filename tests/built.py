"""Builds programs, distributions, their environments, and checkouts for tests.

What takes long is built once per run, with a cache for later runs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock

from ci.util.invocation import REPOSITORY

_OF_THE_CALLER = ("INFINI_", "PYTHONPATH")  # variables


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


def run(*command: object, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder, without the settings and the paths of the caller."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(_OF_THE_CALLER)}
    words = [str(word) for word in command]
    return subprocess.run(
        words, cwd=folder, env=inherited | variables, capture_output=True, text=True, check=False
    )


def build_distribution(factory: pytest.TempPathFactory, package: str) -> Path:
    """A folder with the source distribution and the wheel of `infini-<package>`."""

    def build(folder: Path) -> None:
        command = (sys.executable, "-m", "hatchling", "build", "--directory", folder)
        done = run(*command, folder=REPOSITORY / package)
        assert done.returncode == 0, done.stderr

    return built_once(factory, f"infini-{package}", build)


def wheel_of(folder: Path) -> Path:
    [wheel] = folder.glob("*.whl")
    return wheel


def make_environment(folder: Path, *wheels: Path) -> Path:
    """The Python of an environment that has the wheels, and the packages of this one."""
    venv.create(folder)
    python = folder / "bin" / "python"
    if wheels:
        pip = (sys.executable, "-m", "pip", "--python", python, "install", "--no-deps")
        done = run(*pip, "--no-index", "--quiet", *wheels, folder=folder)
        assert done.returncode == 0, done.stderr
    packages = next(folder.glob("lib/python*/site-packages"))
    ours = [each for each in sys.path if each.endswith("site-packages")]
    (packages / "dependencies.pth").write_text("\n".join(ours))
    return python


def copy_checkout(folder: Path) -> None:
    """Copy the files of the working tree that git does not ignore."""
    listing = ("git", "ls-files", "--cached", "--others", "--exclude-standard", "-z")
    done = run(*listing, folder=REPOSITORY)
    assert done.returncode == 0, done.stderr
    for name in filter(None, done.stdout.split("\0")):
        if (REPOSITORY / name).is_file():  # and not one that is removed but not committed
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPOSITORY / name, folder / name)


def make_wheel(folder: Path, name: str, version: str, requires: str = "") -> None:
    """Make a wheel of one module, which has its version."""
    folder.mkdir(exist_ok=True)
    module, facts = name.replace("-", "_"), f"{name.replace('-', '_')}-{version}.dist-info"
    about = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    files = {
        f"{module}.py": f"__version__ = {version!r}\n",
        f"{facts}/METADATA": about + (f"Requires-Dist: {requires}\n" if requires else ""),
        f"{facts}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{file},,\n" for file in [*files, f"{facts}/RECORD"])
    with zipfile.ZipFile(folder / f"{module}-{version}-py3-none-any.whl", "w") as wheel:
        for file, text in {**files, f"{facts}/RECORD": record}.items():
            wheel.writestr(file, text)


def cache_folder(request: pytest.FixtureRequest, name: str) -> Path:
    """Return a folder for this and later runs in this checkout, if pytest keeps a cache."""
    cache: pytest.Cache | None = getattr(request.config, "cache", None)
    if cache is not None:
        return cache.mkdir(name)
    factory: pytest.TempPathFactory = request.getfixturevalue("tmp_path_factory")
    folder = _base(factory) / name
    folder.mkdir(exist_ok=True)
    return folder


def cached_compiler(request: pytest.FixtureRequest) -> dict[str, str]:
    """Return an environment with which CMake caches objects for later runs in this checkout."""
    ccache = shutil.which("ccache")
    if ccache is None:
        return {}
    return {
        "CMAKE_CXX_COMPILER_LAUNCHER": ccache,
        "CCACHE_DIR": str(cache_folder(request, "ccache")),
        # Each run has another folder, which must not be part of the cache key.
        "CCACHE_BASEDIR": str(_base(request.getfixturevalue("tmp_path_factory"))),
        "CCACHE_NOHASHDIR": "1",
        "CCACHE_MAXSIZE": "500M",
    }


def _base(factory: pytest.TempPathFactory) -> Path:
    """Return the temporary folder of the whole run; each worker has its own folder inside."""
    base = factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
