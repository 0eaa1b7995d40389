"""The temporary folder of a run on this machine, and how a later caller finds it again.

``host.lock`` in the results holds the path of the folder, the process id of the agent, and whether
the folder is kept for shells after a failed run. The agent inherits a lock on that file: while it
is held, the agent (or the supervisor of its last stage) is alive, even if its caller has died.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ci.engines.job import agent_archive, job_document
from ci.engines.logs import SHOWN_BYTES_PER_S
from ci.model.plan import CachePlan, RunPlan
from ci.model.results import HOST_LOCK
from ci.protocol.job import CacheJob
from ci.util.files import is_locked, user_cache

# virtualenv copies a pip from its cache in 0.3 CPU-seconds; venv installs one in 4.5. It downloads
# nothing, and does not follow the user's settings, which are for other environments.
MAKE_VENV = ("-m", "virtualenv", "--no-periodic-update")
VENV_SETTINGS = {"VIRTUALENV_CONFIG_FILE": os.devnull}
# One retry: with pip's five, an index that cannot be reached costs 8 s per package. No compilation:
# Python compiles the modules that it imports in 6 CPU-seconds; all of torch's would take 30.
PIP_INSTALL = ("-m", "pip", "install", "--no-compile", "--retries", "1", "--requirement")

CONSTRAINTS = "constraints.txt"
WORKSPACE = "workspace"
GIVEN = "given"


@dataclass(frozen=True, kw_only=True)
class WorkFolder:
    """Sources and virtual environment of one run, outside of the user's tree."""

    path: Path
    state: Path

    @classmethod
    def create(cls, plan: RunPlan) -> WorkFolder:
        """Make a new folder and record its path."""
        plan.results.mkdir(parents=True, exist_ok=True)
        path = Path(tempfile.mkdtemp(prefix=f"infini-ci-{plan.run_id}-{plan.platform}-"))
        folder = cls(path=path, state=plan.results / HOST_LOCK)
        folder._write(agent=None)
        return folder

    @classmethod
    def find(cls, plan: RunPlan, *, kept: bool = False) -> WorkFolder | None:
        """Return the folder that an earlier ``create`` made for ``plan``, if it exists.

        ``kept``: one that is kept, else one that is not.
        """
        folder = cls(path=Path(), state=plan.results / HOST_LOCK)
        if not folder.state.exists():
            return None
        content = folder._read()
        if content.get("kept", False) is not kept:
            return None
        return cls(path=Path(content["path"]), state=folder.state)

    def keep(self) -> None:
        """Keep the folder for shells: no later caller adopts its run, which is judged."""
        self._write(agent=self.agent, kept=True)

    @property
    def venv(self) -> Path:
        return self.path / "venv"

    @property
    def constraints(self) -> Path:
        """The constraints that keep a vendor's packages; no file if the environment sees none."""
        return self.path / CONSTRAINTS

    @property
    def workspace(self) -> Path:
        return self.path / WORKSPACE

    @property
    def given(self) -> Path:
        """The folder of a distribution that was made elsewhere."""
        return self.path / GIVEN

    @property
    def output(self) -> Path:
        """The file that the agent prints to."""
        return self.path / "agent.out"

    @property
    def agent_program(self) -> list[str]:
        """The command that runs the agent."""
        return [str(self.venv / "bin" / "python"), str(self.path / "agent.pyz")]

    @property
    def agent(self) -> int | None:
        """The agent's process id, if it was ever started."""
        agent: int | None = self._read()["agent"]
        return agent

    def start_agent(
        self, plan: RunPlan, environment: Mapping[str, str], results: Path | None = None
    ) -> subprocess.Popen[bytes]:
        """Start the agent in a session of its own; it inherits the lock.

        It writes to ``results``, or to those of the plan.
        """
        program, job_file = self.agent_program, self.path / "job.json"
        kept = self._read().get("kept", False)
        # Append: a stage's process may write to the same file.
        with self.state.open() as lock, self.output.open("ab") as printed:
            fcntl.flock(lock, fcntl.LOCK_EX)
            Path(program[-1]).write_bytes(agent_archive())
            job_file.write_bytes(host_job(plan, self.path, results))
            agent = subprocess.Popen(
                [*program, str(job_file)],
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
                pass_fds=[lock.fileno()],
                start_new_session=True,
            )
        self._write(agent=agent.pid, kept=kept)
        return agent

    def alive(self) -> bool:
        """Tell whether the agent holds its lock."""
        return is_locked(self.state)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the agent, if it is alive."""
        if self.agent is not None and self.alive():
            # Ended but locked: only the supervisor of its last stage remains, and ends soon.
            with suppress(ProcessLookupError):
                os.kill(self.agent, number)

    def remove(self) -> None:
        """Kill the agent if it still runs, and remove the folder without waiting for that."""
        self.signal(signal.SIGKILL)
        # By a process that outlives this one: 1.1 GB took 6 to 25 s on a busy disk.
        silent = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
        command = ["rm", "-rf", str(self.path)]
        os.posix_spawnp(command[0], command, os.environ, file_actions=silent, setsid=True)
        self.state.unlink(missing_ok=True)

    def _read(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(self.state.read_text(encoding="utf-8"))
        return content

    def _write(self, *, agent: int | None, kept: bool = False) -> None:
        # Written in place: a rename would create a second file, without the lock.
        content = {"path": str(self.path), "agent": agent, "kept": kept}
        self.state.write_text(json.dumps(content))


def host_job(plan: RunPlan, folder: Path, results: Path | None = None) -> bytes:
    """The agent's input file on this machine; ``results``, if not those of the plan."""
    cache, caches = plan.cache, None
    if cache is not None:
        caches = CacheJob(
            str(host_cache_folder(cache.name)),
            base=str(folder),
            cold=cache.cold,
            trusted=tuple(str(host_cache_folder(name)) for name in cache.trusted),
        )
    return job_document(
        plan,
        workspace=str(folder / WORKSPACE),
        results=str(results or plan.results),
        printed_bytes_per_s=SHOWN_BYTES_PER_S,
        isolates_network=False,
        compiler_cache=caches,
        given=str(folder / GIVEN),
    )


def host_cache_folder(name: str) -> Path:
    """The user's own folder for a cache."""
    return user_cache() / name


def remove_empty_cache(cache: CachePlan | None) -> None:
    """Remove the cache folder of a project that compiles nothing."""
    if cache is not None:
        with suppress(OSError):  # it is not empty, or does not exist
            host_cache_folder(cache.name).rmdir()
