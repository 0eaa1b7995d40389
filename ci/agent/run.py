"""Carries out a job: its stages one after the other, then its artifacts."""

from __future__ import annotations

import json
import os
import signal
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from . import machine
from .artifacts import collect
from .compiler_cache import CompilerCache
from .event_log import EventLog
from .lease import LeaseError, Leases
from .output import StageOutput
from .pytest_status import status_of
from .reruns import Reruns
from .stage import Stage

INTERRUPTED = 130


class Run:
    """One job, from ``run_started`` to ``run_finished``."""

    def __init__(self, job: dict[str, Any]) -> None:
        self._job = job
        self._workspace: str = job["workspace"]
        self._results = Path(job["results"])
        self._results.mkdir(parents=True, exist_ok=True)
        # Or a Python that dies keeps the last lines of its log, and pytest's summary with them.
        unbuffered = {"PYTHONUNBUFFERED": "1"}
        self._environment = {**unbuffered, **os.environ, **job["environment"]}
        self._cache = CompilerCache(job["compiler_cache"], self._environment, self._results)
        self._environment.update(self._cache.variables)
        self._log_of_tests = self._results / "pytest.jsonl"
        self._log = EventLog(self._results / "events.jsonl")
        self._stage: Stage | None = None
        self._interrupted = False
        self._reruns: Reruns | None = None
        self._leases: Leases | None = None
        if job["devices"] is not None and any(stage["device"] for stage in job["stages"]):
            self._leases = Leases(job, self._environment, self._log.emit, self._was_interrupted)

    def execute(self) -> int:
        """Run everything and return the exit code: 0, 1, or 130 when interrupted."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._interrupt)
        facts = machine.machine()
        built = machine.build_settings(list(map(self._stage_environment, self._job["stages"])))
        self._describe(machine=facts, **built)  # the rest is known when the stages have ended
        self._log.emit(
            "run_started",
            protocol=self._job["protocol"],
            run_id=self._job["run_id"],
            platform=self._job["platform"],
            pid=os.getpid(),
            machine=facts,
        )
        passed = self._run_stages(self._job["stages"])
        for artifact in self._job["artifacts"]:
            collect(self._workspace, self._results, self._log.emit, **artifact)
        compiler = self._job["device_compiler"]
        tools = machine.tools(self._environment, self._workspace, compiler)
        facts = {"machine": facts, **built, **tools, "compiler_cache": self._cache.facts()}
        self._describe(**facts)
        if self._reruns is not None and not self._interrupted:
            self._reruns.run()
            self._release()
            self._describe(**facts)  # with the state that the devices are left in
        if self._interrupted:
            self._log.emit("run_finished", exit_code=INTERRUPTED, interrupted=True)
            return INTERRUPTED
        self._log.emit("run_finished", exit_code=0 if passed else 1)
        return 0 if passed else 1

    def _run_stages(self, stages: list[dict[str, Any]]) -> bool:
        reason = self._lease_for(None)
        for stage in stages:
            reason = reason or self._lease_for(stage)
            if self._interrupted:
                reason = "not run: interrupted"
            if reason is not None:
                self._log.emit("stage_skipped", stage=stage["name"], reason=reason)
            elif not _ended_well(outcome := self._run_stage(stage)):
                reason = f"not run: {stage['name']} failed"
                if stage["reruns"]:
                    self._reruns = self._planned_reruns(stage, outcome)
        if self._reruns is None:  # which need the devices once more
            self._release()
        return reason is None

    def _release(self) -> None:
        if self._leases is not None:
            self._leases.release()

    def _lease_for(self, stage: dict[str, Any] | None) -> str | None:
        """Have the devices that a stage needs, and no others; return why that is impossible.

        Stages that follow each other keep them: another run between the two could take an hour.
        Before the first stage (``None``) it is checked what no waiting would change.
        """
        if self._leases is None:
            return None
        try:
            if stage is None:
                self._leases.check()
            elif stage["device"]:
                self._leases.take(stage["name"])
            else:
                self._leases.release()
        except LeaseError as error:
            name = stage["name"] if stage else None
            self._log.emit("lease_failed", stage=name, reason=str(error), text=str(error))
            return f"not run: {error}"
        return None

    def _run_stage(self, stage: dict[str, Any]) -> dict[str, object]:
        name = stage["name"]
        command = [*stage["command"], *self._added_arguments(stage["kind"])]
        self._log.emit("stage_started", stage=name, command=command)
        with status_of(stage, self._log_of_tests) as status:
            added = status.variables(self._stage_environment(stage).get("PYTHONPATH"))
            outcome = self._carry_out(stage, name, command, added, stage["timeout_s"])
            outcome.update(status.found())
        self._log.emit("stage_finished", stage=name, **outcome)
        return outcome

    def _carry_out(
        self,
        stage: dict[str, Any],
        name: str,
        command: list[str],
        added: dict[str, str],
        timeout_s: float,
    ) -> dict[str, object]:
        """Run a command as the stage's own is, with its output in ``<name>.log``."""
        leases = self._leases if stage["device"] else None
        self._stage = Stage(
            command,
            environment={
                **self._stage_environment(stage),
                **added,
                **(leases.variables if leases else {}),
            },
            workspace=self._workspace,
            timeout_s=timeout_s,
            inherited=leases.descriptors if leases else (),
        )
        if self._interrupted:  # the signal came when there was no stage to tell yet
            self._stage.end()
        output = StageOutput(
            self._results / f"{name}.log",
            self._log.printer,
            stage=name,
            bytes_per_s=self._job["printed_bytes_per_s"],
        )
        outcome = self._stage.follow(output)
        output.finish()
        self._stage = None
        return outcome

    def _stage_environment(self, stage: dict[str, Any]) -> dict[str, str]:
        return {**self._environment, **stage["environment"]}

    def _planned_reruns(self, stage: dict[str, Any], outcome: dict[str, object]) -> Reruns | None:
        """What to do when all else is done; nothing where that would be no evidence."""
        reruns = Reruns(
            stage,
            results=self._results,
            environment=self._stage_environment(stage),
            emit=self._log.emit,
            carry_out=partial(self._carry_out, stage),
        )
        return reruns if reruns.possible(outcome) else None

    def _added_arguments(self, kind: str) -> list[str]:
        if kind != "pytest":
            return []
        return [
            f"--report-log={self._log_of_tests}",
            f"--junitxml={self._results / 'junit.xml'}",
        ]

    def _was_interrupted(self) -> bool:
        return self._interrupted

    def _interrupt(self, _number: int, _frame: FrameType | None) -> None:
        self._interrupted = True
        if self._stage is not None:
            self._stage.end()

    def _describe(self, **facts: object) -> None:
        """Write what the stages ran with, as far as it is known by now."""
        if self._leases is not None:
            found = self._leases.detection
            facts["detection"] = {"status": found.status, "reason": found.reason}
            facts["devices"] = self._leases.records
        _write(self._results / "environment.json", facts)


def _ended_well(outcome: dict[str, object]) -> bool:
    """Tell whether a stage got to its end: one that was told to end may still say 0."""
    ended_early = outcome["timed_out"] or outcome.get("interrupted", False)
    return outcome["exit_code"] == 0 and not ended_early


def _write(path: Path, content: dict[str, object]) -> None:
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    temporary.replace(path)
