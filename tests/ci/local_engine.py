"""An engine for tests: the real agent, in this environment and a folder, without isolation."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import ClassVar, Self

from ci.engines import Capabilities, Engine, EngineMachine, EngineMessage, Observer
from ci.engines.archives import chunks_of, extract
from ci.engines.checks import Finding
from ci.engines.job import job_document
from ci.engines.logs import SHOWN_BYTES_PER_S, EventReader, LiveLogs
from ci.errors import CiError
from ci.model.execution import ExecutionFacts, ImageFacts
from ci.model.plan import EnginePlan, RunPlan
from ci.plan import source
from ci.util.invocation import REPOSITORY

IMAGE = ImageFacts(reference="local", digest=None, built=False, seconds=0.5, reason="cached")


@dataclass
class LocalEngine(Engine):
    """Fails on request; records its calls in a file, because workers call it too."""

    capabilities: ClassVar = Capabilities(isolates_network=True, images=False)

    record: Path = Path(os.devnull)
    prepare_error: BaseException | None = None
    refusal: CiError | None = None
    execute_error: CiError | OSError | None = None
    interrupted: bool = False
    adopted: ExecutionFacts | None = None
    settle_error: CiError | None = None
    name: str = "docker"
    containers: bool = True

    @property
    def calls(self) -> list[str]:
        return self.record.read_text().splitlines() if self.record.exists() else []

    def _called(self, what: str) -> None:
        with self.record.open("a") as file:
            file.write(what + "\n")

    @classmethod
    def connect(cls, plan: EnginePlan) -> Self:
        return cls(name=plan.name)

    def check(self, plan: RunPlan) -> None:
        if self.containers:
            _ = plan.needed_image

    def machine(self) -> EngineMachine:
        return EngineMachine(identity="here", processors=2)

    def prepare(self, plan: RunPlan, observer: Observer) -> ImageFacts:
        self._called(f"prepare {plan.platform}")
        if self.prepare_error is not None:
            raise self.prepare_error
        observer.event(EngineMessage("building"))
        return IMAGE

    def execute(self, plan: RunPlan, image: ImageFacts, observer: Observer) -> ExecutionFacts:
        self._called(f"execute {plan.platform}")
        if self.refusal is not None:
            raise self.refusal
        code, reader = run_agent(plan, observer)
        if self.execute_error is not None:
            raise self.execute_error
        return replace(
            facts(image, exit_code=code, interrupted=self.interrupted),
            unreadable_lines=reader.unreadable_lines,
            longest_line=reader.longest_line,
        )

    def resume(self, plan: RunPlan, observer: Observer) -> ExecutionFacts | None:
        self._called(f"resume {plan.platform}")
        observer.event(EngineMessage("looking for a container"))
        return self.adopted

    def settle(self, plan: RunPlan, *, keep: bool) -> str | None:
        self._called(f"{'keep' if keep else 'remove'} {plan.platform}")
        if self.settle_error is not None:
            raise self.settle_error
        return plan.container.kept_name if keep else None

    def enter(self, plan: RunPlan, *, interactive: bool) -> int:
        raise NotImplementedError

    def enter_kept(self, plan: RunPlan, observer: Observer, *, interactive: bool) -> int | None:
        raise NotImplementedError

    def checks(self, plan: EnginePlan, runs: Sequence[RunPlan]) -> Iterator[Finding]:
        raise NotImplementedError

    def describe(self, plan: RunPlan) -> Mapping[str, object]:
        return {"index": plan.network.host_environment.get("PIP_INDEX_URL")}

    def close(self) -> None:
        """Nothing was opened."""


def facts(
    image: ImageFacts | None, *, exit_code: int | None, interrupted: bool = False
) -> ExecutionFacts:
    return ExecutionFacts(
        engine="docker",
        engine_version="1",
        image=image,
        sync_seconds=0.25,
        exit_code=exit_code,
        interrupted=interrupted,
        wrapper_seconds=1.0,
    )


def run_agent(plan: RunPlan, observer: Observer) -> tuple[int, EventReader]:
    """Run the stages in a copy of the sources."""
    job = plan.results.with_name(f"{plan.platform}.json")
    workspace = plan.results.with_name(f"workspace-{plan.platform}")
    with TemporaryFile() as archive:
        source.write_archive(plan.source, archive, packed=plan.packed)
        archive.seek(0)
        extract(chunks_of(archive), workspace, links=True, modes=True)
    document = job_document(
        plan,
        workspace=str(workspace),
        results=str(plan.results),
        environment={**_environment(), **plan.environment},
        printed_bytes_per_s=SHOWN_BYTES_PER_S,
    )
    job.write_bytes(document)
    command = [sys.executable, "-m", "ci.agent", str(job)]
    done = subprocess.run(command, cwd=REPOSITORY, stdout=subprocess.PIPE, check=False)
    reader = EventReader(LiveLogs(observer, {}), plan.results)
    reader.feed(done.stdout)
    reader.complete()
    return done.returncode, reader


def _environment() -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        # Only the plug-in that counts: the others of a development environment take a second.
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTEST_ADDOPTS": "-p no:cacheprovider -p pytest_reportlog.plugin",
    }
