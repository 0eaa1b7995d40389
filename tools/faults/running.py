"""One ``python -m ci run`` as a process of its own, to which faults are done."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any

import yaml
from docker.client import DockerClient
from docker.errors import APIError
from docker.models.containers import Container

from ci.engines.docker.containers import find_containers
from ci.model.platforms import PLATFORMS
from tests.e2e.engine_proxy import ENGINE
from tools.faults.model import Fault

ROOT = Path(__file__).resolve().parents[2]
MARK = "INFINI_FAULT_RUN"  # in the environment of all processes of a run
RECIPE = "ARG BASE_IMAGE\nFROM ${BASE_IMAGE}\n"  # the base has all that the tests need
POLL_S = 0.05
MOMENT_S = 40.0  # to wait for the moment of an action; most come within 2 s
PAUSE_S = 3.0  # between two signals: the agent's sign of life comes every second
LAST_S = 5.0  # for processes and files that a run's end removes
# Sends a signal to all processes of one kind; run by root in the container. Init has number 1.
SEND = r"""
import os, pathlib, re, sys
pattern, number = sys.argv[1], int(sys.argv[2])
def children(pid):
    return pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
[agent] = children(1)
if pattern == "agent":
    found = [agent]
elif pattern == "supervisor":
    found = children(agent)
else:
    lines = {p.name: (p / "cmdline").read_bytes().replace(b"\0", b" ").decode()
             for p in pathlib.Path("/proc").glob("[0-9]*") if int(p.name) != os.getpid()}
    found = [pid for pid, line in lines.items() if re.search(pattern, line)]
for pid in found:
    os.kill(int(pid), number)
print(len(found))
"""


class FaultRun:
    """A run of some faults, each on a platform, in a folder of its own.

    folder: all files of the run
    project: the sources
    results: what ``--results`` names
    temporary: the run's ``TMPDIR``
    platforms: the faults by the platform that each has
    image: the image that the platforms start from
    engine: the socket of the engine on which all of it runs
    setting: what the fault has set up around the run
    """

    def __init__(self, folder: Path, faults: Sequence[Fault], image: str) -> None:
        self.folder, self.image, self.engine = folder, image, ENGINE
        self.setting: Any = None
        self.project, self.results = folder / "project", folder / "results"
        self.temporary = folder / "tmp"
        self.platforms = dict(zip(PLATFORMS, faults, strict=False))
        assert len(self.platforms) == len(faults)
        self.name = f"faults-{uuid.uuid4().hex[:8]}"
        self.environment: dict[str, str] = {}
        self.processes: list[subprocess.Popen[bytes]] = []
        self._client: DockerClient | None = None
        self.temporary.mkdir(parents=True)
        for platform, fault in self.platforms.items():
            for name, text in fault.files.items():
                path = self.project / platform / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text.replace("{folder}", platform).replace("{run}", self.name))
            self.environment |= {
                name: value.replace("{run}", str(folder))
                for name, value in fault.environment.items()
            }
        self._write_config()

    def _write_config(self) -> None:
        stages, settings = [], {}
        for platform, fault in self.platforms.items():
            commands = {"install": fault.install, "pytest": fault.tests}
            stages += [
                {
                    "name": name,
                    "kind": "pytest" if name == "pytest" else "command",
                    "command": command.replace("{folder}", platform),
                    "platforms": [platform],
                    "timeout_s": fault.limits_s.get(name, MOMENT_S),
                }
                for name, command in commands.items()
            ]
            settings[platform] = {
                "base_image": self.image,
                "recipe": "Recipe",
                "compiler_cache": False,
                **({} if platform == "cpu" else {"devices": {"count": 0}}),
                **fault.settings,
            }
        whole: dict[str, object] = {"project": self.name, "platforms": settings, "stages": stages}
        site: dict[str, object] = {}
        for fault in self.platforms.values():
            whole |= fault.config
            site |= fault.site
        self.project.mkdir(exist_ok=True)
        (self.project / "Recipe").write_text(RECIPE)
        (self.project / "ci.yaml").write_text(yaml.safe_dump(whole))
        (self.project / "ci.site.yaml").write_text(yaml.safe_dump(site))

    # Processes

    def start(self, *arguments: str, results: Path | None = None) -> subprocess.Popen[bytes]:
        """Start ``python -m ci`` with these arguments; its output is ``output-N.txt``."""
        prefix = [word for fault in self.platforms.values() for word in fault.prefix]
        removed = ("INFINI_CI_", "PIP_")
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith(removed)
        }
        own = {"PIP_CONFIG_FILE": os.devnull, "TMPDIR": str(self.temporary), MARK: self.name}
        with self.output_file(len(self.processes)).open("wb") as output:
            process = subprocess.Popen(
                [
                    *prefix,
                    sys.executable,
                    "-m",
                    "ci",
                    *arguments,
                    "--results",
                    str(results or self.results),
                ],
                cwd=ROOT,
                env={**inherited, **own, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def begin(self) -> subprocess.Popen[bytes]:
        """Start the run of all its platforms."""
        options = [option for fault in self.platforms.values() for option in fault.options]
        if "--engine" not in options:
            options += ["--engine", "docker"]
        config = ["--source", str(self.project), "--config", str(self.project / "ci.yaml")]
        return self.start("run", *self.platforms, *config, "--jobs", "4", *options)

    def execute(self) -> None:
        """Run everything, with all actions, until the last command has ended."""
        process = self.begin()
        self._act()
        self.wait(process)

    def resume(self) -> None:
        """Continue the run with ``--resume``, until it has ended."""
        self.wait(self.start("run", "--resume", self.run_id))

    def wait(self, process: subprocess.Popen[bytes]) -> None:
        """Wait for a command; one that does not end in time fails the fault."""
        limit_s = max(fault.limit_s for fault in self.platforms.values())
        try:
            process.wait(limit_s)
        except subprocess.TimeoutExpired:
            shown = self.output_file(self.processes.index(process)).read_text(errors="replace")
            raise AssertionError(f"the command has not ended after {limit_s} s:\n{shown}") from None

    def _act(self) -> None:
        errors: list[BaseException] = []

        def act(action: Callable[[FaultRun, str], None], platform: str) -> None:
            try:
                action(self, platform)
            except BaseException as error:
                errors.append(error)

        actions = [(it.act, name) for name, it in self.platforms.items() if it.act is not None]
        threads = [Thread(target=act, args=each) for each in actions]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for error in errors:
            raise error

    def end(self) -> None:
        """End what may still run, and remove what may remain."""
        for process in self.processes:
            with suppress(ProcessLookupError):  # the group of a session that we started
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for container in self.containers():
            with suppress(APIError):  # a command that was killed has asked for it too
                container.remove(force=True, v=True)
        if any("recipe" in fault.settings for fault in self.platforms.values()):
            self._remove_images()
        self.client.close()

    def _remove_images(self) -> None:
        """Remove the images that recipes of faults made; those of all others are shared."""
        for path in self.files(f"{self.run_id}/results.json"):
            for row in json.loads(path.read_text())["platforms"]:
                image = row["environment"].get("engine", {}).get("image")
                if image is not None:
                    self.client.images.remove(image["reference"])

    # Moments

    def wait_for(self, platform: str, text: str = "begun", file: str = "pytest.log") -> None:
        """Wait until a file of the platform's results has a text."""
        deadline = time.monotonic() + MOMENT_S
        pattern = f"*/{platform}/{file}"
        while not any(text in path.read_text(errors="replace") for path in self.files(pattern)):
            assert self.processes[-1].poll() is None, f"it ended before {text!r}: {self.shown}"
            assert time.monotonic() < deadline, f"{pattern} has no {text!r}: {self.shown}"
            time.sleep(POLL_S)

    def wait_for_text(self, text: str) -> None:
        """Wait until the latest command has shown a text."""
        deadline = time.monotonic() + MOMENT_S
        path = self.output_file(len(self.processes) - 1)
        while text not in path.read_text(errors="replace"):
            assert self.processes[-1].poll() is None, f"it ended before {text!r}: {self.shown}"
            assert time.monotonic() < deadline, f"{text!r} is not shown: {self.shown}"
            time.sleep(POLL_S)

    def files(self, pattern: str) -> list[Path]:
        """Return files of the results."""
        return [path for path in self.results.glob(pattern) if path.is_file()]

    def send(self, platform: str, process: str, number: int) -> None:
        """Send a signal to processes in the container of a platform.

        ``process`` is ``agent``, ``supervisor`` or a pattern of command lines.
        """
        [container] = self.containers(platform)
        command = ["docker", "exec", "--user", "0", str(container.name), "python3", "-c", SEND]
        sent = subprocess.run(
            [*command, process, str(number)], capture_output=True, text=True, check=False
        )
        # The one that sends is killed with its container.
        assert sent.stdout.strip() != "0", f"no process {process!r}"

    @property
    def workers(self) -> list[int]:
        """The forked processes of the platforms, in the platforms' order."""
        parent = self.processes[-1].pid
        children = Path(f"/proc/{parent}/task").glob("*/children")
        pids = sorted(int(pid) for path in children for pid in path.read_text().split())
        own = Path(f"/proc/{parent}/cmdline").read_bytes()
        return [pid for pid in pids if Path(f"/proc/{pid}/cmdline").read_bytes() == own]

    # What remains

    @property
    def client(self) -> DockerClient:
        """The real engine, also if the run gets to it another way."""
        if self._client is None:
            self._client = DockerClient(base_url=f"unix://{self.engine}")
        return self._client

    @property
    def run_id(self) -> str:
        """The run's name; exactly one run must exist."""
        [folder] = [path for path in self.results.iterdir() if re.match(r"\d{8}T", path.name)]
        return folder.name

    def containers(self, platform: str | None = None) -> list[Container]:
        """Return the run's containers, also those that have ended."""
        labels = {"infini-ci.project": self.name}
        if platform:
            labels["infini-ci.platform"] = platform
        return find_containers(self.client, labels)

    def leftovers(self) -> list[str]:
        """Return what remains on the engine and on this machine, after at most ``LAST_S``."""
        deadline = time.monotonic() + LAST_S
        while (found := self._leftovers()) and time.monotonic() < deadline:
            time.sleep(POLL_S)
        return found

    def _leftovers(self) -> list[str]:
        mark = {"label": [f"infini-ci.project={self.name}"]}
        found = [f"container {each.name}" for each in self.containers()]
        found += [f"volume {each.name}" for each in self.client.volumes.list(filters=mark)]
        found += [f"network {each.name}" for each in self.client.networks.list(filters=mark)]
        found += [f"temporary file {path.name}" for path in self.temporary.iterdir()]
        return [*found, *self._processes(), *self._locks()]

    def _processes(self) -> list[str]:
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # it has ended
                if f"{MARK}={self.name}\0".encode() in (process / "environ").read_bytes():
                    line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                    found.append(f"process {process.name}: {line:.200}")
        return found

    def _locks(self) -> list[str]:
        """Return the files of the results that a process has locked."""
        held = {line.split()[5] for line in _kernel_locks()}
        return [f"lock {path}" for path in self.files("**/*") if _place(path) in held]

    def output_file(self, number: int) -> Path:
        return self.folder / f"output-{number}.txt"

    @property
    def shown(self) -> str:
        """What all commands of the run have shown."""
        files = map(self.output_file, range(len(self.processes)))
        return "".join(path.read_text(errors="replace") for path in files)


def _place(path: Path) -> str:
    """Return the name of a file in the kernel's list of locks."""
    status = path.stat()
    device = status.st_dev
    return f"{os.major(device):02x}:{os.minor(device):02x}:{status.st_ino}"


def _kernel_locks() -> list[str]:
    # `1: FLOCK  ADVISORY  WRITE 123 fe:00:45 0 EOF`; a waiting one begins with `1: ->`.
    lines = Path("/proc/locks").read_text().splitlines()
    return [line for line in lines if "->" not in line]


def send(process: str, *numbers: int, file: str = "pytest.log") -> Callable[[FaultRun, str], None]:
    """Return the action that sends signals to a process in the container once it has begun."""

    def act(run: FaultRun, platform: str) -> None:
        run.wait_for(platform, file=file)
        for pause_s, number in zip((0.0, PAUSE_S), numbers, strict=False):
            time.sleep(pause_s)
            run.send(platform, process, number)

    return act


def send_to_caller(
    *numbers: int, worker: bool = False, file: str = "pytest.log"
) -> Callable[[FaultRun, str], None]:
    """Return the action that sends signals to ``ci run``, or to its process for the platform."""

    def act(run: FaultRun, platform: str) -> None:
        run.wait_for(platform, file=file)
        pid = run.workers[0] if worker else run.processes[-1].pid
        for pause_s, number in zip((0.0, PAUSE_S), numbers, strict=False):
            time.sleep(pause_s)
            os.kill(pid, number)

    return act


def kill_orchestrator(number: signal.Signals = signal.SIGKILL) -> Callable[[FaultRun, str], None]:
    """Return the action that ends ``ci run`` while the tests run."""
    return send_to_caller(number)


def docker(*commands: str, file: str = "pytest.log") -> Callable[[FaultRun, str], None]:
    """Return the action that gives commands of ``docker`` on the container of the platform."""

    def act(run: FaultRun, platform: str) -> None:
        run.wait_for(platform, file=file)
        [container] = run.containers(platform)
        for pause_s, command in zip((0.0, PAUSE_S), commands, strict=False):
            time.sleep(pause_s)
            words = ["docker", *command.split(), str(container.name)]
            subprocess.run(words, check=True, capture_output=True)

    return act
