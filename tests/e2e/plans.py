"""Hand-made plans of a tiny project, for tests that really run engines."""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from ci.engines.host.workfolder import MAKE_VENV
from ci.model.plan import ContainerPlan, EngineKind, EnginePlan, HostPlan, ImagePlan, RunPlan
from ci.plan.network import resolve_network
from ci.plan.planning import RESULTS, WORKSPACE
from ci.protocol.job import ArtifactPlan, Column, StagePlan
from ci.protocol.stage_kind import StageKind

# The command, with a program for Python that makes the host engine's environments. It is no
# `python -m ci`, so the lines that it prints name the `python` of the shell.
LAUNCHER = """\
import runpy, sys
sys.executable = sys.argv.pop(1)
runpy.run_module("ci", run_name="__main__", alter_sys=True)
"""
OFFLINE_BASE = "infini-ops-base:bookworm"
REQUIREMENTS = "pytest\npytest-reportlog\nsetuptools>=77\n"
DOCKERFILE = """\
ARG BASE_IMAGE
FROM ${BASE_IMAGE}
RUN command -v ccache || (apt-get update && apt-get install -y --no-install-recommends ccache)
ARG PIP_EXTRA_INDEX_URL
ARG PIP_INDEX_URL
ENV PATH=/opt/venv/bin:/usr/local/bin:/usr/sbin:/usr/bin:/bin
COPY requirements.txt site-ca-bundle.pe[m] /tmp/
RUN useradd --uid 1000 --create-home builder && python3 -m venv /opt/venv \\
    && if [ -s /tmp/site-ca-bundle.pem ]; then export PIP_CERT=/tmp/site-ca-bundle.pem; fi \\
    && pip install -r /tmp/requirements.txt && chown -R builder /opt/venv
"""

# The project that the plans run: files of its own tree, so that no test of it is collected here.
PROJECT = {
    "pyproject.toml": """\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "tiny"
version = "1"
""",
    "src/tiny/__init__.py": "ANSWER = 42\n",
    "tests/test_tiny.py": """\
import os

import tiny


def test_answer():
    assert tiny.ANSWER == 42


def test_environment():
    assert os.environ["GREETING"] == "good morning"


def test_that_fails():
    assert tiny.ANSWER == 43
""",
}


def write_project(folder: Path) -> None:
    for name, text in PROJECT.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def stage(
    name: str,
    *command: str,
    kind: StageKind = StageKind.COMMAND,
    timeout_s: float = 60.0,
    environment: Mapping[str, str] | None = None,
) -> StagePlan:
    return StagePlan(
        name=name,
        kind=kind,
        command=command,
        column=Column.BUILD_INSTALL,
        timeout_s=timeout_s,
        environment=environment or {},
    )


def python_stage(name: str, program: str) -> StagePlan:
    return stage(name, "python", "-c", program)


def make_copying_python(folder: Path) -> None:
    """Make ``folder / "python"``, whose virtual environments are copies of one.

    They have pytest, which pip takes 3 CPU-seconds to install.
    """
    subprocess.run([sys.executable, *MAKE_VENV, folder / "venv"], check=True)
    install = ("-m", "pip", "install", "--quiet", *REQUIREMENTS.split())
    subprocess.run([folder / "venv" / "bin" / "python", *install], check=True)
    program = folder / "python"
    # Of links to its files: pip and Python replace files, and write to none that exists. Writing
    # 2,400 files takes 2 CPU-seconds.
    copy = f'cp -al {shlex.quote(str(folder / "venv"))} "$4"'
    others = f'{shlex.quote(sys.executable)} "$@"'
    program.write_text(
        f'#!/bin/sh\nif [ "$1 $2" = "-m virtualenv" ]; then exec {copy}; fi\nexec {others}\n'
    )
    program.chmod(0o755)


def make_run_plan(
    folder: Path,
    *stages: StagePlan,
    run_id: str,
    requirements: str = "",
    image_requirements: str = REQUIREMENTS,
    dockerfile: str = DOCKERFILE,
    memory_bytes: int | None = None,
    artifacts: Mapping[str, str] | None = None,
    python: str = sys.executable,
) -> RunPlan:
    """Plan a run of ``folder / "project"`` on either engine."""
    network = resolve_network(os.environ, folder=folder)
    context = {"Dockerfile": dockerfile.encode(), "requirements.txt": image_requirements.encode()}
    if network.ca_bundle is not None:
        context["site-ca-bundle.pem"] = network.ca_bundle.read_bytes()
    digest = hashlib.sha256(repr(sorted(context.items())).encode()).hexdigest()[:16]
    arguments = {
        name: value
        for name, value in network.build_environment.items()
        if name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL") or "proxy" in name.lower()
    }
    (folder / "requirements.txt").write_text(requirements)
    return RunPlan(
        run_id=run_id,
        platform="cpu",
        label="CPU",
        torch_device="cpu",
        source=folder / "project",
        results=folder / "results",
        stages=stages,
        artifacts=tuple(
            ArtifactPlan(name=name, path=path) for name, path in (artifacts or {}).items()
        ),
        environment={"GREETING": "good morning"},
        network=network,
        image=ImagePlan(
            tag=f"infini-ci/engine-tests:{digest}",
            dockerfile="Dockerfile",
            context=context,
            build_arguments=arguments,
            base_image="registry.invalid/python:3.11",
            offline_base_image=OFFLINE_BASE,
            offline_base_command=("docker/make-base-image",),
        ),
        container=ContainerPlan(
            name=f"infini-ci-{run_id}-cpu",
            labels={"infini-ci.run": run_id, "infini-ci.platform": "cpu"},
            user="1000",
            workspace=WORKSPACE,
            results=RESULTS,
            shm_size_bytes=None,
            memory_bytes=memory_bytes,
            processes=4096,
        ),
        host=HostPlan(python=python, requirements=folder / "requirements.txt"),
        engine=EnginePlan(name="auto", kind=EngineKind.AUTO),
    )
