"""The plan that ``run --dry-run`` prints."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ci import cli
from ci.engines.host.engine import HostEngine
from ci.engines.ray.engine import RayEngine
from ci.errors import ExitCode
from ci.model.plan import EngineKind, EnginePlan, ImageArchive, RunPlan
from ci.protocol.job import Column
from ci.protocol.stage_kind import StageKind
from ci.run.dry_run import WIDTH, plan_document, plan_text
from tests.ci.agent_job import stage_plan
from tests.ci.made_plans import device_plan

# It describes a container, as the Docker engine does, without a connection.
POOL = RayEngine(EnginePlan(name="lab", kind=EngineKind.RAY))
SECRET = "https://me:secret@index.example/simple"  # noqa: S105


@pytest.fixture
def plan(tmp_path: Path) -> RunPlan:
    """With one command after the other, the last one without a network."""
    last = {"kind": StageKind.PYTEST, "column": Column.PYTEST, "isolated": True, "shards": 2}
    tests = stage_plan("pytest", "python", "-m", "pytest", "a b", environment={"A": ""}, **last)
    stages = (stage_plan("build", "make", "-j2"), tests)
    return replace(device_plan(tmp_path, "metax"), stages=stages)


def test_a_plan_as_text(plan: RunPlan) -> None:
    image = replace(plan.needed_image, tag="infini-ci/metax:0", build_arguments={"WORD": "x"})
    shown = plan_text(plan_document(replace(plan, image=image), POOL))
    assert shown.startswith("# MetaX, ray engine\nplatform: metax\ntrust: branch\n")
    assert "\nimage: infini-ci/metax:0\nbase_image: base:1\nbuild_arguments:\n  WORD: x\n" in shown
    assert (
        "\n  pids_limit: 4096\n  mem_limit: 9/10 of the memory of the engine's machine\n" in shown
    )
    assert '\n  ulimits: {"Name": "memlock", "Soft": -1, "Hard": -1}, {"Name": "stack",' in shown
    assert shown.endswith(
        "stages:\n"
        "  build:\n"
        "    kind: command\n"
        "    command: make -j2\n"
        "    timeout_s: 60.0\n"
        "    column: none\n"
        "    shards: 1\n"
        "    network: full\n"
        "  pytest:\n"
        "    kind: pytest\n"
        "    command: python -m pytest 'a b'\n"
        "    environment:\n"
        "      A:\n"
        "    timeout_s: 60.0\n"
        "    column: pytest\n"
        "    shards: 2\n"
        "    network: none"
    )


def test_only_commands_and_long_words_exceed_the_width(plan: RunPlan) -> None:
    long = stage_plan("long", *["word"] * 30, environment={"B": "word " * 30, "C": "w" * 100})
    text = "print(1)\nprint(2)\n"
    plan = replace(plan, stages=(long, stage_plan("program", "python", "-c", text)))
    lines = plan_text(plan_document(plan, POOL)).splitlines()
    assert f"    command: {'word ' * 30}".rstrip() in lines
    assert f"        {'w' * 100}" in lines
    assert [line for line in lines if "print(" in line or line.strip() == "'"] == [
        "    command: python -c 'print(1)",
        "      print(2)",
        "      '",
    ]
    others = [line for line in lines if "command:" not in line and len(line.split()) > 1]
    assert max(map(len, others)) <= WIDTH


def test_an_engine_states_what_it_cannot_do(plan: RunPlan) -> None:
    def networks(document: Mapping[str, Any]) -> list[str]:
        return [it["network"] for it in document["stages"]]

    assert networks(plan_document(plan, POOL)) == ["full", "none"]
    on_host = plan_document(plan, HostEngine())
    assert networks(on_host) == ["full", "full"]
    assert "container" not in on_host
    assert on_host["requirements"] == str(plan.host.requirements)


def test_a_host_of_a_pool_may_have_no_container(plan: RunPlan) -> None:
    node = EnginePlan(name="lab", kind=EngineKind.RAY, node_engine=EngineKind.HOST)
    document = plan_document(plan, RayEngine(node))
    assert document["requirements"] == str(plan.host.requirements)
    assert "container" not in document


@pytest.mark.parametrize("engine", [POOL, HostEngine()])
def test_no_password_is_shown(
    plan: RunPlan, engine: RayEngine | HostEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", SECRET)
    monkeypatch.setenv("DEPLOY_TOKEN", "secret-token")
    fetch = stage_plan("fetch", "fetch", SECRET, environment={"URL": SECRET}, credentials=True)
    network = replace(
        plan.network,
        environment={"PIP_INDEX_URL": SECRET},
        host_environment={"PIP_INDEX_URL": SECRET},
        credentials={"NETRC": "machine index.example login me password secret", "A": SECRET},
    )
    image = replace(plan.needed_image, build_arguments={"PIP_INDEX_URL": SECRET})
    plan = replace(plan, stages=(fetch,), network=network, image=image)
    document = plan_document(plan, engine)
    for shown in (plan_text(document), json.dumps(document)):
        assert "secret" not in shown
        assert "https://***@index.example/simple" in shown
    assert document["credentials"] == ["NETRC", "A"]
    assert document["stages"][0]["credentials"]


def test_an_image_of_a_bundle(plan: RunPlan) -> None:
    held = ImageArchive(bundle=Path("/my bundle"), member="i", id="sha256:1", layers=(), size=1)
    image = replace(plan.needed_image, archive=held)
    assert "\nbundle: /my bundle\n" in plan_text(plan_document(replace(plan, image=image), POOL))


CONFIG = """
project: tiny
platforms: {cpu: {}}
stages:
  - {name: build, command: make all}
  - {name: pytest, command: python -m pytest, kind: pytest}
"""


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("INFINI_CI_SITE", raising=False)
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "ci.yaml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    return folder


def test_a_plan_as_json(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", "cpu", "--engine=host", f"--source={source}", "--dry-run", "--format=json"]
    assert cli.main(words) == ExitCode.PASSED
    [cpu] = json.loads(capsys.readouterr().out)["platforms"]
    assert (cpu["platform"], cpu["engine"], cpu["source"]) == ("cpu", "host", str(source))
    commands = {it["name"]: it["command"] for it in cpu["stages"]}
    assert commands == {"build": ["make", "all"], "pytest": ["python", "-m", "pytest"]}
    assert not Path("results").exists()


def test_there_is_no_other_form(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", "cpu", f"--source={source}", "--dry-run", "--format=markdown"]
    assert cli.main(words) == ExitCode.USAGE
    assert (
        "--format: got markdown, expected table or json with --dry-run" in capsys.readouterr().err
    )
