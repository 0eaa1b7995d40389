"""A second engine, which a fault may stop, fill or take the power from.

It lives in namespaces of its own: its processes end with their init, its mounts with them, and it
sees no network device of the machine. (An engine without a bridge removes ``docker0`` otherwise.)
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from ci.facts.sentences import on_harness, on_stages, on_tests
from ci.facts.sentences.on_harness import Source
from ci.facts.sentences.on_tests import Reporter
from ci.model.verdicts import Harness, Product
from tools.faults.disks import fill, limited
from tools.faults.findings import (
    AGENT_TERMINATED,
    ANY,
    CUT,
    GAP,
    LAST_LINES,
    SECOND_RUNNING,
    agent_died,
)
from tools.faults.model import KILLED, Fault, Left
from tools.faults.running import FaultRun

KIND = "Restart of the engine and of the machine"
START_S = 60.0  # most take 1 s
CGROUP = "infini-faults"  # of its containers; empty groups outlive a hard stop
DISK_BYTES = 2 << 30  # the image takes 0.6 GB
DAEMON = (
    "dockerd --data-root {folder}/data --exec-root {folder}/run --pidfile {folder}/pid"
    " --host unix://{folder}/engine.sock --bridge=none --iptables=false --ip6tables=false"
    f" --cgroup-parent=/{CGROUP} --log-level=error"
)
# The first process of the namespace; it also waits for processes without a parent.
INIT = "ip link set lo up; {daemon} & trap 'kill $!; wait $!' TERM; wait"
NAMESPACES = ("unshare", "--net", "--pid", "--mount", "--fork", "--mount-proc", "--kill-child")


class OwnEngine:
    """An engine with its own data folder, on a disk of limited size."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="infini-faults-engine-"))
        self.socket = str(self.folder / "engine.sock")
        self.data = self.folder / "data"
        self.data.mkdir()
        self._disk = limited(self.data, DISK_BYTES)
        self._disk.__enter__()
        self._process: subprocess.Popen[bytes] | None = None

    def docker(self, *arguments: str) -> bool:
        """Run the docker command on this engine; return whether it succeeded."""
        command = ("docker", "--host", f"unix://{self.socket}", *arguments)
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def start(self) -> None:
        """Start the engine, and wait for its first answer."""
        (self.folder / "pid").unlink(missing_ok=True)
        shutil.rmtree(self.folder / "run", ignore_errors=True)  # as the start of a machine does
        daemon = DAEMON.format(folder=self.folder)
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*NAMESPACES, "sh", "-c", INIT.format(daemon=daemon)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_S
        while not self.docker("version"):
            if self._process.poll() is not None or time.monotonic() > deadline:
                shown = (self.folder / "log").read_text()[-500:]
                end_own_engine()
                pytest.skip(f"no second engine: {shown}")
            time.sleep(0.1)

    def load(self, image: str) -> None:
        """Copy an image of the machine's engine."""
        if not self.docker("image", "inspect", image):
            with subprocess.Popen(["docker", "save", image], stdout=subprocess.PIPE) as saved:
                command = ("docker", "--host", f"unix://{self.socket}", "load")
                subprocess.run(command, stdin=saved.stdout, check=True, capture_output=True)

    def stop(self) -> None:
        """Stop the engine as a service manager does; it ends its containers."""
        self._signal(signal.SIGTERM)

    def power_off(self) -> None:
        """End all processes of the engine and its containers at once."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is None or self._process.poll() is not None:
            return
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        for child in children.read_text().split():
            with suppress(ProcessLookupError):
                os.kill(int(child), number)
        self._process.wait(START_S)

    def end(self) -> None:
        """Remove the engine with everything that it has."""
        self.power_off()
        self._disk.__exit__(None, None, None)
        shutil.rmtree(self.folder, ignore_errors=True)
        for group in Path("/sys/fs/cgroup").glob(f"*/{CGROUP}"):
            for path in [*sorted(group.rglob("*/"), reverse=True), group]:
                with suppress(OSError):  # another process's engine uses it
                    path.rmdir()


_engines: list[OwnEngine] = []  # at most one, which takes 12 s to make


def end_own_engine() -> None:
    """Remove this process's engine, if a fault needed one."""
    while _engines:
        _engines.pop().end()


@contextmanager
def own_engine(run: FaultRun) -> Iterator[OwnEngine]:
    """Let a run use the second engine; skip if this machine cannot have one."""
    if os.geteuid() != 0 or shutil.which("dockerd") is None:
        pytest.skip("a second engine needs root and dockerd")
    if not _engines:
        _engines.append(OwnEngine())
        _engines[0].start()
    engine = _engines[0]
    engine.load(run.image)
    run.engine = engine.socket
    run.environment["DOCKER_HOST"] = f"unix://{engine.socket}"
    yield engine
    if not engine.docker("version"):
        engine.start()


def restart(down: Callable[[OwnEngine], None]) -> Callable[[FaultRun, str], None]:
    """Return the action that takes the engine down and starts it again."""

    def act(run: FaultRun, platform: str) -> None:
        run.wait_for(platform)
        down(run.setting)
        run.setting.start()

    return act


def reboot(run: FaultRun, platform: str) -> None:
    """Take the power from the orchestrator and the engine, and start the engine again."""
    run.wait_for(platform)
    run.processes[0].kill()
    restart(OwnEngine.power_off)(run, platform)


def fill_disk(run: FaultRun, platform: str) -> None:
    run.wait_for(platform)
    fill(run.setting.data)


HANGS = {
    "test_it.py": "import time\ndef test_a(): pass\ndef test_b(): print('begun'); time.sleep(600)\n"
}
SLOW = {"test_it.py": "import time\ndef test_a(): print('begun'); time.sleep(4)\n"}

FAULTS = (
    Fault(
        name="the engine is stopped and started while the tests run",
        kind=KIND,
        files=HANGS,
        around=own_engine,
        act=restart(OwnEngine.stop),
        product=Product.INCOMPLETE,
        harness=Harness.INFRASTRUCTURE,
        evidence=(CUT, AGENT_TERMINATED, SECOND_RUNNING),
        exits=(3,),
        results="1 passed",
        limit_s=90.0,
    ),
    Fault(
        name="the engine's machine loses its power and starts again while the tests run",
        kind=KIND,
        files=HANGS,
        around=own_engine,
        act=restart(OwnEngine.power_off),
        product=Product.INCOMPLETE,
        harness=Harness.INFRASTRUCTURE,
        evidence=(CUT, agent_died(255), SECOND_RUNNING),
        exits=(3,),
        results="1 passed",
        limit_s=90.0,
    ),
    Fault(
        name="the machine of orchestrator and engine loses its power; `--resume` after its start",
        kind=KIND,
        files=HANGS,
        around=own_engine,
        act=reboot,
        product=Product.INCOMPLETE,
        harness=Harness.INFRASTRUCTURE,
        evidence=(CUT, agent_died(255), SECOND_RUNNING),
        exits=(KILLED, 3),
        results="1 passed",
        left=Left.CONTAINER,
        limit_s=90.0,
    ),
    Fault(
        name="the disk of the engine is full while the tests run",
        kind=KIND,
        files={
            "test_it.py": "import time\ndef test_a(): print('begun'); time.sleep(2)\n"
            "def test_b(tmp_path): (tmp_path / 'x').write_bytes(bytes(1 << 20))\n"
        },
        around=own_engine,
        act=fill_disk,
        product=Product.INCOMPLETE,
        harness=Harness.INFRASTRUCTURE,
        evidence=(
            (
                CUT,
                on_tests.bad_exit(Reporter.PYTEST, 1, None, GAP),
                LAST_LINES,
            ),  # who met it first
            (on_stages.disk_full(None), on_stages.disk_full(GAP)),
            tuple(on_harness.unreadable_lines(it, lines, 0) for it in Source for lines in (1, ANY)),
        ),
        exits=(3,),
        results="1 passed",
        limit_s=90.0,
    ),
)
