"""A Docker Engine reached by SSH: a real sshd of the test's own, on loopback."""

from __future__ import annotations

import getpass
import io
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

import pytest
from docker.client import DockerClient

from ci.engines.docker import link
from ci.engines.docker.remote import CONFIG_VARIABLE
from ci.engines.docker.wheelhouse import volume_name
from ci.engines.select import select_engine
from ci.errors import InfrastructureError
from ci.model.plan import EngineKind, EnginePlan
from tests.e2e.benches import Bench
from tests.e2e.plans import stage
from tests.e2e.test_engines import INSTALL, PYTEST, events

pytestmark = [pytest.mark.docker, pytest.mark.cut_line]

REPOSITORY = Path(__file__).parents[2]
LAB = EnginePlan(name="lab", kind=EngineKind.DOCKER, docker_host="ssh://lab")
PATIENCE_S = 30.0
SETTINGS = """\
ListenAddress 127.0.0.1
Port {port}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/user_key.pub
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
"""
CLIENT = """\
Host lab
  HostName 127.0.0.1
  Port {port}
  User {user}
  IdentityFile {folder}/user_key
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known_hosts
  StrictHostKeyChecking yes
"""


class Machine:
    """An sshd, and an ssh configuration that names it ``lab``."""

    def __init__(self, folder: Path) -> None:
        program = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
        if program is None:
            pytest.skip("no sshd: install openssh-server")
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)  # its service would make it
        self.folder, self._program = folder, program
        for key in ("host_key", "user_key"):
            command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / key)]
            subprocess.run(command, check=True)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        facts = {"port": self.port, "folder": folder, "user": getpass.getuser()}
        (folder / "sshd_config").write_text(SETTINGS.format_map(facts))
        self.config = folder / "config"
        self.config.write_text(CLIENT.format_map(facts))
        self.know(folder / "host_key.pub")
        self.start()

    def know(self, key: Path) -> None:
        known = f"[127.0.0.1]:{self.port} {key.read_text()}"
        (self.folder / "known_hosts").write_text(known)

    def start(self) -> None:
        command = [self._program, "-D", "-e", "-f", str(self.folder / "sshd_config")]
        self._sshd = subprocess.Popen(command, stderr=subprocess.PIPE)
        assert self._sshd.stderr is not None
        assert b"listening on 127.0.0.1" in self._sshd.stderr.readline()

    def connections(self) -> list[int]:
        """Return the processes of its connections; a process that has ended has no command line."""
        pid = self._sshd.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [int(child) for child in children if _runs(child)]

    def cut(self) -> None:
        for pid in self.connections():
            os.kill(pid, signal.SIGKILL)

    def stop(self) -> None:
        """End it with all its connections."""
        self.cut()
        self._sshd.kill()
        self._sshd.communicate()


def _runs(pid: str) -> bool:
    try:
        return bool(Path(f"/proc/{pid}/cmdline").read_bytes())
    except OSError:
        return False


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    folder = tmp_path / "machine"
    folder.mkdir()
    machine = Machine(folder)
    monkeypatch.setenv(CONFIG_VARIABLE, str(machine.config))
    with closing_with(machine.stop):
        yield machine


def closing_with(action: Callable[[], None]) -> closing[Any]:
    return closing(type("Closing", (), {"close": staticmethod(action)}))


@pytest.fixture
def lab(docker_bench: Bench, machine: Machine) -> Iterator[Bench]:  # noqa: ARG001 - it must run
    """The bench with an engine that is reached through the machine."""
    with closing(select_engine(LAB)) as docker_bench.engine:
        yield docker_bench


def outcomes(bench: Bench) -> list[object]:
    """What a run says, without what differs from run to run."""
    plan = bench.plan()
    ends = events(plan, "stage_finished")
    reports = map(json.loads, (plan.results / "pytest.jsonl").read_text().splitlines())
    tests = [(r["nodeid"], r["when"], r["outcome"]) for r in reports if "when" in r]
    return [[(end["stage"], end["exit_code"]) for end in ends], tests]


def test_run_is_the_same_as_on_this_machine(lab: Bench, tmp_path: Path) -> None:
    plan = lab.plan(INSTALL, PYTEST, artifacts={"sources": "src"})
    facts = lab.run(plan)
    (tmp_path / "here").mkdir()
    with closing(select_engine(EnginePlan(name="docker", kind=EngineKind.DOCKER))) as local:
        here = Bench(local, tmp_path / "here")
        local_facts = here.run(here.plan(INSTALL, PYTEST, artifacts={"sources": "src"}))
        assert lab.engine.machine() == local.machine()  # one engine, by two ways
    assert outcomes(lab) == outcomes(here)
    assert (facts.exit_code, facts.notes) == (local_facts.exit_code, local_facts.notes)
    files, local_files = (
        sorted(path.name for path in folder.iterdir())
        for folder in (plan.results, tmp_path / "here" / "results")
    )
    assert files == local_files


def test_lines_arrive_while_the_stage_runs(lab: Bench) -> None:
    waiting = "echo ready; until [ -e /tmp/seen ]; do sleep 0.1; done; echo went on"
    plan = lab.plan(stage("build", "sh", "-c", waiting, timeout_s=PATIENCE_S))

    def show() -> None:
        with closing(DockerClient.from_env()) as client:
            client.containers.get(plan.container.name).exec_run(["touch", "/tmp/seen"])  # noqa: S108

    lab.observer.reactions["ready"] = show
    assert lab.run(plan).exit_code == 0
    assert (plan.results / "build.log").read_text() == "ready\nwent on\n"


def test_wheels_are_copied_to_the_machine(lab: Bench) -> None:
    folder = lab.folder / "wheels"
    folder.mkdir()
    (folder / f"{lab.run_id}.whl").write_text("wheel")
    plan = lab.plan(stage("show", "ls", "/opt/infini-ci/wheels"))
    plan = replace(plan, network=replace(plan.network, wheelhouse=folder))
    with closing(DockerClient.from_env()) as client:
        try:
            assert lab.run(plan).exit_code == 0
        finally:
            client.volumes.get(volume_name(folder)).remove()
    assert (plan.results / "show.log").read_text() == f"{lab.run_id}.whl\n"


def test_a_context_of_the_docker_command(
    docker_bench: Bench, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(machine.folder))
    create = ["docker", "context", "create", "pool", "--docker", "host=ssh://lab"]
    subprocess.run(create, check=True, capture_output=True)
    plan = docker_bench.plan(stage("build", "true"))
    with closing(
        select_engine(EnginePlan(name="x", kind=EngineKind.DOCKER, context="pool"))
    ) as engine:
        docker_bench.engine = engine
        assert machine.connections()
        assert docker_bench.run(plan).exit_code == 0
        described: Mapping[str, Any] = engine.describe(plan)
        assert described["engine_variables"]["DOCKER_CONTEXT"] == "pool"


def slow(bench: Bench) -> list[Any]:
    program = "echo ready; sleep 2; echo ended"
    return [bench.plan(stage("build", "sh", "-c", program)), ["ready", "ended"]]


def test_cut_connection_is_made_again(lab: Bench, machine: Machine) -> None:
    plan, lines = slow(lab)
    lab.observer.reactions["ready"] = machine.cut
    facts = lab.run(plan)
    assert (facts.exit_code, facts.lost) == (0, False)
    assert lab.observer.printed == lines  # each once
    printed = " ".join(lab.observer.messages)
    assert re.search(
        r"lost the connection to the Docker Engine at ssh://lab: .*; trying again for 60 s", printed
    )
    assert "reached the Docker Engine at ssh://lab again" in printed


def test_run_on_an_unreachable_machine_can_be_adopted(
    lab: Bench, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "RECONNECT_S", 0.1)
    plan, lines = slow(lab)
    lab.observer.reactions["ready"] = machine.stop
    facts = lab.run(plan)
    assert (facts.lost, facts.exit_code) == (True, None)
    assert any("--resume may find it again" in note for note in facts.notes)
    lab.observer.reactions.clear()
    lab.observer.events.clear()
    machine.start()
    with closing(select_engine(LAB)) as again:
        adopted = again.resume(plan, lab.observer)
    assert adopted is not None
    assert (adopted.lost, adopted.exit_code) == (False, 0)
    assert lab.observer.printed == lines


def other_host_key(machine: Machine) -> str:
    machine.know(machine.folder / "user_key.pub")
    return "ssh://lab"


def other_user_key(machine: Machine) -> str:
    shutil.copy(machine.folder / "host_key.pub", machine.folder / "user_key.pub")
    return "ssh://lab"


def other_port(_machine: Machine) -> str:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return f"ssh://lab:{free.getsockname()[1]}"


def no_socket(_machine: Machine) -> str:
    return "ssh://lab/nowhere.sock"


def deaf_socket(machine: Machine) -> str:
    path = machine.folder / "deaf.sock"
    with socket.socket(socket.AF_UNIX) as nobody_listens:
        nobody_listens.bind(str(path))
    return f"ssh://lab{path}"


@pytest.mark.parametrize(
    ("spoil", "message", "remedy"),
    [
        (other_host_key, "Host key verification failed", "add it to known_hosts"),
        (other_user_key, "Permission denied", "authorized_keys"),
        (other_port, "Connection refused", "whether sshd runs there"),
        (no_socket, "there is no socket /nowhere.sock on that machine", "start an engine there"),
        (deaf_socket, "no Docker Engine answers at ssh://lab/.*deaf", "whether an engine runs"),
    ],
)
def test_machine_that_cannot_be_reached(
    machine: Machine, spoil: Callable[[Machine], str], message: str, remedy: str
) -> None:
    plan = replace(LAB, docker_host=spoil(machine))
    with pytest.raises(InfrastructureError, match=message) as error:
        select_engine(plan)
    assert error.value.remedy is not None
    assert remedy in error.value.remedy


OWNER = """
import os, signal
from ci.engines.select import select_engine
from ci.model.plan import EngineKind, EnginePlan

engine = select_engine(EnginePlan(name="lab", kind=EngineKind.DOCKER, docker_host="ssh://lab"))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.usefixtures("docker_bench")
def test_ssh_ends_with_a_killed_owner(machine: Machine) -> None:
    with TemporaryDirectory(dir="/tmp") as folder:  # a short path, as it is to hold a socket
        environment = {**os.environ, "TMPDIR": folder}
        dead = subprocess.run(
            [sys.executable, "-c", OWNER], cwd=REPOSITORY, env=environment, check=False
        )
    assert dead.returncode == -signal.SIGKILL
    deadline = monotonic() + PATIENCE_S
    while machine.connections() and monotonic() < deadline:
        pass
    assert not machine.connections()


def foreign_image(tag: str) -> bytes:
    """Make an image for other processors, as `docker save` writes it."""
    layer = io.BytesIO()
    tarfile.open(fileobj=layer, mode="w").close()
    config = {"architecture": "riscv64", "os": "linux", "config": {}}
    config["rootfs"] = {"type": "layers", "diff_ids": []}
    manifest = [{"Config": "config.json", "RepoTags": [tag], "Layers": []}]
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as file:
        for name, content in (("config.json", config), ("manifest.json", manifest)):
            data = json.dumps(content).encode()
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            file.addfile(entry, io.BytesIO(data))
    return archive.getvalue()


def test_image_for_other_processors(docker_bench: Bench) -> None:
    tag = f"infini-ci/engine-tests:foreign-{uuid.uuid4().hex[:8]}"
    plan = docker_bench.plan(stage("build", "true"), dockerfile=f"FROM scratch\n# {tag}\n")
    plan = replace(plan, image=replace(plan.needed_image, base_image=tag))
    with closing(DockerClient.from_env()) as client:
        client.images.load(foreign_image(tag))
        try:
            wrong = f"image {tag} is for riscv64, expected .*, the architecture of the engine"
            with pytest.raises(InfrastructureError, match=wrong) as error:
                docker_bench.engine.prepare(plan, docker_bench.observer)
        finally:
            client.images.remove(tag)
    assert error.value.remedy is not None
    assert "another engine" in error.value.remedy


def test_full_disk_of_the_engine(docker_bench: Bench) -> None:
    recipe = "ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\nRUN cp /proc/version /dev/full\n"
    plan = docker_bench.plan(stage("build", "true"), dockerfile=recipe)
    full = r"the disk of the Docker Engine at unix:\S+ is full: image .* cannot be built"
    with pytest.raises(InfrastructureError, match=full) as error:
        docker_bench.engine.prepare(plan, docker_bench.observer)
    assert error.value.remedy is not None
    assert "python -m ci gc" in error.value.remedy
