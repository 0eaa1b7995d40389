"""Runs programs in sequence, each with a log of its own, until one fails."""

from __future__ import annotations

import os
import re
import resource
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ci.util.process import ProcessError, run

ROOT = Path(__file__).resolve().parents[2]
SUMMARY = re.compile(r"(?:\d+ (?:passed|failed|skipped|errors?),? ?)+")

Planned = tuple[str, Sequence[str | Path], Mapping[str, str]]  # name, command, environment


@dataclass(frozen=True, kw_only=True)
class Step:
    """The result of one program; its CPU-seconds include all processes that it started."""

    name: str
    exit_code: int
    cpu_s: float
    log: Path
    last_lines: str
    summary: str  # pytest's counts, else empty


def run_steps(planned: Iterator[Planned], folder: Path) -> tuple[Step, ...]:
    """Run the planned programs, with logs in ``folder``, until one fails."""
    steps: list[Step] = []
    for name, command, environment in planned:
        steps.append(run_step(name, command, environment, folder / f"{name}.log"))
        if steps[-1].exit_code != 0:
            break
    return tuple(steps)


def run_step(
    name: str, command: Sequence[str | Path], environment: Mapping[str, str], log: Path
) -> Step:
    """Run one program in the repository; both its streams go into ``log``."""
    print(f"{log.parent.name}: {name} ...", file=sys.stderr, flush=True)
    before = _children_cpu_s()
    try:
        finished = run(
            [str(word) for word in command],
            cwd=ROOT,
            environment={**os.environ, **environment},
            on_line=lambda _: None,  # both streams in one, in order
            check=False,
        )
        exit_code, output = finished.exit_code, finished.stdout
    except ProcessError as error:
        exit_code, output = 127, f"{error}\n"
    log.write_text(output)
    lines = output.strip().splitlines()
    summary = SUMMARY.search(lines[-1]) if lines else None
    return Step(
        name=name,
        exit_code=exit_code,
        cpu_s=round(_children_cpu_s() - before, 2),
        log=log,
        last_lines="\n".join(lines[-30:]),
        summary=summary[0].strip(", ") if summary else "",
    )


def environment_steps(name: str, python: str | Path, venv: Path) -> Iterator[Planned]:
    """Make a virtual environment unless an earlier run has done so."""
    if not (venv / "bin" / "pip").exists():  # the last thing that venv makes
        yield name, (python, "-m", "venv", "--clear", venv), {}


def pip_install(python: Path, *arguments: str | Path) -> tuple[str | Path, ...]:
    """Return the command that installs into the environment of ``python``."""
    return python, "-m", "pip", "install", "--disable-pip-version-check", *arguments


def project() -> dict[str, Any]:
    """Return pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def requirements() -> list[str]:
    """Return the packages for a build without isolation and for the operator suite."""
    content = project()
    return [
        *content["build-system"]["requires"],
        *content["project"]["optional-dependencies"]["dev"],
    ]


def _children_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
