"""Run a stage: its command as one process, or as several that share its tests."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Callable, Mapping, Sequence

from ci.agent import pytest_stage, session, shards
from ci.agent.compiler_cache import CompilerCache
from ci.agent.follow import FollowedStage, follow_stages
from ci.agent.lease import Leases
from ci.agent.output import EventLog, StageOutput
from ci.agent.stage import Stage, StageCommand
from ci.agent.stage_progress import GrowingFile, ProgressWatch
from ci.agent.user import Handover, LogPipe
from ci.protocol import events
from ci.protocol.agent_files import JUNIT, PYTEST_LOG, files_of
from ci.protocol.job import NETRC, Job, StagePlan
from ci.protocol.stable_names import run_folders
from ci.protocol.stage_kind import StageKind


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

    def pytest_runs(self) -> pytest_stage.PytestRuns:
        """Return the runs of pytest in a wrapper, once it has ended; empty if unknown."""
        if self.statuses is None:
            return pytest_stage.PytestRuns()
        return pytest_stage.pytest_runs(self.statuses)

    def collection(self) -> shards.ShardCollection:
        """Return what the pytest of a shard collected; empty if it is no shard."""
        return (
            shards.read_collection(self.selection) if self.selection else shards.ShardCollection()
        )


@dataclass
class StageRunner:
    """Runs stages with what all stages of a job share."""

    job: Job
    environment: Mapping[str, str]
    """The variables that all stages inherit."""
    credentials: Mapping[str, str]
    """Further ones, for the stages that may have them."""
    handover: Handover
    cache: CompilerCache
    leases: Leases | None
    log: EventLog
    stopped: Callable[[], bool]
    """Whether the job is to end."""
    _running: list[Stage] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._results = Path(self.job.results)

    def end_running(self) -> None:
        """Ask the running processes to end."""
        for stage in self._running:
            stage.end()

    def run(self, stage: StagePlan) -> events.CommandEnd:
        """Run a stage, and report how it and its shards ended."""
        with ExitStack() as stack:
            processes = [self._process(stage, shard, stack) for shard in range(stage.shards)]
            command = processes[0].stage.command
            self.log.emit(events.StageStarted(stage=stage.name, command=command))
            ends = self._follow(stage.name, processes)
            with self.handover.access():
                runs = [it.pytest_runs() for it in processes]
                collections = [it.collection() for it in processes]
        if stage.kind is StageKind.PYTEST:
            for name in files_of(stage, JUNIT):
                if self.handover.take(name):
                    self.log.emit(events.ArtifactCut(name=name, path=name, left_out=1))
        if stage.shards > 1:
            for shard, (end, (status, number), found) in enumerate(zip(ends, runs, collections), 1):
                facts = {**asdict(end), **found._asdict()}
                facts.update(pytest_status=status, pytest_runs=number)
                self.log.emit(events.ShardFinished(stage=stage.name, shard=shard, **facts))
        end, (status, number) = shards.combined_end(ends), shards.combined_runs(runs)
        facts = {**asdict(end), "pytest_status": status, "pytest_runs": number}
        self.log.emit(events.StageFinished(stage=stage.name, **facts))
        return end

    def carry_out(self, name: str, stage: StagePlan, pipe: LogPipe | None) -> events.CommandEnd:
        """Run the command of a stage, with its output in ``<name>.log``.

        ``pipe`` is the one that its pytest, if it runs one, writes its log to.
        """
        return self._follow(name, [StageProcess(stage, f"{name}.log", pipe)])[0]

    def _process(self, stage: StagePlan, shard: int, stack: ExitStack) -> StageProcess:
        """Prepare the command of a stage, or of one of its shards, until ``stack`` ends."""
        names = (PYTEST_LOG, JUNIT, f"{stage.name}.log")
        log_name, junit_name, output = (files_of(stage, name)[shard] for name in names)
        has_log = stage.kind is StageKind.PYTEST
        log, pipe = stack.enter_context(self.handover.log(log_name if has_log else None))
        junit = self.handover.path(junit_name)
        workspace = Path(self.job.workspace)
        with self.handover.access():  # the files of the tests have options of pytest
            added = pytest_stage.extra_arguments(stage, log, junit, self.environment, workspace)
        command = (*stage.command, *added)
        if stage.hold:
            command = (sys.executable, "-I", sys.argv[0], session.HOLD)
        other = self.handover.user is not None
        folder = stack.enter_context(pytest_stage.status_folder(stage, log, other_user=other))
        variables = dict(stage.environment)
        if folder is not None:
            own = {**self.environment, **variables}.get("PYTHONPATH")
            variables["PYTHONPATH"] = pytest_stage.python_path(own, str(folder))
        changed = replace(stage, command=command, environment=variables)
        folders = run_folders(self.job.workspace)
        only = pytest_stage.only_tests(changed, self.environment, folders)
        changed = stack.enter_context(only)
        selection = None
        if stage.shards > 1:
            selected = shards.only_shard(
                changed, shard, self.environment, folders, other_user=other
            )
            changed, selection = stack.enter_context(selected)
        return StageProcess(changed, output, pipe, shard, statuses=folder, selection=selection)

    def _follow(self, name: str, processes: Sequence[StageProcess]) -> list[events.CommandEnd]:
        """Run commands side by side, and show their output and progress under one name."""
        rate = self.job.printed_bytes_per_s // len(processes)
        with ExitStack() as stack:
            self._running = [self._start(it, len(processes), stack) for it in processes]
            if self.stopped():  # the signal came before the stage existed
                self.end_running()
            group: list[ProgressWatch] = []
            outputs = [
                StageOutput(
                    self._results / it.output,
                    self.log.printer,
                    stage=name,
                    bytes_per_s=rate,
                    progress=self._watch(name, it, group),
                )
                for it in processes
            ]
            try:
                return follow_stages(
                    [
                        FollowedStage(running, output, it.pipe)
                        for running, output, it in zip(self._running, outputs, processes)
                    ]
                )
            finally:
                for output in outputs:
                    output.finish()
                self._running = []

    def _start(self, process: StageProcess, of: int, stack: ExitStack) -> Stage:
        """Start a command, one ``of`` so many; its passwords are in a file until ``stack`` ends."""
        stage = process.stage
        credentials = self.credentials if stage.credentials else {}
        if NETRC in credentials:
            file = stack.enter_context(self.handover.private_file(credentials[NETRC]))
            credentials = {**credentials, NETRC: file}
        leases = self.leases if stage.device else None
        leased = leases.variables(process.shard) if leases else {}
        return Stage(
            StageCommand(
                stage.command,
                environment={**self.environment, **credentials, **stage.environment, **leased},
                workspace=Path(self.job.workspace),
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
            tests=GrowingFile(self._results / log) if has_tests else None,
            cache=GrowingFile(cache, self.handover.access) if cache else None,
            group=group,
        )
