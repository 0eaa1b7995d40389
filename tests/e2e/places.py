"""A repository and its results, for tests that run the command line on it."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import subprocess
import sys
import termios
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from docker.client import DockerClient

from ci.engines.docker.containers import find_containers
from ci.model.plan import RUN_LABEL, SESSION_LABEL
from ci.model.results import HOST_LOCK
from tests.e2e.plans import LAUNCHER
from tests.forked import run_ci

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 120.0  # instead of waiting forever for a shell that never answers
CONFIG = """\
project: %s
platforms:
  cpu:
    requirements: requirements.txt
    environment: {GREETING: good morning}
stages:
- name: build
  command: sh build.sh
- name: pytest
  kind: pytest
  command: python -m pytest -q tests
  environment: {OF_TESTS: "yes"}
"""


def project_files(project: str, tests: str) -> dict[str, str]:
    """Return the files of a project that builds a file, and then runs ``tests``."""
    return {
        "ci.yaml": CONFIG % project,
        "requirements.txt": "pytest\npytest-reportlog\n",
        "build.sh": "echo one > built\n",
        "tests/test_a.py": tests,
    }


@dataclass(frozen=True)
class Place:
    """A repository and its results."""

    folder: Path
    engine: str
    python: str
    """Makes the environments of the host engine."""

    @classmethod
    def make(cls, folder: Path, engine: str, python: str, files: Mapping[str, str]) -> Place:
        """Make a repository that has these files."""
        place = cls(folder, engine, python)
        place.temporary.mkdir()
        place.source.mkdir()
        place.git("init", "--quiet")
        place.commit(files)
        return place

    @property
    def source(self) -> Path:
        return self.folder / "source"

    @property
    def temporary(self) -> Path:
        return self.folder / "temporary"

    def write(self, files: Mapping[str, str]) -> None:
        for name, text in files.items():
            path = self.source / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")

    def git(self, *words: str) -> str:
        identity = ("-c", "user.name=Tests", "-c", "user.email=tests@example.org")
        command = ["git", "-C", str(self.source), *identity, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    def commit(self, files: Mapping[str, str]) -> None:
        self.write(files)
        self.git("add", ".")
        self.git("commit", "--quiet", "--message", "Change")

    @property
    def results_option(self) -> tuple[str, str]:
        return ("--results", str(self.folder / "results"))

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-c", LAUNCHER, self.python, *words, *self.results_option]

    @property
    def environment(self) -> dict[str, str]:
        own = {"XDG_CACHE_HOME": str(self.folder / "cache"), "TMPDIR": str(self.temporary)}
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return {**os.environ, **own, "PATH": path, "MY_TOKEN": "a secret value"}

    def ci(
        self, *words: str, given: str = "", **environment: str
    ) -> subprocess.CompletedProcess[str]:
        variables = {**self.environment, **environment}
        if "ray" in sys.modules:  # a fork lacks its threads, which hold locks
            return subprocess.run(
                self.command(*words),
                cwd=ROOT,
                env=variables,
                input=given,
                capture_output=True,
                text=True,
                check=False,
            )
        return run_ci(
            *words, *self.results_option, environment=variables, python=self.python, given=given
        )

    @property
    def options(self) -> tuple[str, ...]:
        return ("--config", str(self.source / "ci.yaml"), "--engine", self.engine)

    def run(self, *words: str) -> dict[str, Any]:
        """Run the project, and return the result."""
        finished = self.ci("run", "cpu", *self.options, *words, "--format", "json")
        assert finished.stdout, finished.stderr
        run: dict[str, Any] = json.loads(finished.stdout)
        return run

    def leftovers(self) -> list[str]:
        """What sessions left behind; a process may still remove a work folder."""
        found = [it.name for it in self.temporary.glob("infini-ci-*-session-*")]
        found += [it.name for it in (self.folder / "cache").glob("*/session-*")]
        found += self.git("worktree", "list").splitlines()[1:]
        return found + [str(it.name) for it in self.containers()]

    def containers(self) -> list[Any]:
        """The containers of sessions of this place, of which the engine has others too."""
        if self.engine == "host":
            return []
        found = find_containers(DockerClient.from_env(), {SESSION_LABEL: "1"})
        runs = [it.name for it in (self.folder / "results").glob("2*")]
        return [it for it in found if it.labels[RUN_LABEL].partition("-session-")[0] in runs]


def paste(place: Place, line: str) -> subprocess.CompletedProcess[str]:
    """Run a line as typed into a shell of the user."""
    return subprocess.run(
        ["sh", "-c", line],
        cwd=ROOT,
        env=place.environment,
        capture_output=True,
        text=True,
        check=False,
    )


def json_of(place: Place, run: str = "latest") -> dict[str, Any]:
    document: dict[str, Any] = json.loads(place.ci("report", run, "--format", "json").stdout)
    return document


def gc(place: Place, *words: str, **environment: str) -> list[dict[str, Any]]:
    finished = place.ci(*words, "--format", "json", **environment)
    assert finished.returncode == 0, finished.stderr
    items: list[dict[str, Any]] = json.loads(finished.stdout)["items"]
    return items


def containers(run_id: str) -> list[Any]:
    """All containers of a run: also those that have ended."""
    return list(find_containers(DockerClient.from_env(), {RUN_LABEL: run_id}))


def remains(place: Place, run_id: str) -> list[str]:
    """The names of what a run and its shells left: containers, or work folders."""
    if place.engine == "docker":
        return [str(it.name) for it in containers(run_id)]
    # A folder is removed by a process that outlives its caller.
    locks = (place.folder / "results" / run_id).glob(f"*/{HOST_LOCK}")
    return [json.loads(it.read_text())["path"] for it in locks]


def remove(place: Place, run_id: str) -> None:
    """Remove what a run left, as another program does."""
    for name in remains(place, run_id):
        if place.engine == "docker":
            DockerClient.from_env().containers.get(name).remove(force=True)
        else:
            subprocess.run(["rm", "-rf", name], check=True)


@contextmanager
def open_shell(place: Place, run: str = "latest") -> Iterator[subprocess.Popen[bytes]]:
    """Open a shell that waits for commands; it is killed if the test fails."""
    process = subprocess.Popen(
        place.command("shell", run, "cpu"),
        cwd=ROOT,
        env=place.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin
    assert process.stdout
    with process:
        try:
            process.stdin.write(b"echo ready\n")
            process.stdin.flush()
            assert process.stdout.readline() == b"ready\n"
            yield process
        finally:
            process.kill()


@contextmanager
def terminal_shell(
    place: Place, *, run: str = "latest", size: tuple[int, int] = (24, 80)
) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    """Open a shell at a terminal of its own; yield its process and our side of the terminal."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, size)
    process = subprocess.Popen(
        place.command("shell", run, "cpu"),
        cwd=ROOT,
        env={**place.environment, "TERM": "vt100", "PS1": "$ ", "COLUMNS": "80", "LINES": "24"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(theirs, termios.TIOCSCTTY, 0),
    )
    os.close(theirs)
    try:
        yield process, ours
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def read_until(terminal: int, text: bytes) -> bytes:
    printed = b""
    while text not in printed:
        assert select.select([terminal], [], [], PATIENCE_S)[0], printed
        try:
            chunk = os.read(terminal, 1 << 16)
        except OSError:  # the other side is closed
            chunk = b""
        assert chunk, printed
        printed += chunk
    return printed
