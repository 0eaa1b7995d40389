"""Jobs for the agent as containers get it: one file, run by a Python of its own."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from ci.engines.job import agent_archive
from ci.protocol.job import (
    PROTOCOL,
    ArtifactPlan,
    Column,
    DeviceJob,
    DistributionJob,
    StagePlan,
)
from ci.protocol.job import Job as AgentJob
from ci.protocol.stage_kind import StageKind


class Job:
    """A job in a temporary folder."""

    def __init__(self, folder: Path) -> None:
        self.workspace = folder / "workspace"
        self.results = folder / "results"
        self.workspace.mkdir()
        self._folder = folder
        self._stages: list[StagePlan] = []
        self.artifacts: dict[str, str] = {}  # paths by name
        self.devices: DeviceJob | None = None
        self.distributions: DistributionJob | None = None
        self.device_compiler: str | None = None
        self.protocol: int | None = PROTOCOL
        self.credentials: str | None = None
        self.user: int | None = None
        self.printed_bytes_per_s = 1 << 24
        self.interpreter = sys.executable

    def stage(self, name: str, *command: str, **changes: Any) -> None:
        self._stages.append(stage_plan(name, *command, **changes))

    def python(self, name: str, program: str, **changes: Any) -> None:
        self.stage(name, self.interpreter, "-c", program, **changes)

    def start(self) -> subprocess.Popen[bytes]:
        program, document = self._folder / "agent.pyz", self._folder / "job.json"
        program.write_bytes(agent_archive())
        job = AgentJob(
            run_id="run-1",
            platform="cpu",
            workspace=str(self.workspace),
            results=str(self.results),
            environment={"GREETING": "hello"},
            printed_bytes_per_s=self.printed_bytes_per_s,
            stages=tuple(self._stages),
            artifacts=tuple(ArtifactPlan(*artifact) for artifact in self.artifacts.items()),
            devices=self.devices,
            distributions=self.distributions,
            device_compiler=self.device_compiler,
            credentials=self.credentials,
            user=self.user,
        )
        document.write_text(json.dumps({**json.loads(job.to_json()), "protocol": self.protocol}))
        return subprocess.Popen(
            [self.interpreter, str(program), str(document)], stdout=subprocess.PIPE, cwd="/"
        )

    def run(self) -> int:
        with self.start() as process:
            lines = process.communicate()[0].splitlines()
        self.printed = [json.loads(line) for line in lines if line]
        return process.returncode

    def events(self, kind: str | None = None) -> list[dict[str, Any]]:
        lines = (self.results / "events.jsonl").read_text().splitlines()
        return [event for event in map(json.loads, lines) if kind in (None, event["event"])]

    def output(self) -> bytes:
        """Return the printed output of the stages."""
        texts = [event["text"] for event in self.printed if event["event"] == "output"]
        return "".join(texts).encode(errors="surrogateescape")

    def finished(self, stage: str) -> dict[str, Any]:
        (event,) = [e for e in self.events("stage_finished") if e["stage"] == stage]
        return event

    def environment(self) -> dict[str, Any]:
        facts: dict[str, Any] = json.loads((self.results / "environment.json").read_text())
        return facts

    def log(self, stage: str) -> str:
        return (self.results / f"{stage}.log").read_text()


def stage_plan(name: str, *command: str, **changes: Any) -> StagePlan:
    usual = StagePlan(name, StageKind.COMMAND, command, {}, timeout_s=60.0, column=Column.NONE)
    return replace(usual, **changes)


def device_job(folder: Path, **changes: Any) -> DeviceJob:
    """A policy for the devices in the folder's ``devices.json``, with the leases beside it."""
    usual = DeviceJob(
        count=1,
        uuids=(),
        wait_s=0,
        busy_memory=0.1,
        folder=str(folder / "leases"),
        probe=("cat", str(folder / "devices.json")),
        visible="VISIBLE",
        visible_by="uuid",
        user="tester",
    )
    return replace(usual, **changes)


def printed_events(process: subprocess.Popen[bytes]) -> Iterator[dict[str, Any]]:
    assert process.stdout is not None
    yield from map(json.loads, filter(bytes.strip, process.stdout))


def wait_for_end(pid: int) -> None:
    """Wait until a process that is not a child of this one has ended."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    ended, _, _ = select.select([handle], [], [], 30)
    os.close(handle)
    assert ended, f"process {pid} still runs"
