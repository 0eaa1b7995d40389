"""The host engine: the same agent and plan in a fresh virtual environment on this machine.

Nothing is written into the user's tree: sources and environment live in a temporary folder.
Like a container, the agent outlives its caller, and a later caller can adopt it.
"""

from __future__ import annotations

import math
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from time import monotonic, sleep
from typing import BinaryIO

from packaging.tags import compatible_tags, cpython_tags

from ci.engines import Capabilities, Engine, EngineMachine, Observer, say, typed_errors
from ci.engines.archives import chunks_of, extract
from ci.engines.checks import Finding, install_command, package_manager, require
from ci.engines.host.doctor import machine_findings, prerequisites_of
from ci.engines.host.environment import (
    BasePython,
    base_python,
    checking_command,
    creating_commands,
    environment_description,
    host_settings,
    origin_note,
    passed_variables,
    read_constraints,
    shadowed_packages,
)
from ci.engines.host.leftovers import HostLeftovers
from ci.engines.host.workfolder import PIP_INSTALL, VENV_SETTINGS, WorkFolder, remove_empty_cache
from ci.engines.job import isolation_notes
from ci.engines.logs import EventReader, ImageLog, LiveLogs
from ci.engines.shells import MOST_STARTS, OPEN_AGAIN, Doorway
from ci.errors import InfrastructureError
from ci.facts.measures import ENVIRONMENT
from ci.model.execution import ExecutionFacts, ImageFacts
from ci.model.plan import EngineKind, EnginePlan, RunPlan, SystemPackages
from ci.plan import source
from ci.plan.given import refuse_misfit
from ci.protocol.agent_files import PIP_REPORT_OF_ENVIRONMENT
from ci.protocol.job import ENTER, INTERACTIVE
from ci.util import process
from ci.util.files import file_digest
from ci.util.interpreters import locate, read_interpreter
from ci.util.lines import CHUNK
from ci.util.process import handle_interrupts
from ci.util.text import join_names

POLL_S = 0.05  # the interval at which the agent prints an event that is not full
QUERY_S = 30.0  # for the package manager's database, which another process may have locked
REMOTE_REMEDY = (
    "Start a Docker Engine, or name one on a Linux machine: DOCKER_HOST=ssh://user@host, or"
    " `engines:` in ci.site.yaml."
)
STOP_GRACE_S = 30.0  # the agent needs 10 s to end a stage, then collects artifacts


class HostEngine(Engine):
    """Runs plans on this machine, without isolation; ``notes`` are added to each result."""

    name = EngineKind.HOST
    capabilities = Capabilities(isolates_network=False, images=False)
    prepares = ENVIRONMENT

    def __init__(self, *, notes: Sequence[str] = ()) -> None:
        if sys.platform != "linux":  # the agent reads /proc
            message = f"the host engine needs Linux, and this machine runs {sys.platform}"
            raise InfrastructureError("; ".join([message, *notes]), remedy=REMOTE_REMEDY)
        self.notes = notes

    @classmethod
    def connect(cls, _plan: EnginePlan) -> HostEngine:
        """Return the engine, which is this machine."""
        return cls()

    def check(self, plan: RunPlan) -> None:
        """Raise ``UsageError`` for a wheel that does not fit the Python of the environment."""
        if plan.given is None:
            return
        python = read_interpreter(base_python(plan.host).path)
        if not isinstance(python, str):  # ``prepare`` reports what is wrong with it
            version = python.version[:2]
            tags = (*cpython_tags(version), *compatible_tags(version, "cp{}{}".format(*version)))
            refuse_misfit(plan.given, tags, str(python))

    def machine(self) -> EngineMachine:
        """Return this machine, with the processors that this process may use."""
        return EngineMachine(identity=self.name, processors=len(os.sched_getaffinity(0)))

    def prepare(self, plan: RunPlan, observer: Observer) -> ImageFacts:
        """Create a fresh virtual environment with the plan's requirements.

        Raises ``PrerequisiteError`` before any download if this machine lacks a prerequisite of
        the run.
        """
        start = monotonic()
        require("the host engine", prerequisites_of(plan))
        base = base_python(plan.host)
        python = read_interpreter(base.path)
        if isinstance(python, str):  # it was one a moment ago
            raise InfrastructureError(python)
        with _typed_errors():
            folder = WorkFolder.create(plan)
            try:
                _make_environment(plan, base, folder, ImageLog(plan.results, observer))
            except BaseException:
                folder.remove()
                raise
        return ImageFacts(
            reference=f"virtual environment, Python {python.release}",
            digest=None,
            built=True,
            seconds=monotonic() - start,
            reason="always fresh on the host engine",
            requirements=file_digest(plan.host.requirements),
        )

    def execute(self, plan: RunPlan, image: ImageFacts, observer: Observer) -> ExecutionFacts:
        """Run the stages of ``plan`` in the environment that ``prepare`` made."""
        start = monotonic()
        folder = WorkFolder.find(plan)
        if folder is None:
            raise InfrastructureError(
                f"the virtual environment of run {plan.run_id} no longer exists"
            )
        sync_seconds, facts = 0.0, ExecutionFacts(engine=self.name, interrupted=True)
        notes = [*self.notes, *isolation_notes(plan, "the host engine")]
        agent = None
        try:
            with _typed_errors():
                notes += _copy_sources(plan, folder)
                if install := missing_packages(plan.system_packages):
                    # The image would have them. A run must not install packages into this system.
                    what = "some system_packages are not installed on this machine"
                    notes.append(f"{what}; to install them: {install}")
                sync_seconds = monotonic() - start
                agent = folder.start_agent(plan, _environment(plan, folder))
                facts = _follow_to_end(folder, plan, observer)
                if facts.lost and not facts.interrupted:  # it has ended, without a result
                    code = agent.wait()
                    facts = replace(facts, exit_code=code if code >= 0 else 128 - code)
                notes += _python_notes(plan, folder)
        except KeyboardInterrupt:
            pass
        finally:
            if not _stays(plan, facts):
                folder.remove()
            if agent is not None:
                agent.wait()
            remove_empty_cache(plan.cache)
        return replace(
            facts,
            image=image,
            sync_seconds=sync_seconds,
            wrapper_seconds=monotonic() - start,
            notes=tuple(notes),
        )

    def resume(self, plan: RunPlan, observer: Observer) -> ExecutionFacts | None:
        """Adopt the agent of a caller that died, whether it still runs or has ended."""
        start = monotonic()
        folder = WorkFolder.find(plan)
        if folder is None:
            return None
        facts = ExecutionFacts(engine=self.name, interrupted=True)
        try:
            # A cleaner of temporary files may have removed the folder.
            if folder.agent is None or not folder.output.is_file():
                return None
            with _typed_errors():
                facts = _follow_to_end(folder, plan, observer)
                notes = tuple(_python_notes(plan, folder))
        finally:
            if not _stays(plan, facts):
                folder.remove()
            remove_empty_cache(plan.cache)
        return replace(facts, wrapper_seconds=monotonic() - start, notes=notes)

    def enter(self, plan: RunPlan, *, interactive: bool) -> int:
        """Run a shell in the work folder of ``plan``, with the variables of its stages."""
        folder = WorkFolder.find(plan)
        if folder is None:
            raise InfrastructureError(f"the work folder of {plan.run_id} no longer exists")
        return _open_shell(folder, interactive=interactive)

    def settle(self, plan: RunPlan, *, keep: bool) -> str | None:
        """Keep the work folder of ``plan``, or remove it."""
        with _typed_errors():
            folder = WorkFolder.find(plan) or WorkFolder.find(plan, kept=True)
            if folder is None:
                return None
            if keep:
                folder.keep()
                return str(folder.path)
            folder.remove()
            return None

    def enter_kept(self, plan: RunPlan, observer: Observer, *, interactive: bool) -> int | None:
        """Run a shell in the kept work folder of ``plan``, with the variables of its stages."""
        for _ in range(MOST_STARTS):
            folder = WorkFolder.find(plan, kept=True)
            if folder is None or not folder.path.is_dir():
                return None
            doorway = Doorway(observer, plan.stages[-1].name)
            is_started_here = not folder.alive()
            try:
                with _typed_errors():
                    is_open = _is_held_open(folder, plan, doorway, is_started_here=is_started_here)
                if is_open:
                    doorway.enter()
                    return _open_shell(folder, interactive=interactive)
            except KeyboardInterrupt:
                if is_started_here and not doorway.is_open:
                    folder.signal(signal.SIGTERM)
                raise
            finally:
                remove_empty_cache(plan.cache)
            if doorway.reason:
                raise InfrastructureError(f"no shell was opened: {doorway.reason}")
        message = f"no shell was opened: its agent ended {MOST_STARTS} times at its start"
        raise InfrastructureError(message, remedy="Start a new run with --keep.")

    def prerequisites(self, *plans: RunPlan) -> Iterator[Finding]:
        """Yield what the plans need on this machine."""
        yield from prerequisites_of(*plans)

    def checks(self, _plan: EnginePlan, runs: Sequence[RunPlan]) -> Iterator[Finding]:
        """Check what runs need on this machine."""
        yield from machine_findings("; ".join(self.notes), runs)

    def leftovers(self) -> HostLeftovers:
        """Return the folders that earlier runs left on this machine."""
        return HostLeftovers()

    def describe(self, plan: RunPlan) -> Mapping[str, object]:
        """Return the virtual environment of ``plan``, and what the stages get from the caller."""
        return environment_description(plan, passed_variables(plan))


def missing_packages(wanted: SystemPackages) -> str | None:
    """Return the command that installs the packages that this machine lacks, or None.

    Without a known package manager no package counts as missing.
    """
    manager = package_manager()
    if manager is None:
        return None
    if manager == "apt-get":
        names = wanted.apt
        query = ["dpkg-query", "--show", "--showformat=${db:Status-Status}\\n"]
    else:
        names = wanted.dnf
        query = ["rpm", "--query", "--whatprovides", "--queryformat=installed\\n"]

    def is_installed(name: str) -> bool:
        answer = process.run([*query, name], check=False, timeout_s=QUERY_S)
        return "installed" in answer.stdout.splitlines()

    missing = [name for name in names if not is_installed(name)]
    return install_command(manager, missing) if missing else None


def _make_environment(plan: RunPlan, base: BasePython, folder: WorkFolder, log: ImageLog) -> None:
    if base.is_seen:
        folder.constraints.write_text(read_constraints(base, _environment(plan, folder)))
        log.write(origin_note(folder.constraints.read_text()))
    commands = [*creating_commands(plan.host, base, folder.venv)]
    if plan.host.requirements.read_bytes().strip():
        python = str(folder.venv / "bin" / "python")
        commands.append([python, *PIP_INSTALL, str(plan.host.requirements)])
    if base.is_seen:
        commands.append(checking_command(folder.venv, folder.constraints))
    report = {"PIP_REPORT": str(folder.venv / PIP_REPORT_OF_ENVIRONMENT)}
    environment = {**report, **_environment(plan, folder), **VENV_SETTINGS}
    for command in commands:
        # `python -m` imports from the current folder, which may be that of the sources.
        result = process.run(
            command, cwd=folder.path, environment=environment, on_line=log.write, check=False
        )
        if result.exit_code != 0:
            remedy = f"the whole log is {log.path}"
            if base.is_seen:
                remedy = f"require versions that are compatible with the packages of {base.path}"
                remedy += f", or name another Python with --python; {log.path} is the whole log"
            raise InfrastructureError(
                f"the virtual environment of platform {plan.platform} cannot be made{log.tail()}",
                remedy=remedy,
            )


def _environment(plan: RunPlan, folder: WorkFolder) -> Mapping[str, str]:
    """Return the passed variables, those that activate the environment, and the plan's."""
    ambient = passed_variables(plan)
    path = os.pathsep.join([str(folder.venv / "bin"), ambient.get("PATH", os.defpath)])
    active = {"PATH": path, "VIRTUAL_ENV": str(folder.venv)}
    constraints = folder.constraints if folder.constraints.exists() else None
    return host_settings(plan, constraints, {**ambient, **active})


def _python_notes(plan: RunPlan, folder: WorkFolder) -> Iterator[str]:
    """Yield notes on the Python of the environment, unless it is the caller's own."""
    if folder.constraints.exists():
        constraints = folder.constraints.read_text(errors="replace")
        yield origin_note(constraints)
        if pins := shadowed_packages(constraints, folder.venv):
            yield f"the stages replaced or shadowed {join_names(pins)}"
    elif plan.host.interpreter:
        yield f"the environment is one of {locate(plan.host.interpreter)}"


def _copy_sources(plan: RunPlan, folder: WorkFolder) -> list[str]:
    """Copy the sources through the same archive that a container gets, and a given file."""
    with TemporaryFile() as archive:
        left_out = source.write_archive(plan.source, archive, packed=plan.packed)
        archive.seek(0)
        refused = extract(chunks_of(archive), folder.workspace, links=True, modes=True)
    if plan.given is not None:
        folder.given.mkdir()
        shutil.copy(plan.given.path, folder.given)
    return [f"left out of the sources: {what}" for what in (*left_out, *refused)]


def _follow_to_end(folder: WorkFolder, plan: RunPlan, observer: Observer) -> ExecutionFacts:
    """Follow the agent until it ends."""
    reader = EventReader(LiveLogs(observer, {}), plan.results)  # the stages' logs are here already
    interrupted = False
    with folder.output.open("rb") as printed:
        try:
            _read_output(printed, reader, folder)
        except KeyboardInterrupt:
            interrupted = True
            say(observer, "interrupted: ending the running stage")
            folder.signal(signal.SIGTERM)
            _read_output(printed, reader, folder, timeout_s=STOP_GRACE_S)
    reader.complete()
    finished = reader.finished
    return ExecutionFacts(
        engine=HostEngine.name,
        exit_code=finished.exit_code if finished else None,
        lost=finished is None,
        interrupted=interrupted,
        unreadable_lines=reader.unreadable_lines,
        longest_line=reader.longest_line,
    )


def _stays(plan: RunPlan, facts: ExecutionFacts) -> bool:
    """Whether a work folder stays until its run is judged, to be kept if the platform failed."""
    return plan.keep and not facts.interrupted


def _is_held_open(
    folder: WorkFolder, plan: RunPlan, doorway: Doorway, *, is_started_here: bool
) -> bool:
    """Start the agent if necessary, and follow it until it holds the folder open."""
    variables, results = _environment(plan, folder), folder.path / plan.run_id
    start = partial(folder.start_agent, plan, variables, results) if is_started_here else None
    with TemporaryDirectory(prefix="infini-ci-kept-") as records, folder.output.open("rb") as file:
        reader = EventReader(doorway, Path(records))
        follow = partial(_read_output, file, reader, folder)
        return doorway.opens(reader, chunks_of(file), start, follow)


def _open_shell(folder: WorkFolder, *, interactive: bool) -> int:
    words = [ENTER, *([INTERACTIVE] if interactive else [])]
    # At a terminal, Ctrl-C is for the shell.
    with handle_interrupts(signal.SIG_IGN) if interactive else nullcontext():
        shell = subprocess.Popen([*folder.agent_program, *words])
        try:
            code = shell.wait()
        except KeyboardInterrupt:
            shell.terminate()  # it hangs up what runs in it
            shell.wait()
            raise
    if not folder.path.is_dir():
        message = f"work folder {folder.path} was removed, and its shells with it"
        raise InfrastructureError(message, remedy=OPEN_AGAIN)
    return code


def _read_output(
    printed: BinaryIO, reader: EventReader, folder: WorkFolder, *, timeout_s: float = math.inf
) -> None:
    """Read what the agent prints until it has ended."""
    deadline = monotonic() + timeout_s
    while monotonic() < deadline:
        alive = folder.alive()  # checked before reading: a dead agent prints no more
        if chunk := printed.read(CHUNK):
            reader.feed(chunk)
        elif alive:
            sleep(POLL_S)
        else:
            return


def _typed_errors() -> AbstractContextManager[None]:
    """Turn errors of the disk and of the system into typed ones."""
    remedy = "check the disk's free space and the permissions of its folders, then run again"
    return typed_errors("the run on this machine", OSError, remedy=remedy)
