"""What ``--dry-run`` prints is a script that does what a run does."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from benches import Bench
from plans import OFFLINE_BASE, python_stage, stage

from ci.model.plan import ImageArchive, NetworkPlan, RunPlan
from ci.plan import source
from ci.protocol.job import StageKind

LOOK = """
import json, os
from pathlib import Path
files = {str(path): path.stat().st_mode for path in Path().rglob("*") if path.is_file()}
names = ("GREETING", "PIP_INDEX_URL", "INFINI_CI_DB", "PYTHONPATH", "INFINI_OPS_TORCH_OPS", "A")
print(json.dumps([files, [os.environ.get(name) for name in names]], sort_keys=True))
"""
TESTS = stage(
    "pytest",
    *("python", "-m", "pytest", "tests"),
    kind=StageKind.PYTEST,
    environment={"PYTHONPATH": "src", "A": "a 'b' $HOME `c` \\ !d"},
)


def run_as_file(script: str, folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """Run it as a user would, in a shell that has few variables of this one."""
    path = folder / "run me.sh"
    path.write_text(script + "\n")
    kept = ("PATH", "HOME", "LANG", "DOCKER_HOST", "DOCKER_CONFIG", "DOCKER_CONTEXT")
    environment = {name: os.environ[name] for name in kept if name in os.environ}
    return subprocess.run(
        ["sh", "-eu", str(path)],
        cwd=folder,
        env={**environment, **more},
        capture_output=True,
        text=True,
        check=False,
    )


def outcome(plan: RunPlan) -> list[Any]:
    """What must be the same, however a run came about."""
    lines = (plan.results / "events.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines if line]
    ended = [
        (event["stage"], event["exit_code"])
        for event in events
        if event["event"] == "stage_finished"
    ]
    reports = (plan.results / "pytest.jsonl").read_text().splitlines()
    tests = [(report.get("nodeid"), report.get("outcome")) for report in map(json.loads, reports)]
    looked = json.loads((plan.results / "look.log").read_text())
    files = sorted(path.name for path in plan.results.iterdir())
    own = {"image.log", "engine-events.jsonl"}  # of a run
    return [ended, tests, looked, [name for name in files if name not in own]]


def test_the_script_does_what_a_run_does(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFINI_OPS_TORCH_OPS", "abs,add")
    monkeypatch.setenv("INFINI_CI_DB", "sqlite:///somewhere")
    plan = bench.plan(
        python_stage("look", LOOK),
        TESTS,
        requirements="pytest\npytest-reportlog\n",
        artifacts={"sources": "src"},
    )
    folder = plan.source
    (folder / "a file's name").write_text("untracked")
    (folder / "tool").write_text("#!/bin/sh\n")
    (folder / "tool").chmod(0o755)
    (folder / ".gitignore").write_text("ignored\n")
    (folder / "ignored").write_text("ignored")
    (folder / "gone").write_text("tracked, and gone")
    subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)
    subprocess.run(["git", "add", "gone", "tests", "src"], cwd=folder, check=True)
    (folder / "gone").unlink()
    bench.run(plan)
    by_hand = replace(plan, results=bench.folder / "by hand" / "cpu")
    script = bench.engine.describe(by_hand)
    assert not by_hand.results.parent.exists()
    done = run_as_file(script, bench.folder, PYTHONPATH="/nowhere", INFINI_CI_DB="sqlite:///x")
    assert done.returncode == 1, done.stderr  # as a test fails
    found = outcome(by_hand)
    assert found == outcome(plan)
    assert found[0] == [("look", 0), ("pytest", 1)]
    names, variables = found[2]
    assert {"a file's name", "tool", "src/tiny/__init__.py"} <= names.keys()
    assert not {"ignored", "gone"} & names.keys()
    on_host = bench.engine.name == "host"
    greeting, _, store, python_path, selected, _ = variables
    assert (greeting, store, python_path) == ("good morning", None, None)
    assert selected == ("abs,add" if on_host else None)


@pytest.mark.docker
def test_the_script_builds_the_image(docker_bench: Bench) -> None:
    name = f"infini-ci/engine-tests:{docker_bench.run_id}"
    recipe = "ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\nARG WORD\nCOPY --chown=1000 'it''s' /made\n"
    context = {
        "Dockerfile": recipe.replace("'it''s'", "tool odd /made/ \n#").encode(),
        "tool": b"#!/bin/sh\ncat << END\nEND\necho END\n",
        "odd": b"\xff\r\n without an end",
    }
    plan = docker_bench.plan(stage("run", "/made/tool"), stage("see", "cat", "/made/odd"))
    image = replace(plan.needed_image, tag=name, context=context, base_image=OFFLINE_BASE)
    plan = replace(plan, image=image)
    done = run_as_file(docker_bench.engine.describe(plan), docker_bench.folder)
    try:
        assert done.returncode == 0, done.stderr
        assert (plan.results / "run.log").read_text() == "END\n"
        assert "without an end" in (plan.results / "see.log").read_text(errors="replace")
        assert docker_bench.engine.images.build_reason(plan) is None  # a run would take the image
    finally:
        docker_bench.engine.client.images.remove(name)


@pytest.mark.docker
def test_the_script_disconnects_the_container(docker_bench: Bench) -> None:
    show = "import socket; print([name for _, name in socket.if_nameindex()]); exit(3)"
    plan = docker_bench.plan(replace(python_stage("show", show), isolated=True))
    docker_bench.engine.prepare(plan, docker_bench.observer)
    done = run_as_file(docker_bench.engine.describe(plan), docker_bench.folder)
    assert done.returncode == 1, done.stderr  # as a stage fails
    assert "'eth0'" not in (plan.results / "show.log").read_text()


@pytest.mark.docker
def test_it_can_be_pasted(docker_bench: Bench) -> None:
    """Into an interactive shell, which is there afterwards; what fails ends the script only."""
    odd = "print('it!s', '!!', \"$HOME\")"
    plan = docker_bench.plan(python_stage("odd", odd), stage("fail", "false"), stage("no", "true"))
    script = docker_bench.engine.describe(plan)
    ours, theirs = pty.openpty()
    shell = subprocess.Popen(
        ["bash", "--norc", "--noprofile", "-i"],
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={"PATH": os.environ["PATH"], "HOME": str(docker_bench.folder), "TERM": "dumb"},
        start_new_session=True,
    )
    os.close(theirs)
    pasted = f"{script}\necho after: $?\nexit\n".encode()
    while pasted:
        pasted = pasted[os.write(ours, pasted[:1024]) :]
    printed = shell.communicate(timeout=120)[0].decode()
    os.close(ours)
    assert "after: 1" in printed.splitlines(), printed
    assert (plan.results / "odd.log").read_text() == "it!s !! $HOME\n"
    assert not (plan.results / "no.log").exists()


PLANT = """
import os
os.symlink("/etc/hostname", "/opt/infini-ci/results/leak.log")
"""


@pytest.mark.docker
@pytest.mark.usefixtures("one_user")
def test_no_link_comes_out_of_a_container(docker_bench: Bench) -> None:
    plan = docker_bench.plan(python_stage("plant", PLANT))
    done = run_as_file(docker_bench.engine.describe(plan), docker_bench.folder)
    assert done.returncode == 0, done.stderr
    assert "not copied from the container's results: 1 link: results/leak.log\n" in done.stderr
    assert (plan.results / "events.jsonl").is_file()
    assert not any(path.is_symlink() for path in plan.results.rglob("*"))


def test_passwords_are_asked_for(bench: Bench) -> None:
    secret = {"PIP_INDEX_URL": "https://me:secret@index.example/simple"}
    plan = bench.plan(stage("build", "true"))
    network = replace(
        plan.network,
        environment={**plan.network.environment, **secret},
        host_environment={**plan.network.host_environment, **secret},
    )
    image = replace(plan.needed_image, build_arguments=secret)
    script = bench.engine.describe(replace(plan, network=network, image=image))
    assert "secret" not in script
    assert "set it to https://***@index.example/simple\n" in script
    done = run_as_file(script, bench.folder)
    assert done.returncode == 2
    assert "PIP_INDEX_URL: set it, with its password" in done.stderr
    variables = [line for line in script.splitlines() if line.startswith("export PIP_INDEX_URL")]
    shown = subprocess.run(
        ["sh", "-euc", "\n".join([*variables, 'echo "$PIP_INDEX_URL"'])],
        env=secret,
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout.strip() == secret["PIP_INDEX_URL"]


@pytest.mark.docker
def test_passwords_go_into_a_file(docker_bench: Bench) -> None:
    netrc = "machine index.example login me password secret"
    look = "import os; print(os.environ['A_PROXY'], open(os.environ['NETRC']).read().strip())"
    stages = (python_stage("look", look), python_stage("not", "import os; os.environ['NETRC']"))
    plan = docker_bench.plan(replace(stages[0], credentials=True), stages[1])
    credentials = {"NETRC": netrc, "A_PROXY": "http://me:secret@proxy.example"}
    plan = replace(plan, network=replace(plan.network, credentials=credentials))
    script = docker_bench.engine.describe(plan)
    assert "secret" not in script
    assert "#   machine index.example login me password ***\n" in script
    done = run_as_file(script, docker_bench.folder, A_PROXY=credentials["A_PROXY"])
    assert "INFINI_CI_NETRC: set it, with its passwords" in done.stderr
    given = {"A_PROXY": credentials["A_PROXY"], "INFINI_CI_NETRC": netrc}
    done = run_as_file(script, docker_bench.folder, **given)
    assert done.returncode == 1, done.stderr  # the second stage has no such variable
    assert (plan.results / "look.log").read_text() == f"{credentials['A_PROXY']} {netrc}\n"
    assert "KeyError: 'NETRC'" in (plan.results / "not.log").read_text()


def test_a_password_elsewhere_is_named(host_bench: Bench) -> None:
    plan = host_bench.plan(stage("build", "fetch", "https://me:secret@files.example/"))
    script = host_bench.engine.describe(plan)
    assert "secret" not in script
    assert "# *** below hides a password: insert it before you run this script\n" in script
    assert "fetch https://***@files.example/\n" in script


def test_a_script_that_is_ended_cleans_up(host_bench: Bench) -> None:
    script = host_bench.engine.describe(host_bench.plan(stage("build", "true")))
    broken = script.replace("-m virtualenv", "-m no_such_module")
    assert run_as_file(broken, host_bench.folder).returncode == 1


@pytest.mark.docker
def test_sources_and_wheels_of_a_bundle(docker_bench: Bench) -> None:
    look = "import os; print(os.listdir('/opt/infini-ci/wheels'), os.listdir())"
    plan = docker_bench.plan(python_stage("look", look))
    image = docker_bench.engine.prepare(plan, docker_bench.observer)
    packed = docker_bench.folder / "packed"
    (packed / "wheels" / "cpu").mkdir(parents=True)
    (packed / "wheels" / "cpu" / "tiny-1.whl").touch()
    with (packed / "source.tar").open("wb") as archive:
        source.write_archive(plan.source, archive)
    bundle = docker_bench.folder / "my bundle"
    with tarfile.open(bundle, "w") as members:
        members.add(packed, "bundle")
    held = ImageArchive(bundle=bundle, member="bundle/i", id=str(image.digest), layers=(), size=1)
    gone = docker_bench.folder / "gone"  # as what a dry run unpacks
    plan = replace(
        plan,
        source=gone,
        image=replace(plan.needed_image, archive=held),
        network=NetworkPlan(environment={}, wheels=gone),
    )
    done = run_as_file(docker_bench.engine.describe(plan), docker_bench.folder)
    assert done.returncode == 0, done.stderr
    looked = (plan.results / "look.log").read_text()
    assert looked.startswith("['tiny-1.whl'] [")
    assert "'pyproject.toml'" in looked
