"""What all measurements share: the Python, a scratch folder and an installed library."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from bench.errors import MeasurementError
from bench.usage import Usage, run_measured
from ci.util.process import ProcessError, ProcessResult, run
from codegen.inputs import SELECTION_VARIABLE

ROOT = Path(__file__).resolve().parent.parent
_CACHES = ("ccache", "sccache")


@dataclass(frozen=True, kw_only=True)
class Context:
    """How to measure; ``installed`` takes the library that this Python already has."""

    scratch: Path
    output: Path
    repeat: int
    installed: bool = False
    runs: int = 2_000
    """Of the history that is made up."""
    database: str | None = None
    """An empty one for it; ``None``: SQLite."""

    @property
    def python(self) -> str:
        return sys.executable

    @property
    def site(self) -> Path:
        """Where the library is installed to, apart from the environment's own packages."""
        return self.scratch / "site"

    @property
    def build_dir(self) -> Path:
        """Of the cold build, which a later part finds up to date."""
        return self.scratch / "build"

    def environment(self, **variables: str) -> dict[str, str]:
        """For building: without a compiler cache or a selection of operators."""
        return uncached(os.environ) | variables

    @cached_property
    def library_environment(self) -> dict[str, str]:
        """For using the library; installs it unless a measurement has done so."""
        if self.installed:
            return dict(os.environ)
        if not self.site.exists():
            command = self.install_command(build_dir=ROOT / "build" / "bench", target=self.site)
            self.run(command, self.environment())
        return os.environ | {"PYTHONPATH": str(self.site)}

    def install_command(self, *, build_dir: Path, target: Path) -> list[str]:
        """``pip install .`` into ``target``, which leaves the environment as it is."""
        command = [self.python, "-m", "pip", "install", ".", "--no-build-isolation"]
        return [*command, "--upgrade", "--target", str(target), "-C", f"build-dir={build_dir}"]

    def run(
        self, command: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> ProcessResult:
        """Runs a program in the repository and returns its output."""
        try:
            return run(command, cwd=ROOT, environment=environment)
        except ProcessError as error:
            raise MeasurementError(str(error)) from None

    def measured(self, command: Sequence[str], environment: Mapping[str, str], log: str) -> Usage:
        """Runs a program in the repository and returns what it cost."""
        return run_measured(command, cwd=ROOT, environment=environment, log=self.scratch / log)


def uncached(variables: Mapping[str, str]) -> dict[str, str]:
    """The environment with compiler caches off; raises where one is part of the compiler."""
    kept = {
        name: value
        for name, value in variables.items()
        if name != SELECTION_VARIABLE
        and not name.endswith(("_COMPILER_LAUNCHER", "_LINKER_LAUNCHER"))
    }
    for name in ("CC", "CXX", "CMAKE_ARGS", "SKBUILD_CMAKE_ARGS", "SKBUILD_CMAKE_DEFINE"):
        if any(cache in kept.get(name, "") for cache in _CACHES):
            raise MeasurementError(
                f"{name}={kept[name]} puts a compiler cache before the compiler. Unset it: a cold "
                "build is measured without one."
            )
    # For a ccache that stands in for the compiler on PATH.
    return kept | {"CCACHE_DISABLE": "1"}
