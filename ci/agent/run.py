"""Execute a job: its stages one after the other, then its artifacts."""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Sequence

from ci.agent import pytest_stage, session, shards
from ci.agent.artifacts import collect
from ci.agent.compiler_cache import CompilerCache
from ci.agent.lease import LeaseError, Leases
from ci.agent.machine import build_settings, machine_facts, tool_facts
from ci.agent.network import NetworkError, wait_until_isolated
from ci.agent.output import EventLog, StageOutput
from ci.agent.stage import (
    FollowedStage,
    Stage,
    StageCommand,
    SupervisorError,
    adopt_orphans,
    follow_stages,
)
from ci.agent.stage_progress import GrowingFile, ProgressWatch
from ci.agent.user import Handover, LogPipe, StageUser
from ci.model import events
from ci.model.job import NETRC, PROTOCOL, Job, StageKind, StagePlan

INTERRUPTED = 130
RESTARTED = 1


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


class JobRun:
    """One job, from ``run_started`` to ``run_finished``."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._workspace = Path(job.workspace)
        self._results = Path(job.results)
        self._results.mkdir(parents=True, exist_ok=True)
        # Otherwise a Python process that dies loses its last lines, such as pytest's summary.
        unbuffered = {"PYTHONUNBUFFERED": "1"}
        self._environment = {**unbuffered, **os.environ, **job.environment}
        self._user = StageUser.find(job.user) if job.user is not None else None
        if self._user is not None and "HOME" not in job.environment:
            self._environment["HOME"] = self._user.home  # an engine sets that of the agent
        self._handover = Handover(self._results, self._user)
        self._cache = CompilerCache(
            job.compiler_cache, self._environment, self._results, self._handover
        )
        self._environment.update(self._cache.variables)
        self._credentials: dict[str, str] = {}
        if job.credentials is not None:
            with suppress(FileNotFoundError):  # in a container that was restarted
                lines = Path(job.credentials).read_text(encoding="utf-8").splitlines()
                Path(job.credentials).unlink()
                self._credentials = dict(line.split("=", 1) for line in lines)
        self._log = EventLog(self._results / "events.jsonl")
        self._running: list[Stage] = []
        self._signal: int | None = None
        self._reruns: pytest_stage.Reruns | None = None
        self._leases: Leases | None = None
        if job.devices is not None and any(stage.device for stage in job.stages):
            self._leases = Leases(
                job.devices,
                run_id=job.run_id,
                platform=job.platform,
                environment=self._environment,
                emit=self._log.emit,
                stopped=lambda: self._interrupted,
            )

    @property
    def _interrupted(self) -> bool:
        return self._signal is not None

    def execute(self) -> int:
        """Run everything and return the exit code: 0, 1, or 130 when interrupted.

        In a container that was restarted nothing runs a second time: the workspace is used, and
        the results of the first time would be overwritten.
        """
        if self._log.begun:
            self._log.emit(events.AgentRestarted())
            return RESTARTED
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._interrupt)
        adopt_orphans()  # of a supervisor that is killed
        job, facts = self._job, machine_facts()
        built = build_settings([self._stage_environment(stage) for stage in job.stages])
        self._describe(machine=facts, **built)  # the rest is known after the stages
        self._log.emit(
            events.RunStarted(PROTOCOL, job.run_id, job.platform, pid=os.getpid(), machine=facts)
        )
        self._cache.begin(stopped=lambda: self._interrupted)
        passed = self._run_stages()
        for artifact in job.artifacts:
            lack = collect(artifact, self._workspace, self._results, self._handover.access)
            if lack is not None:
                self._log.emit(lack)
        tools = tool_facts(self._environment, self._workspace, job.device_compiler, self._user)
        described = {"machine": facts, **built, **tools, "compiler_cache": self._cache.facts()}
        self._describe(**described)
        if self._reruns is not None and not self._interrupted:
            self._reruns.run()
            self._release()
            self._describe(**described)  # with the final state of the devices
        self._handover.remove()
        code = INTERRUPTED if self._interrupted else 0 if passed else 1
        self._log.emit(
            events.RunFinished(
                exit_code=code, interrupted=self._interrupted, signal_received=self._signal
            )
        )
        return code

    def _run_stages(self) -> bool:
        reason, failed = self._lease_for(None), None
        for stage in self._job.stages:
            reason = reason or (None if stage.hold else failed)
            # First, since waiting for the engine must not keep others from a device.
            reason = reason or self._isolate(stage) or self._lease_for(stage)
            if self._interrupted:
                reason = "not run: interrupted"
            if reason is not None:
                self._log.emit(events.StageSkipped(stage=stage.name, reason=reason))
                continue
            try:
                end = self._run_stage(stage)
            except SupervisorError as error:
                lost = f"the supervisor of stage {stage.name} {error}"
                self._log.emit(events.StageLost(stage=stage.name, reason=lost))
                reason = f"not run: {lost}"
                continue
            if end.failed:
                failed = failed or f"not run: {stage.name} failed"
            if end.failed and stage.reruns:  # run after everything else
                reruns = pytest_stage.Reruns(
                    replace(stage, shards=1),
                    results=self._results,
                    environment=self._stage_environment(stage),
                    emit=self._log.emit,
                    carry_out=self._carry_out,
                    handover=self._handover,
                    logs=shards.files_of(stage, pytest_stage.LOG),
                )
                self._reruns = reruns if reruns.can_run(end) else None
        if self._reruns is None:  # reruns still need the devices
            self._release()
        return reason is None and failed is None

    def _lease_for(self, stage: StagePlan | None) -> str | None:
        """Lease the devices that a stage needs, and no others; return the reason if impossible.

        Consecutive stages keep the lease: another run between them could take an hour. Before the
        first stage (``None``), check for errors that waiting cannot fix.
        """
        if self._leases is None:
            return None
        try:
            if stage is None:
                self._leases.check()
            elif stage.device:
                self._leases.take(stage.name)
            else:
                self._leases.release()
        except LeaseError as error:
            name = stage.name if stage else None
            self._log.emit(events.LeaseFailed(stage=name, reason=str(error), text=str(error)))
            return f"not run: {error}"
        return None

    def _isolate(self, stage: StagePlan) -> str | None:
        """Wait for the removal of the network, if the stage asks for it; return why it remains."""
        if not stage.isolated:
            return None
        try:
            wait_until_isolated(stage, self._job.run_id, self._log.emit, lambda: self._interrupted)
        except NetworkError as error:
            reason = str(error)
            self._log.emit(events.NetworkRemained(stage.name, reason=reason, text=reason))
            return f"not run: {reason}"
        return None

    def _release(self) -> None:
        if self._leases is not None:
            self._leases.release()

    def _run_stage(self, stage: StagePlan) -> events.CommandEnd:
        with ExitStack() as stack:
            processes = [self._process(stage, shard, stack) for shard in range(stage.shards)]
            command = processes[0].stage.command
            self._log.emit(events.StageStarted(stage=stage.name, command=command))
            ends = self._follow(stage.name, processes)
            with self._handover.access():
                statuses = [
                    pytest_stage.pytest_status(it.statuses) if it.statuses else None
                    for it in processes
                ]
                selections = [
                    shards.read_selection(it.selection) for it in processes if it.selection
                ]
        if stage.kind is StageKind.PYTEST:
            for name in shards.files_of(stage, pytest_stage.JUNIT):
                if self._handover.take(name):
                    self._log.emit(events.ArtifactCut(name=name, path=name, left_out=1))
        for number, (end, status, selection) in enumerate(zip(ends, statuses, selections), 1):
            facts = {**asdict(end), **selection._asdict(), "pytest_status": status}
            self._log.emit(events.ShardFinished(stage=stage.name, shard=number, **facts))
        end, status = shards.combined_end(ends), shards.combined_status(statuses)
        finished = events.StageFinished(stage=stage.name, **asdict(end), pytest_status=status)
        self._log.emit(finished)
        return end

    def _process(self, stage: StagePlan, shard: int, stack: ExitStack) -> StageProcess:
        """Prepare the command of a stage, or of one of its shards, until ``stack`` ends."""
        tests, is_whole = stage.kind is StageKind.PYTEST, stage.shards == 1
        log_name = shards.files_of(stage, pytest_stage.LOG)[shard] if tests else None
        log, pipe = stack.enter_context(self._handover.log(log_name))
        junit = self._handover.path(shards.files_of(stage, pytest_stage.JUNIT)[shard])
        command = (*stage.command, *pytest_stage.extra_arguments(stage, log, junit))
        if stage.hold:
            command = (sys.executable, "-I", sys.argv[0], session.HOLD)
        other = self._user is not None
        folder = stack.enter_context(pytest_stage.status_folder(stage, log, other_user=other))
        variables = dict(stage.environment)
        if folder is not None:
            own = self._stage_environment(stage).get("PYTHONPATH")
            variables["PYTHONPATH"] = pytest_stage.python_path(own, str(folder))
        changed = replace(stage, command=command, environment=variables)
        changed = stack.enter_context(pytest_stage.only_tests(changed, self._environment))
        selection = None
        if not is_whole:
            selected = shards.only_shard(changed, shard, self._environment, other_user=other)
            changed, selection = stack.enter_context(selected)
        output = shards.files_of(stage, f"{stage.name}.log")[shard]
        return StageProcess(changed, output, pipe, shard, statuses=folder, selection=selection)

    def _carry_out(self, name: str, stage: StagePlan, pipe: LogPipe | None) -> events.CommandEnd:
        """Run the command of a stage, with its output in ``<name>.log``.

        ``pipe`` is the one that its pytest, if it runs one, writes its log to.
        """
        return self._follow(name, [StageProcess(stage, f"{name}.log", pipe)])[0]

    def _follow(self, name: str, processes: Sequence[StageProcess]) -> list[events.CommandEnd]:
        """Run commands side by side, and show their output and progress under one name."""
        rate = self._job.printed_bytes_per_s // len(processes)
        with ExitStack() as stack:
            self._running = [self._start(it, len(processes), stack) for it in processes]
            if self._interrupted:  # the signal came before the stage existed
                self._end_running()
            group: list[ProgressWatch] = []
            outputs = [
                StageOutput(
                    self._results / it.output,
                    self._log.printer,
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
        credentials = self._credentials if stage.credentials else {}
        if NETRC in credentials:
            file = stack.enter_context(self._handover.private_file(credentials[NETRC]))
            credentials = {**credentials, NETRC: file}
        leases = self._leases if stage.device else None
        leased = leases.variables(process.shard) if leases else {}
        return Stage(
            StageCommand(
                stage.command,
                environment={**self._environment, **credentials, **stage.environment, **leased},
                workspace=self._workspace,
                timeout_s=stage.timeout_s,
                inherited=leases.descriptors if leases else (),
                user=self._user,
                processors=shards.processors_of(process.shard, of),
            )
        )

    def _watch(self, name: str, process: StageProcess, group: list[ProgressWatch]) -> ProgressWatch:
        stage, cache = process.stage, self._cache.log if process.shard == 0 else None
        has_tests = stage.kind is StageKind.PYTEST and name == stage.name  # no rerun of some
        log = shards.files_of(stage, pytest_stage.LOG)[process.shard]
        return ProgressWatch(
            name,
            tests=GrowingFile(self._results / log) if has_tests else None,
            cache=GrowingFile(cache, self._handover.access) if cache else None,
            group=group,
        )

    def _stage_environment(self, stage: StagePlan) -> dict[str, str]:
        return {**self._environment, **stage.environment}

    def _interrupt(self, number: int, _frame: FrameType | None) -> None:
        self._signal = number
        self._end_running()

    def _end_running(self) -> None:
        for stage in self._running:
            stage.end()

    def _describe(self, **facts: object) -> None:
        """Write the environment of the stages, as far as it is known now."""
        if self._leases is not None:
            found = self._leases.detection
            facts["detection"] = {"status": found.status, "reason": found.reason}
            facts["devices"] = self._leases.records
        path = self._results / "environment.json"
        temporary = path.with_suffix(".tmp")
        text = json.dumps(facts, indent=2, sort_keys=True) + "\n"
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
