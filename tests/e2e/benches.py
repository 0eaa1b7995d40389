"""Engines with a tiny project to run on them, and what records their events."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from docker.client import DockerClient

from ci.engines import Engine, EngineMessage
from ci.engines.archives import pack
from ci.engines.select import select_engine
from ci.errors import InfrastructureError
from ci.facts.measures import IMAGE
from ci.facts.record import AnyEvent
from ci.model.execution import ExecutionFacts
from ci.model.plan import EngineKind, EnginePlan, RunPlan
from ci.protocol.events import Event, Output
from ci.protocol.job import StagePlan
from tests.e2e.plans import make_run_plan, write_project


class Recorder:
    """Keeps the events of a run; may react to a line of output."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.reactions: dict[str, Callable[[], None]] = {}

    def event(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, Output | EngineMessage):
            self.reactions.get(event.text, lambda: None)()

    def every(self, kind: type[AnyEvent]) -> list[AnyEvent]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def printed(self) -> list[str]:
        """The output of the stages, without that of the image."""
        return [event.text for event in self.every(Output) if event.stage != IMAGE]

    @property
    def messages(self) -> list[str]:
        return [event.text for event in self.every(EngineMessage)]


class Bench:
    """An engine, and a folder with the tiny project to run on it."""

    def __init__(self, engine: Engine, folder: Path, python: str = sys.executable) -> None:
        self.engine = engine
        self.python = python
        self.folder = folder
        self.run_id = f"test-{uuid.uuid4().hex[:8]}"
        self.observer = Recorder()
        write_project(folder / "project")

    def plan(self, *stages: StagePlan, **changes: Any) -> RunPlan:
        changes = {"run_id": self.run_id, "python": self.python, **changes}
        return make_run_plan(self.folder, *stages, **changes)

    def run(self, plan: RunPlan) -> ExecutionFacts:
        image = self.engine.prepare(plan, self.observer)
        return self.engine.execute(plan, image, self.observer)


def import_image(
    client: DockerClient, reference: str, files: Mapping[str, bytes], labels: Mapping[str, str]
) -> None:
    """Make an image of these files alone."""
    repository, _, tag = reference.rpartition(":")
    client.api.import_image_from_data(
        pack(files).read(),
        repository=repository,
        tag=tag,
        changes=[f"LABEL {key}={value}" for key, value in labels.items()],
    )


def engine_or_skip(name: str) -> Engine:
    try:
        return select_engine(EnginePlan(name=name, kind=EngineKind(name)))
    except InfrastructureError as error:
        pytest.skip(str(error))


with closing(select_engine(EnginePlan(name="auto", kind=EngineKind.AUTO))) as _engine:
    USUAL_ENGINE = _engine.name
# For what both engines have in common. With a Docker Engine, only complete tests use both.
ENGINES = [
    pytest.param("host", marks=[pytest.mark.complete] if USUAL_ENGINE == "docker" else []),
    pytest.param("docker", marks=pytest.mark.docker),
]
