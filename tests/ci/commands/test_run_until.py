"""A run that is to end with one of its stages, and the bundle of a kit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ci import cli
from ci.commands import run as run_command
from ci.errors import ExitCode, UsageError
from ci.model.plan import EngineKind
from ci.plan.config import Config
from ci.plan.planning import RunOptions
from ci.plan.project import load_project
from ci.plan.request import new_request
from ci.run import session
from ci.run.progress import Progress
from ci.upkeep.bundle.pack import Packer
from ci.upkeep.bundle.unpack import open_bundle
from tests.ci.local_engine import LocalEngine

CONFIG = """\
project: tiny
platforms: {cpu: {}}
stages:
- {name: build, command: "true"}
- {name: pytest, command: python -m pytest, kind: pytest}
- {name: bench, kind: benchmark, command: cp made.json out.json, benchmarks: out.json,
    on_request: true}
"""
MADE = {"benchmarks": [{"name": "a", "value": 1.5, "unit": "s", "direction": "lower"}]}


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for module in (run_command, session):
        monkeypatch.setattr(module, "select_engine", lambda _: LocalEngine())
    monkeypatch.setenv("INFINI_CI_RESULTS", str(tmp_path / "results"))
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "ci.yaml").write_text(CONFIG)
    (folder / "test_a.py").write_text("def test_a(): pass\n")
    (folder / "made.json").write_text(json.dumps(MADE))
    return folder


def run(source: Path, *words: str) -> int:
    return cli.main(["run", "cpu", "--source", str(source), *words])


def stages(tmp_path: Path) -> dict[str, int | None]:
    document = json.loads((tmp_path / "results" / "latest" / "results.json").read_text())
    [row] = document["platforms"]
    return {it["name"]: it["exit_code"] for it in row["stages"] if it["name"] != "sync"}


def test_a_stage_on_request_runs_only_when_it_is_named(source: Path, tmp_path: Path) -> None:
    assert run(source) == ExitCode.PASSED
    assert stages(tmp_path) == {"image": 0, "build": 0, "pytest": 0}
    assert run(source, "--until", "bench") == ExitCode.PASSED
    assert stages(tmp_path) == {"image": 0, "build": 0, "pytest": None, "bench": 0}


def test_a_last_stage_that_fails_or_leaves_no_results_is_no_success(source: Path) -> None:
    (source / "made.json").write_text("[]")
    assert run(source, "--until", "bench") == ExitCode.PRODUCT_FAILURE  # no results to read
    (source / "made.json").unlink()
    assert run(source, "--until", "bench") == ExitCode.PRODUCT_FAILURE


def test_an_unknown_last_stage(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(source, "--until", "benhc") == ExitCode.USAGE
    printed = capsys.readouterr().err
    assert printed.startswith("error: --until: got 'benhc', expected a stage of ")
    assert "Stages: build, pytest, bench; did you mean 'bench'?." in printed


def test_tests_are_not_on_request() -> None:
    stage = {"name": "t", "kind": "pytest", "command": "python -m pytest", "on_request": True}
    with pytest.raises(ValueError, match="false for a pytest stage: every run has its tests"):
        Config.model_validate(
            {"project": "a", "platforms": {"cpu": {}}, "stages": [stage]}, strict=False
        )


def test_a_bundle_for_the_host_has_no_images(source: Path, tmp_path: Path) -> None:
    project = load_project(source / "ci.yaml", {})
    request = new_request(project, ["cpu"], source_folder=source, results=tmp_path)
    (tmp_path / "parts").mkdir()
    packer = Packer(
        project=project,
        request=request,
        connect=lambda plan: pytest.fail(f"an engine of {plan.platform}"),
        wheels=(),
        progress=Progress(),
        folder=tmp_path / "parts",
    )
    packer.pack((), tmp_path / "sources.bundle")
    with open_bundle(tmp_path / "sources.bundle", ["cpu"]) as bundle:
        [plan] = bundle.plans(bundle.request(tmp_path, RunOptions(), None), tmp_path)
        assert plan.engine.kind is EngineKind.HOST
        assert (plan.source / "test_a.py").exists()
        docker = bundle.request(tmp_path, RunOptions(engine="docker"), None)
        expected = r"--bundle: cpu: got the docker engine, expected host: the bundle has no image"
        with pytest.raises(UsageError, match=expected):
            bundle.plans(docker, tmp_path)
    with (
        pytest.raises(UsageError, match="platform 'nvidia' is not in the bundle, which has cpu"),
        open_bundle(tmp_path / "sources.bundle", ["nvidia"]),
    ):
        pass
