"""Plans of small projects."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ci.model.plan import EngineKind, EnginePlan, NetworkPlan, RunPlan
from ci.model.platforms import PLATFORMS
from ci.plan.config import Config, DevicePolicy
from ci.plan.planning import AS_CONFIGURED, PlanInputs, RunOptions, make_plan
from ci.plan.project import Project, load_project, plan_run

CONFIG: Mapping[str, object] = {
    "project": "tiny",
    "platforms": {"cpu": {"environment": {"A": "1"}, "memory_bytes": 2**30}},
    "stages": [
        {"name": "build", "command": "make 'two words'", "environment": {"B": "2"}},
        {"name": "size", "command": "du -s .", "column": "none"},
        {"name": "tests", "command": "python -m pytest", "kind": "pytest", "timeout_s": 60},
    ],
    "artifacts": {"generated": "build/generated"},
}
POOL_CONFIG = """\
project: tiny
platforms: {cpu: {}, ascend: {}, moore: {}}
stages:
  - {name: pytest, kind: pytest, command: python -m pytest, column: pytest}
"""
INPUTS = PlanInputs(
    run_id="20260101T000000Z-abc-1234",
    source=Path("/source"),
    results=Path("/results/run"),
    context={"Dockerfile": b"FROM x", "requirements-cpu.txt": b"pytest"},
    requirements=Path("/requirements.txt"),
    base_image=None,
    network=NetworkPlan(environment={}),
    engine=EnginePlan(name="auto", kind=EngineKind.AUTO),
    devices=DevicePolicy(),
)


def plan(config: Mapping[str, object] = CONFIG, inputs: PlanInputs = INPUTS) -> RunPlan:
    validated = Config.model_validate(config, strict=False)
    [name] = validated.platforms
    return make_plan(validated, PLATFORMS[name], inputs)


def device_plan(folder: Path, name: str, **policy: Any) -> RunPlan:
    """A run of a project that says nothing but a platform's devices."""
    platform = {"devices": policy, "base_image": "base:1", "recipe": "Dockerfile"}
    config = {"project": "tiny", "platforms": {name: platform}}
    (folder / "Dockerfile").write_text("ARG BASE_IMAGE")
    (folder / "ci.yaml").write_text(json.dumps(config))
    (folder / "site.yaml").write_text("{}")
    project = load_project(folder / "ci.yaml", {"INFINI_CI_SITE": str(folder / "site.yaml")})
    [plan] = plan_run(project, [name], run_id="run-1", source=folder, results=folder / "results")
    return plan


def pool_project(folder: Path) -> Project:
    """A project for the hosts of a pool, in a folder of ``folder``."""
    source = folder / "project"
    source.mkdir(exist_ok=True)
    (source / "ci.yaml").write_text(POOL_CONFIG)
    return load_project(source / "ci.yaml", {})


def pool_plans(folder: Path, options: RunOptions = AS_CONFIGURED) -> dict[str, RunPlan]:
    """Plans of that project, by platform."""
    made = plan_run(
        pool_project(folder),
        ("cpu", "ascend", "moore"),
        run_id="20260101T000000Z-nogit-0000",
        source=folder / "project",
        results=folder / "results",
        options=options,
    )
    return {it.platform: it for it in made}
