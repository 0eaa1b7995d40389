"""The wheels of a bundle: those of the program, and those that a platform's stages install."""

from __future__ import annotations

import gzip
import itertools
import json
import re
import sys
import tomllib
import zlib
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import requires
from pathlib import Path

from ci.engines import Engine, Observer
from ci.engines.archives import chunks_of, extract
from ci.errors import InfrastructureError
from ci.model.execution import ImageFacts
from ci.model.plan import ResultLimits, RunPlan
from ci.protocol.distributions import WHEEL
from ci.protocol.job import ArtifactPlan, Column, StagePlan
from ci.protocol.stage_kind import StageKind
from ci.util.files import IS_INSTALLED, PROGRAM_ROOT
from ci.util.invocation import INSTALLED_NAME
from ci.util.process import last_lines, run

COLLECTOR = Path(__file__).with_name("collect_wheels.py")
LIMITS = ResultLimits(total_bytes=1 << 36)  # 64 GiB; torch with CUDA has 4
FOLDER = ".infini-ci-wheels"  # in the workspace: no project has a folder of this name
TIMEOUT_S = 3600.0  # for several GB at 1 MB/s, if torch is downloaded


DEVICES = "devices"  # the group that finds devices on the host engine


def program_requirements(*groups: str) -> list[str]:
    """Return what ``python -m ci`` needs: the dependency group of that name, and others."""
    if IS_INSTALLED:  # other groups are its extras
        listed = [it.partition(";") for it in requires(INSTALLED_NAME) or ()]
        wanted = {f'extra == "{name}"' for name in groups}
        return [
            it for it, _, marker in listed if "extra ==" not in marker or marker.strip() in wanted
        ]
    document = tomllib.loads((PROGRAM_ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return [it for name in ("ci", *groups) for it in document["dependency-groups"][name]]


def download_program(folder: Path) -> None:
    """Put the wheels of the program's requirements, for this Python, into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    # There, and not in the folder of the caller: Python would import the modules of a source.
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--wheel-dir", "."]
    run([*command, *program_requirements()], cwd=folder, timeout_s=TIMEOUT_S)


def collect_wheels(
    engine: Engine,
    plan: RunPlan,
    image: ImageFacts,
    destination: Path,
    *,
    wanted: Sequence[str],
    observer: Observer,
) -> None:
    """Put the wheels that the stages of ``plan`` would download into ``destination``.

    They are found by pip itself, in a container of the image, so that they fit its Python.
    """
    without = ("--no-build-isolation",) if _builds_without_isolation(plan.stages) else ()
    commands = [pip_arguments(stage, for_wheels=without) for stage in plan.stages]
    installs = [arguments for arguments in commands if arguments is not None]
    isolated = any("--no-build-isolation" not in arguments for arguments in installs)
    requirements = [*(_build_requirements(plan.source) if isolated else ()), *wanted]
    program = COLLECTOR.read_text(encoding="utf-8")
    stage = StagePlan(
        name="wheels",
        kind=StageKind.COMMAND,
        command=("python", "-c", program, FOLDER, json.dumps(requirements), json.dumps(installs)),
        column=Column.NONE,
        timeout_s=TIMEOUT_S,
        environment={},
        credentials=True,
    )
    artifact = ArtifactPlan(name=FOLDER, path=FOLDER)
    collection = replace(
        plan,
        stages=(stage,),
        artifacts=(artifact,),
        devices=None,
        cache=None,
        result_limits=LIMITS,
    )
    facts = engine.execute(collection, image, observer)
    if facts.interrupted:
        raise KeyboardInterrupt
    if facts.exit_code != 0:
        log = plan.results / "wheels.log"
        text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
        message = f"the wheels of {plan.platform} cannot be collected{last_lines(text)}"
        raise InfrastructureError(message, remedy="Check the requirements, and the package index.")
    try:
        with gzip.open(plan.results / f"{FOLDER}.tar.gz") as archive:
            left_out = extract(chunks_of(archive), destination, strip=1, limits=LIMITS)
    except (OSError, EOFError, zlib.error) as error:
        left_out = (str(error),)
    if left_out:
        message = f"the wheels of {plan.platform} cannot be copied: {left_out[0]}"
        raise InfrastructureError(message, remedy="Check the requirements, and the package index.")


def pip_arguments(stage: StagePlan, *, for_wheels: Sequence[str] = ()) -> list[str] | None:
    """Return the arguments of ``pip install``; ``None`` for any other command.

    In place of a wheel that another stage builds they have the sources, and ``for_wheels``.
    """
    for index, pair in enumerate(itertools.pairwise(stage.command)):
        if re.fullmatch(r"(.*/)?pip[\d.]*", pair[0]) and pair[1] == "install":
            arguments = stage.command[index + 2 :]
            added = for_wheels if any(WHEEL in word for word in arguments) else ()
            return [*(word.replace(WHEEL, ".") for word in arguments), *added]
    return None


def _builds_without_isolation(stages: Sequence[StagePlan]) -> bool:
    return any("wheel" in it.command and "--no-build-isolation" in it.command for it in stages)


def _build_requirements(source: Path) -> list[str]:
    """Return the requirements that pip installs into the isolated build environment."""
    path = source / "pyproject.toml"
    document = tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    section = document.get("build-system", {})
    return list(section.get("requires", ("setuptools", "wheel")))
