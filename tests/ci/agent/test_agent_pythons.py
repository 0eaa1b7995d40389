"""What runs inside containers, on every Python of this machine from 3.8 on."""

from __future__ import annotations

import re
import subprocess
import tomllib
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from ci.agent.lease import detect
from ci.engines import devices
from ci.engines.job import agent_modules
from ci.protocol.stage_kind import StageKind
from ci.util.invocation import REPOSITORY
from tests.ci.agent_job import Job
from tools.compat.interpreters import find_interpreters, places

VERSIONS = [f"3.{minor}" for minor in range(8, 15)]
LEFT_OUT = {"__main__", "status_plugin", "shard_plugin"}  # which pytest alone imports


def test_the_linter_checks_it_for_the_oldest_python() -> None:
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["ruff"]
    patterns = [
        it for it, version in settings["per-file-target-version"].items() if version == "py38"
    ]
    files = (str(path.relative_to(REPOSITORY)) for path in REPOSITORY.glob("ci/**/*.py"))
    checked = {file for file in files if any(fnmatchcase(file, it) for it in patterns)}
    assert checked == {*agent_modules(), str(devices.PROBE.relative_to(REPOSITORY))}


@pytest.fixture(scope="module", params=VERSIONS)
def pythons(request: pytest.FixtureRequest) -> list[str]:
    """Every interpreter of one version."""
    found = [str(each.executable) for each in find_interpreters(request.param)]
    if not found:
        pytest.skip(f"no python{request.param} in {', '.join(places())}")
    return found


def test_a_job_on_every_python(pythons: list[str], tmp_path: Path) -> None:
    for number, python in enumerate(pythons):
        folder = tmp_path / str(number)
        folder.mkdir()
        job = Job(folder)
        job.interpreter = python
        job.artifacts = {"made": "made"}
        job.stage("install", "sh", "-c", "mkdir made; echo $GREETING >made/greeting")
        job.python("pytest", "import sys; print(*sys.argv[1:], sep='\\n')", kind=StageKind.PYTEST)
        assert job.run() == 0, python
        assert job.events("run_finished")[0]["exit_code"] == 0
        log, junit = job.log("pytest").splitlines()
        assert re.fullmatch(r"--report-log=\S+/pytest\.jsonl", log)
        assert junit == f"--junitxml={job.results / 'junit.xml'}"
        assert (job.results / "made.tar.gz").exists()
        assert job.environment()["machine"]["cores"] >= 1


def test_every_python_imports_all_of_the_agent(pythons: list[str]) -> None:
    paths = [Path(name).with_suffix("") for name in agent_modules()]
    names = [".".join(path.parts) for path in paths if path.name not in LEFT_OUT]
    program = f"import importlib\nfor name in {names}: importlib.import_module(name)"
    for python in pythons:
        command = [python, "-B", "-W", "error", "-S", "-c", program]
        subprocess.run(command, cwd=REPOSITORY, check=True)


def test_every_python_runs_the_probe(pythons: list[str]) -> None:
    for python in pythons:
        found = detect([python, "-W", "error", "-S", str(devices.PROBE), "nvidia"], {})
        assert (found.status, found.reason) == (
            "unknown",
            "gpustack-runtime cannot be imported: No module named 'gpustack_runtime'",
        )
