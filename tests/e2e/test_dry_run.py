"""What ``--dry-run`` shows is what a run does."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from ci.engines.docker.engine import DockerEngine
from ci.run.dry_run import plan_document
from tests.e2e.benches import Bench
from tests.e2e.plans import python_stage

LOOK = "import json, os; print(json.dumps(dict(os.environ)))"


def test_stages_get_the_environment_that_is_shown(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INFINI_OPS_TORCH_OPS", "abs,add")
    monkeypatch.setenv("INFINI_CI_DB", "sqlite:///somewhere")
    stage = replace(python_stage("look", LOOK), environment={"A": "a 'b' $HOME `c` \\ !d"})
    plan = bench.plan(stage)
    document = plan_document(plan, bench.engine)
    assert not plan.results.exists()
    bench.run(plan)
    got = json.loads((plan.results / "look.log").read_text())
    shown = {**document.get("container", document)["environment"], **stage.environment}
    own = ("PATH", "TMPDIR")  # the environment's programs come first
    assert {name: got.get(name) for name in shown if name not in own} == {
        name: value for name, value in shown.items() if name not in own
    }
    assert ("INFINI_OPS_TORCH_OPS" in got) is (bench.engine.name == "host")
    assert "INFINI_CI_DB" not in got


@pytest.mark.docker
def test_the_container_has_the_options_that_are_shown(docker_bench: Bench) -> None:
    engine = docker_bench.engine
    assert isinstance(engine, DockerEngine)
    plan = docker_bench.plan(python_stage("look", "print('begun', flush=True)"))
    shown = plan_document(plan, engine)["container"]
    found: dict[str, Any] = {}

    def inspect() -> None:
        container = engine.client.containers.get(shown["name"])
        found.update(container.attrs)

    docker_bench.observer.reactions["begun"] = inspect
    docker_bench.run(plan)
    config, host = found["Config"], found["HostConfig"]
    assert config["Labels"].items() >= shown["labels"].items()
    assert config["User"] == shown["user"]
    assert {f"{name}={value}" for name, value in shown["environment"].items()} <= {*config["Env"]}
    assert host["PidsLimit"] == shown["pids_limit"]
    assert host["CapDrop"] == shown["cap_drop"]
    assert {name.removeprefix("CAP_") for name in host["CapAdd"]} == {*shown["cap_add"]}
    assert host["SecurityOpt"] == shown["security_opt"]
    assert host["Init"] is shown["init"]
