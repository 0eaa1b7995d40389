"""Run a stage: its command as one process, or as several that share its tests; run tests again."""

from __future__ import annotations

import os
import sys
import time
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Callable, Sequence

from ci.agent import pytest_stage, session, shards
from ci.agent.artifacts import collect, remove_results
from ci.agent.compiler_cache import CompilerCache
from ci.agent.follow import FollowedStage, follow_stages
from ci.agent.lease import Leases
from ci.agent.output import EventLog, StageOutput
from ci.agent.stage import Stage, StageCommand, SupervisorError
from ci.agent.stage_progress import GrowingFile, ProgressWatch
from ci.agent.user import Handover, LogPipe, StageUser
from ci.agent.vendor_stack import bound_libraries
from ci.protocol import events
from ci.protocol.agent_files import (
    EVENTS,
    JUNIT,
    PIP_REPORT,
    PYTEST_LOG,
    benchmark_file,
    files_of,
)
from ci.protocol.job import NETRC, ArtifactPlan, Job, StagePlan
from ci.protocol.stable_names import run_folders
from ci.protocol.stage_kind import StageKind

LEAST_FREE = 1 << 20  # bytes; with fewer, pytest cannot write the traceback of what failed


@dataclass(frozen=True)
class StageProcess:
    """A command of a stage: the whole stage, one of its shards, or a rerun of its tests."""

    stage: StagePlan
    """The stage, with the command and the variables of this process."""
    output: str
    """The file of its output."""
    pipe: LogPipe | None = None
    """What its pytest, if it runs one, writes its log to."""
    shard: int = 0
    """From 0 on."""
    statuses: Path | None = None
    """The folder of the plugin that records pytest's exit status."""
    selection: Path | None = None
    """The folder of the plugin that selects the tests of a shard."""


class StageRunner:
    """Runs the stages of a job, with what all of them share.

    Attributes:
        environment: the variables that all stages inherit
        credentials: further ones, for the stages that may have them
        leases: ``None`` if no stage has devices
        stopped: whether the job is to end
        disk_full: whether a stage met a full disk
        pip_reports: the files in which pip reports of the stages, in their order
    """

    def __init__(self, job: Job, stopped: Callable[[], bool]) -> None:
        self.job = job
        self.stopped = stopped
        self.workspace, self.results = Path(job.workspace), Path(job.results)
        self.results.mkdir(parents=True, exist_ok=True)
        # Otherwise a Python process that dies loses its last lines, such as pytest's summary.
        unbuffered = {"PYTHONUNBUFFERED": "1"}
        self.environment = {**unbuffered, **os.environ, **job.environment}
        user = StageUser.find(job.user) if job.user is not None else None
        if user is not None and "HOME" not in job.environment:
            self.environment["HOME"] = user.home  # an engine sets that of the agent
        self.handover = Handover(self.results, user)
        self.cache = CompilerCache(job.compiler_cache, self.environment, self.handover)
        self.environment.update(self.cache.variables)
        self.credentials = _take_credentials(job)
        self.log = EventLog(self.results / EVENTS)
        self.leases: Leases | None = None
        if job.devices is not None and any(stage.device for stage in job.stages):
            self.leases = Leases(
                job.devices,
                run_id=job.run_id,
                platform=job.platform,
                environment=self.environment,
                emit=self.log.emit,
                stopped=stopped,
            )
        self.disk_full = False
        self.pip_reports: list[str] = []
        self._running: list[Stage] = []

    def end_running(self) -> None:
        """Ask the running processes to end."""
        for stage in self._running:
            stage.end()

    def run(self, stage: StagePlan) -> events.CommandEnd:
        """Run a stage, and report how it and its shards ended."""
        # Older results, such as those in the sources, are not of this run.
        results = ArtifactPlan(benchmark_file(stage.name), stage.benchmarks)
        is_new = bool(stage.benchmarks) and remove_results(
            self.workspace / stage.benchmarks, self.handover.access
        )
        with ExitStack() as stack:
            processes = [self._process(stage, shard, stack) for shard in range(stage.shards)]
            command = processes[0].stage.command
            self.log.emit(events.StageStarted(stage=stage.name, command=command))
            ends = self.follow(stage.name, processes)
            with self.handover.access():
                runs = [pytest_stage.read_runs(it.statuses) for it in processes]
                collections = [shards.read_collection(it.selection) for it in processes]
        if stage.kind is StageKind.PYTEST:
            for name in files_of(stage, JUNIT):
                if self.handover.take(name):
                    self.log.emit(events.ArtifactCut(name=name, path=name, left_out=1))
        if stage.benchmarks:  # now, before a later stage can change them
            lack: events.Event | None = events.ArtifactMissing(results.name, results.path)
            if is_new:
                lack = collect(results, self.workspace, self.results, self.handover.access)
            if lack is not None:
                self.log.emit(lack)
        if stage.shards > 1:
            for shard, (end, run, found) in enumerate(zip(ends, runs, collections), 1):
                facts = {**asdict(end), **run._asdict(), **found._asdict()}
                self.log.emit(events.ShardFinished(stage=stage.name, shard=shard, **facts))
        end = shards.combined_end(ends)
        is_cut = any(it.pipe is not None and it.pipe.is_cut for it in processes)
        if (end.failed or is_cut) and (text := self._full_disk(stage.name, is_cut=is_cut)):
            self.disk_full = True
            self.log.emit(events.DiskFull(stage.name, text))
        facts = {**asdict(end), **shards.combined_runs(runs)._asdict()}
        self.log.emit(events.StageFinished(stage=stage.name, **facts))
        return end

    def _full_disk(self, stage: str, *, is_cut: bool) -> str | None:
        """Say which folder of a stage is full; ``None``: none is, and no log lacks its end."""
        for folder in (self.results, self.workspace):
            disk = os.statvfs(folder)
            free = disk.f_bavail * disk.f_frsize
            no_file = disk.f_files and not disk.f_favail  # some file systems do not count them
            if is_cut or no_file or free < LEAST_FREE:
                room = f"{free:,} bytes" + (f", {disk.f_favail:,} files" if disk.f_files else "")
                return f"{stage} met a full disk; room that {folder} had at its end: {room}"
        return None

    def complete(self, stage: StagePlan, stack: ExitStack) -> StagePlan:
        """Return a stage with all its variables; passwords are in a file until ``stack`` ends."""
        credentials = self.credentials if stage.credentials else {}
        if NETRC in credentials:
            file = stack.enter_context(self.handover.private_file(credentials[NETRC]))
            credentials = {**credentials, NETRC: file}
        variables = {**self.environment, **credentials, **stage.environment}
        if stage.kind is StageKind.COMMAND:
            # pip alone knows the file that it got from an index, and a later stage has another pip.
            report = self.handover.shared_file(f"{PIP_REPORT}{stage.name}.json")
            if report is not None:  # pip fails where it cannot write one
                self.pip_reports.append(str(report))
                variables = {"PIP_REPORT": str(report), **variables}
        return replace(stage, environment=variables)

    def bound_libraries(self, stage: StagePlan, given: Sequence[str]) -> dict[str, Any]:
        """Return the libraries that the project is bound to, as a stage that just ended found them.

        To import the project may open a device: this run must still have its lease.
        """
        variables = {**self.environment, **stage.environment}
        if self.leases and stage.device:
            variables.update(self.leases.variables(0))
        return bound_libraries(variables, self.workspace, self.results, given, self.handover.user)

    def _process(self, stage: StagePlan, shard: int, stack: ExitStack) -> StageProcess:
        """Prepare the command of a stage, or of one of its shards, until ``stack`` ends."""
        stage = self.complete(stage, stack)
        names = (PYTEST_LOG, JUNIT, f"{stage.name}.log")
        log_name, junit_name, output = (files_of(stage, name)[shard] for name in names)
        if stage.kind is not StageKind.PYTEST:
            held = (sys.executable, "-I", sys.argv[0], session.HOLD)
            changed = replace(stage, command=held) if stage.hold else stage
            return StageProcess(changed, output, shard=shard)
        handover = self.handover
        log, pipe = stack.enter_context(handover.log(log_name))
        with handover.access():  # the files of the tests have options of pytest
            added = pytest_stage.log_arguments(stage, log, self.workspace)
        variables = dict(stage.environment)
        statuses = stack.enter_context(pytest_stage.status_folder(stage, log, handover))
        if statuses is not None:
            own = variables.get("PYTHONPATH")
            variables["PYTHONPATH"] = pytest_stage.python_path(own, str(statuses))
        command = (*stage.command, *added, f"--junitxml={handover.path(junit_name)}")
        changed = replace(stage, command=command, environment=variables)
        folders, selection = run_folders(self.job.workspace), None
        if stage.only:
            folder = stack.enter_context(pytest_stage.selection_folder(handover))
            changed = pytest_stage.select_tests(changed, folder, stage.only, (), folders)
        if stage.shards > 1:
            selected = shards.only_shard(changed, shard, folders, handover)
            changed, selection = stack.enter_context(selected)
        return StageProcess(changed, output, pipe, shard, statuses, selection)

    def follow(self, name: str, processes: Sequence[StageProcess]) -> list[events.CommandEnd]:
        """Run commands side by side, and show their output and progress under one name."""
        rate = self.job.printed_bytes_per_s // len(processes)
        self._running = [self._start(it, len(processes)) for it in processes]
        if self.stopped():  # the signal came before the stage existed
            self.end_running()
        group: list[ProgressWatch] = []
        followed = []
        for it, running in zip(processes, self._running):
            log, watch = self.results / it.output, self._watch(name, it, group)
            output = StageOutput(log, self.log.printer, name, rate, watch)
            followed.append(FollowedStage(running, output, it.pipe))
        try:
            return follow_stages(followed)
        finally:
            for stage in followed:
                stage.output.finish()
            self._running = []

    def _start(self, process: StageProcess, of: int) -> Stage:
        """Start a command, one ``of`` so many."""
        stage = process.stage
        leases = self.leases if stage.device else None
        leased = leases.variables(process.shard) if leases else {}
        return Stage(
            StageCommand(
                stage.command,
                environment={**stage.environment, **leased},
                workspace=self.workspace,
                timeout_s=stage.timeout_s,
                inherited=leases.descriptors if leases else (),
                user=self.handover.user,
                processors=shards.processors_of(process.shard, of),
            )
        )

    def _watch(self, name: str, process: StageProcess, group: list[ProgressWatch]) -> ProgressWatch:
        stage, cache = process.stage, self.cache.log if process.shard == 0 else None
        has_tests = stage.kind is StageKind.PYTEST and name == stage.name  # no rerun of some
        log = files_of(stage, PYTEST_LOG)[process.shard]
        return ProgressWatch(
            name,
            tests=GrowingFile(self.results / log) if has_tests else None,
            cache=GrowingFile(cache, self.handover.access) if cache else None,
            group=group,
        )


def _take_credentials(job: Job) -> dict[str, str]:
    """Read the variables with passwords, and remove their file."""
    if job.credentials is not None:
        with suppress(FileNotFoundError):  # in a container that was restarted
            lines = Path(job.credentials).read_text(encoding="utf-8").splitlines()
            Path(job.credentials).unlink()
            return dict(line.split("=", 1) for line in lines)
    return {}


class Reruns:
    """Reruns of the failed tests of a pytest stage: evidence of flaky tests, not a verdict."""

    def __init__(self, runner: StageRunner, stage: StagePlan) -> None:
        self._runner, self._stage = runner, stage
        logs = files_of(stage, PYTEST_LOG)
        self._tests = pytest_stage.failed_tests(*(runner.results / log for log in logs))
        self._last: set[str] = set()

    def can_run(self, end: events.CommandEnd) -> bool:
        """Return whether there are tests to rerun; if not, an event has the reason."""
        reason = pytest_stage.rerun_refusal(end, self._tests)
        if reason is not None:
            self._report_end(reason)
        return reason is None

    def run(self) -> None:
        """Make all attempts that the stage configures, within the stage's own time limit."""
        limit_s, most = self._stage.timeout_s, self._stage.reruns
        deadline = time.monotonic() + limit_s
        with pytest_stage.selection_folder(self._runner.handover) as folder:
            for attempt in range(1, most + 1):
                try:
                    end = self._attempt(attempt, folder, deadline)
                except SupervisorError as error:
                    self._report_end(f"the supervisor of rerun {attempt} {error}")
                    return
                if end.timed_out:
                    self._report_end(
                        f"rerun {attempt} of {most} reached the time limit of {limit_s:g} s"
                    )
                if end.ended_early:
                    return

    def _attempt(self, attempt: int, folder: Path, deadline: float) -> events.CommandEnd:
        runner, name, tests = self._runner, self._stage.name, self._tests or ()
        log = runner.results / f"pytest.rerun-{attempt}.jsonl"
        text = f"{name}: rerun {attempt} of the failed tests ({len(tests)})"
        runner.log.emit(events.RerunStarted(stage=name, attempt=attempt, text=text))
        with ExitStack() as stack:
            written, pipe = stack.enter_context(runner.handover.log(log.name))
            stage = runner.complete(replace(self._stage, shards=1), stack)
            # The names are those of a log of this very run.
            chosen = pytest_stage.select_tests(stage, folder, tests, self._last, ())
            with runner.handover.access():
                added = pytest_stage.log_arguments(chosen, written, runner.workspace)
            rerun = replace(
                chosen,
                command=(*chosen.command, *added),
                timeout_s=max(deadline - time.monotonic(), 0.0),
            )
            output = f"{name}.rerun-{attempt}"
            [end] = runner.follow(output, [StageProcess(rerun, f"{output}.log", pipe)])
        self._last |= pytest_stage.unfinished_tests(log)  # tests that kill the process run last
        runner.log.emit(events.RerunFinished(stage=name, attempt=attempt, **asdict(end)))
        return end

    def _report_end(self, reason: str) -> None:
        name = self._stage.name
        text = f"{name}: no more reruns: {reason}"
        self._runner.log.emit(events.RerunsEnded(stage=name, reason=reason, text=text))
