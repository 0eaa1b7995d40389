"""Execute a job: its stages one after the other, then its artifacts."""

from __future__ import annotations

import json
import os
import signal
from types import FrameType
from typing import Any

from ci.agent.artifacts import collect
from ci.agent.distributions import Distributions
from ci.agent.lease import LeaseError
from ci.agent.machine import build_settings, machine_facts, tool_facts
from ci.agent.network import NetworkError, wait_until_isolated
from ci.agent.stage import SupervisorError, adopt_orphans
from ci.agent.stage_runner import Reruns, StageRunner
from ci.agent.vendor_stack import sdk_versions
from ci.protocol import events
from ci.protocol.agent_files import ENVIRONMENT
from ci.protocol.job import DISK_FULL, PROTOCOL, Job, StagePlan
from ci.protocol.stable_names import run_folders
from ci.protocol.stage_kind import StageKind

INTERRUPTED = 130
RESTARTED = 1
LEFT_OUT = "not run: only another stage was asked for"


class JobRun:
    """One job, from ``run_started`` to ``run_finished``."""

    def __init__(self, job: Job) -> None:
        self._signal: int | None = None
        self._reruns: Reruns | None = None
        self._libraries: dict[str, Any] = {}
        self._job = job
        self._runner = StageRunner(job, stopped=lambda: self._interrupted)
        self._log, self._leases = self._runner.log, self._runner.leases
        runner = self._runner
        self._distributions = Distributions(
            job.distributions, runner.workspace, runner.results, runner.handover.access
        )

    @property
    def _interrupted(self) -> bool:
        return self._signal is not None

    def execute(self) -> int:
        """Run everything and return the exit code: 0, 1, ``DISK_FULL``, or 130 when interrupted.

        In a container that was restarted nothing runs a second time: the workspace is used, and
        the results of the first time would be overwritten.
        """
        if self._log.begun:
            self._log.emit(events.AgentRestarted())
            return RESTARTED
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._interrupt)
        adopt_orphans()  # of a supervisor that is killed
        job, runner, facts = self._job, self._runner, machine_facts()
        built = build_settings([{**runner.environment, **it.environment} for it in job.stages])
        self._describe(machine=facts, **built)  # the rest is known after the stages
        self._log.emit(
            events.RunStarted(
                PROTOCOL,
                job.run_id,
                job.platform,
                pid=os.getpid(),
                machine=facts,
                folders=run_folders(job.workspace),
            )
        )
        runner.cache.begin(runner.stopped)
        self._distributions.begin()
        passed = self._run_stages()
        self._collect_distributions()
        for artifact in job.artifacts:
            lack = collect(artifact, runner.workspace, runner.results, runner.handover.access)
            # The stages that make it do not run if a distribution is given.
            is_expected = self._distributions.are_given and isinstance(lack, events.ArtifactMissing)
            if lack is not None and not is_expected:
                self._log.emit(lack)
        user = runner.handover.user
        place = runner.environment, runner.workspace
        tools = tool_facts(*place, job.device_compiler, user, runner.pip_reports)
        sdk = sdk_versions(job.device_compiler, runner.environment)
        stack = {"sdk": sdk, "libraries": self._libraries}
        described = {"machine": facts, **built, **tools, **stack}
        described["compiler_cache"] = runner.cache.facts()
        self._describe(**described)
        if self._reruns is not None and not self._interrupted:
            self._reruns.run()
            if self._leases is not None:
                self._leases.release()
            self._describe(**described)  # with the final state of the devices
        runner.handover.remove()
        code = DISK_FULL if runner.disk_full else 0 if passed else 1
        code = INTERRUPTED if self._interrupted else code
        self._log.emit(
            events.RunFinished(
                exit_code=code, interrupted=self._interrupted, signal_received=self._signal
            )
        )
        return code

    def _run_stages(self) -> bool:
        reason, failed = self._lease_for(None), None
        importing = self._importing_stage()
        given = self._job.distributions.given if self._job.distributions else ()
        for stage in self._job.stages:
            if stage.left_out:
                self._log.emit(events.StageSkipped(stage=stage.name, reason=LEFT_OUT))
                continue
            reason = reason or (None if stage.hold else failed)
            # First, since waiting for the engine must not keep others from a device.
            reason = reason or self._isolate(stage) or self._lease_for(stage)
            if self._interrupted:
                reason = "not run: interrupted"
            if reason is not None:
                self._log.emit(events.StageSkipped(stage=stage.name, reason=reason))
                continue
            if stage.kind is not StageKind.COMMAND:
                self._collect_distributions()
            completed, removed = self._distributions.completed(stage)
            if removed is not None:
                self._log.emit(removed)
            try:
                end = self._runner.run(completed)
            except SupervisorError as error:
                lost = f"the supervisor of stage {stage.name} {error}"
                self._log.emit(events.StageLost(stage=stage.name, reason=lost))
                reason = f"not run: {lost}"
                continue
            if stage is importing:
                self._libraries = self._runner.bound_libraries(completed, given)
            if end.failed:
                failed = failed or f"not run: {stage.name} failed"
            if end.failed and stage.reruns:  # run after everything else
                reruns = Reruns(self._runner, stage)
                self._reruns = reruns if reruns.can_run(end) else None
        if self._reruns is None and self._leases is not None:  # reruns still need the devices
            self._leases.release()
        return reason is None and failed is None

    def _importing_stage(self) -> StagePlan | None:
        """Return the stage that certainly imports the project, or else most likely does."""
        stages = [it for it in self._job.stages if not it.left_out and not it.hold]
        pytest = [it for it in stages if it.kind is StageKind.PYTEST]
        return next(reversed(pytest or [it for it in stages if it.device] or stages), None)

    def _collect_distributions(self) -> None:
        lack = self._distributions.collect()
        if lack is not None:
            self._log.emit(lack)

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

    def _interrupt(self, number: int, _frame: FrameType | None) -> None:
        self._signal = number
        self._runner.end_running()

    def _describe(self, **facts: object) -> None:
        """Write the environment of the stages, as far as it is known now."""
        if self._leases is not None:
            found = self._leases.detection
            facts["detection"] = {"status": found.status, "reason": found.reason}
            facts["devices"] = self._leases.records
        path = self._runner.results / ENVIRONMENT
        temporary = path.with_suffix(".tmp")
        text = json.dumps(facts, indent=2, sort_keys=True) + "\n"
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
