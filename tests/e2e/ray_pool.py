"""A Ray cluster of several machines on this one: each host has a network namespace of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Any

PATIENCE_S = 180.0  # for a node to start, on a machine that does much else
POLL_S = 0.2
MEMORY = "100000000"  # bytes of Ray's object store
VARIABLES = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DISABLE_IMPORT_WARNING": "1"}
COMMON = (
    f"--object-store-memory={MEMORY}",
    "--disable-usage-stats",
    "--include-log-monitor=false",
    "--block",
)
# No child of this process: a test may wait for all of those.
START = 'log=$1; shift; "$@" >"$log" 2>&1 & echo $!'


class Node:
    """A process tree of ``ray start --block``."""

    def __init__(self, command: list[str], log: Path, environment: Mapping[str, str]) -> None:
        started = subprocess.run(
            ["sh", "-c", START, "sh", str(log), *command],
            env={**os.environ, **VARIABLES, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
            start_new_session=True,
        )
        self.pid = int(started.stdout)
        deadline = monotonic() + PATIENCE_S
        while b"Ray runtime started" not in log.read_bytes():
            if not self.runs() or monotonic() > deadline:
                raise RuntimeError(log.read_text())
            sleep(POLL_S)

    def runs(self) -> bool:
        try:
            return bool(Path(f"/proc/{self.pid}/cmdline").read_bytes())
        except OSError:
            return False

    def wait(self) -> None:
        """Wait until it has ended."""
        deadline = monotonic() + PATIENCE_S
        while self.runs():
            assert monotonic() < deadline
            sleep(POLL_S)

    def children(self, word: str) -> list[int]:
        """Return the processes below this one whose command line has a word."""
        found = []
        below = [self.pid]
        while below:
            pid = below.pop()
            with suppress(OSError):
                below += map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
                if word in Path(f"/proc/{pid}/cmdline").read_text():
                    found.append(pid)
        return found

    def kill(self) -> None:
        """Kill all of its processes at once, as the loss of the machine does."""
        for pid in self.children(""):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.wait()


class RayPool:
    """A head on this machine, and hosts behind a bridge."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.key = uuid.uuid4().hex[:4]
        number = int(self.key, 16)
        self.subnet = f"10.{200 + number % 50}.{number // 50 % 256}"
        self._undo = ExitStack()
        self.nodes: dict[str, Node] = {}
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]
        # The path of a socket has at most 107 bytes.
        self.temporary = Path(f"/tmp/infini-ray-{self.key}")  # noqa: S108
        self._undo.callback(shutil.rmtree, self.temporary, ignore_errors=True)
        self._ip("link", "add", self.bridge, "type", "bridge")
        self._undo.callback(self._ip, "link", "del", self.bridge)
        self._ip("addr", "add", f"{self.subnet}.1/24", "dev", self.bridge)
        self._ip("link", "set", self.bridge, "up")
        self.start_head()

    @property
    def bridge(self) -> str:
        return f"ray{self.key}"

    @property
    def address(self) -> str:
        return f"{self.subnet}.1:{self.port}"

    def start_head(self) -> None:
        """Start the head, on which no platform runs, as this machine's own node."""
        command = ["ray", "start", "--head", f"--port={self.port}", "--num-cpus=0", *COMMON]
        command += ["--include-dashboard=false", f"--temp-dir={self.temporary}"]
        command += [f"--node-ip-address={self.subnet}.1"]
        self.nodes["head"] = Node(command, self.folder / "head.log", {})

    def add(self, number: int, **resources: float) -> str:
        """Add a host with resources; return its address."""
        name, link = f"{self.bridge}-{number}", f"{self.bridge}v{number}"
        self._ip("netns", "add", name)
        self._undo.callback(self._ip, "netns", "del", name)
        self._ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", name)
        self._ip("link", "set", link, "master", self.bridge, "up")
        self._ip("-n", name, "addr", "add", f"{self.host(number)}/24", "dev", "eth0")
        for device in ("eth0", "lo"):
            self._ip("-n", name, "link", "set", device, "up")
        self._ip("-n", name, "route", "add", "default", "via", f"{self.subnet}.1")
        self.start(number, **resources)
        return self.host(number)

    def host(self, number: int) -> str:
        return f"{self.subnet}.{10 + number}"

    def start(self, number: int, **resources: float) -> None:
        """Let a host join the cluster, for the first time or again."""
        names = {name.replace("_", ":"): value for name, value in resources.items()}
        command = ["ip", "netns", "exec", f"{self.bridge}-{number}", "ray", "start"]
        command += [f"--address={self.address}", "--num-cpus=1", *COMMON]
        command += [f"--node-ip-address={self.host(number)}", f"--resources={json.dumps(names)}"]
        own = {"XDG_CACHE_HOME": self.folder / f"cache-{number}", "TMPDIR": self.work(number)}
        self.work(number).mkdir(exist_ok=True)
        environment = {name: str(path) for name, path in own.items()}
        self.nodes[str(number)] = Node(command, self.folder / f"node-{number}.log", environment)

    def work(self, number: int) -> Path:
        """Return the folder of a host for the work folders of the host engine."""
        return self.folder / f"work-{number}"

    def kill_program(self, number: int) -> None:
        """Kill the actors of a host."""
        for pid in self.nodes[str(number)].children("ray::PlatformActor"):
            os.kill(pid, signal.SIGKILL)

    def kill_raylet(self, number: int) -> None:
        """Kill Ray on a host; what its actors started goes on."""
        node = self.nodes[str(number)]
        for pid in node.children("/raylet/raylet"):
            os.kill(pid, signal.SIGKILL)
        node.wait()  # it ends when one of its processes has ended

    def cut(self, number: int, *, healed: bool = False) -> None:
        """Cut the network of a host, or connect it again."""
        self._ip("link", "set", f"{self.bridge}v{number}", "up" if healed else "down")

    def runs(self, number: int) -> list[Path]:
        """Return the folders of runs on a host."""
        return sorted((self.folder / f"cache-{number}" / "infini-ci/pool/runs").glob("*"))

    def close(self) -> None:
        for node in self.nodes.values():
            node.kill()
        self._undo.close()

    def _ip(self, *words: str) -> Any:
        return subprocess.run(["ip", *words], check=True, capture_output=True)


def ray_program() -> str | None:
    """Return the command of Ray beside this Python."""
    return shutil.which("ray", path=str(Path(sys.executable).parent))
