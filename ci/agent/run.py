"""Carries out a job: its stages one after the other, then its artifacts."""

from __future__ import annotations

import json
import os
import shutil
import signal
import tarfile
from pathlib import Path
from types import FrameType
from typing import Any

from . import machine
from .compiler_cache import CompilerCache
from .events import EventLog
from .output import StageOutput
from .stage import Stage

INTERRUPTED = 130


class Run:
    """One job, from ``run_started`` to ``run_finished``."""

    def __init__(self, job: dict[str, Any]) -> None:
        self._job = job
        self._workspace: str = job["workspace"]
        self._results = Path(job["results"])
        self._results.mkdir(parents=True, exist_ok=True)
        self._environment = {**os.environ, **job["environment"]}
        self._cache = CompilerCache(job["compiler_cache"], self._environment, self._results)
        self._environment.update(self._cache.variables)
        self._log = EventLog(self._results / "events.jsonl")
        self._stage: Stage | None = None
        self._interrupted = False

    def execute(self) -> int:
        """Run everything and return the exit code: 0, 1, or 130 when interrupted."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._interrupt)
        environment = self._results / "environment.json"
        facts = machine.machine()
        _write(environment, {"machine": facts})  # the rest is known when the stages have ended
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
            self._collect(**artifact)
        tools = machine.tools(self._environment, self._workspace)
        _write(environment, {"machine": facts, **tools, "compiler_cache": self._cache.facts()})
        if self._interrupted:
            self._log.emit("run_finished", exit_code=INTERRUPTED, interrupted=True)
            return INTERRUPTED
        self._log.emit("run_finished", exit_code=0 if passed else 1)
        return 0 if passed else 1

    def _run_stages(self, stages: list[dict[str, Any]]) -> bool:
        reason = None
        for stage in stages:
            if self._interrupted:
                reason = "not run: interrupted"
            if reason is not None:
                self._log.emit("stage_skipped", stage=stage["name"], reason=reason)
            elif not _ended_well(self._run_stage(stage)):
                reason = f"not run: {stage['name']} failed"
        return reason is None

    def _run_stage(self, stage: dict[str, Any]) -> dict[str, object]:
        name = stage["name"]
        command = [*stage["command"], *self._added_arguments(stage["kind"])]
        self._log.emit("stage_started", stage=name, command=command)
        self._stage = Stage(
            command,
            environment={**self._environment, **stage["environment"]},
            workspace=self._workspace,
            timeout_s=stage["timeout_s"],
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
        self._log.emit("stage_finished", stage=name, **outcome)
        return outcome

    def _added_arguments(self, kind: str) -> list[str]:
        if kind != "pytest":
            return []
        return [
            f"--report-log={self._results / 'pytest.jsonl'}",
            f"--junitxml={self._results / 'junit.xml'}",
        ]

    def _interrupt(self, _number: int, _frame: FrameType | None) -> None:
        self._interrupted = True
        if self._stage is not None:
            self._stage.end()

    def _collect(self, name: str, path: str) -> None:
        """Copy an artifact of the workspace into the results; a folder becomes an archive."""
        source = Path(self._workspace, path)
        if source.is_dir():
            with tarfile.open(self._results / f"{name}.tar.gz", "w:gz") as archive:
                archive.add(source, arcname=source.name)
        elif source.is_file():
            shutil.copyfile(source, self._results / name)
        else:
            self._log.emit("artifact_missing", name=name, path=path)


def _ended_well(outcome: dict[str, object]) -> bool:
    """Tell whether a stage got to its end: one that was told to end may still say 0."""
    ended_early = outcome["timed_out"] or outcome.get("interrupted", False)
    return outcome["exit_code"] == 0 and not ended_early


def _write(path: Path, content: dict[str, object]) -> None:
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    temporary.replace(path)
