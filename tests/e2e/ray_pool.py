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


def _own_variables() -> dict[str, str]:
    """Return those of this process without Ray's, which are for connections from it."""
    return {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}


class Node:
    """A process tree of ``ray start --block``."""

    def __init__(self, command: list[str], log: Path, environment: Mapping[str, str]) -> None:
        started = subprocess.run(
            ["sh", "-c", START, "sh", str(log), *command],
            env={**_own_variables(), **VARIABLES, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
            start_new_session=True,
        )
        self.pid = int(started.stdout)
        self._began = self._beginning()
        deadline = monotonic() + PATIENCE_S
        while b"Ray runtime started" not in log.read_bytes():
            if not self.runs() or monotonic() > deadline:
                raise RuntimeError(log.read_text())
            sleep(POLL_S)

    def _beginning(self) -> str | None:
        """Return when the process with this number began; ``None``: it has ended."""
        try:
            state, *rest = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return None if state == "Z" else rest[18]

    def runs(self) -> bool:
        """Whether it runs: its number may be that of another process by now."""
        return self._began is not None and self._beginning() == self._began

    def wait(self) -> None:
        """Wait until it has ended."""
        deadline = monotonic() + PATIENCE_S
        while self.runs():
            assert monotonic() < deadline
            sleep(POLL_S)

    def children(self, word: str) -> list[int]:
        """Return the processes below this one whose command line has a word."""
        found = []
        below = [self.pid] if self.runs() else []
        while below:
            pid = below.pop()
            with suppress(OSError):
                below += map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
                if word in Path(f"/proc/{pid}/cmdline").read_text():
                    found.append(pid)
        return found

    def kill(self) -> None:
        """Kill all of its processes at once, as the loss of the machine does."""
        self._kill(self.children(""))

    def kill_ray(self) -> None:
        """Kill Ray's own processes; what an actor started goes on."""
        words = ("site-packages/ray/", "ray::", "bin/ray")
        self._kill([pid for word in words for pid in self.children(word)])

    def _kill(self, pids: list[int]) -> None:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.wait()


class RayPool:
    """A cluster: this machine, for the CPU, and machines behind a bridge.

    Only this machine reaches a package index. Machine 0 is the head, on which no platform runs.
    """

    def __init__(self, folder: Path, **variables: str) -> None:
        """``variables`` are those of all nodes."""
        self.folder = folder
        self.variables = variables
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

    def open(self) -> None:
        """Start the head and this machine."""
        self._add_switch()
        self._add_machine(0)
        self.start_head()

    @property
    def switch(self) -> str:
        return f"ray{self.key}"

    @property
    def address(self) -> str:
        return f"{self.host(0)}:{self.port}"

    def start_head(self) -> None:
        """Start the head, and let this machine join."""
        command = [*self._inside(0), "ray", "start", "--head", f"--port={self.port}", *COMMON]
        command += ["--num-cpus=0", "--include-dashboard=false", f"--temp-dir={self.temporary}"]
        command += [f"--node-ip-address={self.host(0)}"]
        self.nodes["head"] = Node(command, self.folder / "head.log", self.variables)
        command = ["ray", "start", f"--address={self.address}", "--num-cpus=0", *COMMON]
        command += [f"--node-ip-address={self.subnet}.1", '--resources={"platform:cpu": 1}']
        self.nodes["here"] = Node(command, self.folder / "here.log", self._own("here"))

    def add(self, number: int, **resources: float) -> None:
        """Add a host with resources."""
        self._add_machine(number)
        self.start(number, **resources)

    def _add_switch(self) -> None:
        """Make a bridge, in a namespace that the rules of this machine's firewall are not for."""
        self._ip("netns", "add", self.switch)
        self._undo.callback(self._ip, "netns", "del", self.switch)
        self._switch_ip("link", "add", "bridge", "type", "bridge")
        self._switch_ip("link", "set", "bridge", "up")
        ours = ("link", "add", self.switch, "type", "veth", "peer", "name", "v", "netns")
        self._ip(*ours, self.switch)
        self._switch_ip("link", "set", "v", "master", "bridge", "up")
        self._ip("addr", "add", f"{self.subnet}.1/24", "dev", self.switch)
        self._ip("link", "set", self.switch, "up")

    def _add_machine(self, number: int) -> None:
        name, link = f"{self.switch}-{number}", f"v{number}"
        self._ip("netns", "add", name)
        self._undo.callback(self._ip, "netns", "del", name)
        self._switch_ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", name)
        self._switch_ip("link", "set", link, "master", "bridge", "up")
        self._ip("-n", name, "addr", "add", f"{self.host(number)}/24", "dev", "eth0")
        for device in ("eth0", "lo"):
            self._ip("-n", name, "link", "set", device, "up")
        self._ip("-n", name, "route", "add", "default", "via", f"{self.subnet}.1")

    def _inside(self, number: int) -> list[str]:
        return ["ip", "netns", "exec", f"{self.switch}-{number}"]

    def host(self, number: int) -> str:
        return f"{self.subnet}.{10 + number}"

    def start(self, number: int, **resources: float) -> None:
        """Let a host join the cluster, for the first time or again."""
        names = {name.replace("_", ":"): value for name, value in resources.items()}
        command = [*self._inside(number), "ray", "start", f"--address={self.address}", *COMMON]
        command += ["--num-cpus=1"]
        command += [f"--node-ip-address={self.host(number)}", f"--resources={json.dumps(names)}"]
        environment = self._own(str(number))
        self.nodes[str(number)] = Node(command, self.folder / f"node-{number}.log", environment)

    def _own(self, name: str) -> dict[str, str]:
        """Make the folders of a machine; return the variables that name them."""
        own = {"XDG_CACHE_HOME": self.folder / f"cache-{name}", "TMPDIR": self.work(name)}
        self.work(name).mkdir(exist_ok=True)
        return self.variables | {variable: str(path) for variable, path in own.items()}

    def work(self, name: object) -> Path:
        """Return the folder of a machine for the work folders of the host engine."""
        return self.folder / f"work-{name}"

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
        self._switch_ip("link", "set", f"v{number}", "up" if healed else "down")

    def freeze(self, number: int, *, thawed: bool = False) -> None:
        """Stop all processes of a host, which the kernel still accepts connections for."""
        for pid in self.nodes[str(number)].children(""):
            os.kill(pid, signal.SIGCONT if thawed else signal.SIGSTOP)

    def replace_head(self) -> None:
        """Lose the head, all of whose knowledge is gone, and start the cluster again."""
        for node in self.nodes.values():
            node.kill_ray()
        self.start_head()

    def close(self) -> None:
        for node in self.nodes.values():
            node.kill()
        self._undo.close()

    def _switch_ip(self, *words: str) -> None:
        self._ip("-n", self.switch, *words)

    def _ip(self, *words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True)


def ray_program() -> str | None:
    """Return the command of Ray beside this Python."""
    return shutil.which("ray", path=str(Path(sys.executable).parent))
