"""A tiny project, and runs of it as the command line does them."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path

from rich.console import Console

from ci.engines import Engine
from ci.model.plan import EnginePlan
from ci.model.results import PlatformResult, RunResult
from ci.plan.planning import RunOptions
from ci.plan.project import load_project, plan_run
from ci.plan.request import RunRequest, new_request
from ci.run.coordinator import RunCoordinator
from ci.run.progress import Progress
from ci.run.records import Records
from ci.store.folder import default_url, read_results
from ci.store.store import Store
from tests.ci.local_engine import LocalEngine

CONFIG = """\
project: tiny
platforms:
  cpu: {}
stages:
- name: build
  command: python build.py
- name: pytest
  kind: pytest
  command: python -m pytest -q tests
artifacts:
  generated: out
"""
BUILD = """\
import pathlib
pathlib.Path('out').mkdir(exist_ok=True)
pathlib.Path('out/a.txt').touch()
"""
PASSING = "def test_a(): pass\n"
CONTRACT = """\
schema_version: 2
platform: cpu
device: null
dtypes: {}
operators: {}
tests:
  tests/test_a.py::test_a: 1
"""


@dataclass
class Workplace:
    """A project and a results folder; runs as the command line does."""

    folder: Path
    console: Console = field(default_factory=lambda: Console(file=StringIO(), width=200))
    results_name: str = "results"

    def __post_init__(self) -> None:
        self.new_engine()

    def new_engine(self) -> None:
        """A working engine without calls so far."""
        self.engine = LocalEngine(record=self.folder / "calls")
        self.engine.record.unlink(missing_ok=True)

    @property
    def results(self) -> Path:
        return self.folder / self.results_name

    def write(self, name: str, text: str) -> None:
        path = self.folder / "source" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def commit(self) -> None:
        """Commit what there is, also where nothing has changed."""
        source = self.folder / "source"
        identity = ["-c", "user.name=Tests", "-c", "user.email=tests@example.org"]
        message = ["commit", "--quiet", "--allow-empty", "--message", "All"]
        for command in (["init", "--quiet"], ["add", "."], [*identity, *message]):
            subprocess.run(["git", *command], cwd=source, check=True)

    def run(
        self,
        request: RunRequest | None = None,
        *,
        platforms: Sequence[str] = ("cpu",),
        connect: Callable[[EnginePlan], Engine] | None = None,
        jobs: int | None = None,
        keep: bool = False,
        shards: int = 1,
    ) -> tuple[RunResult, RunCoordinator]:
        """Run the named platforms, or go on with an earlier run."""
        source = self.folder / "source"
        project = load_project(source / "ci.yaml", {})
        resumed = request is not None
        if request is None:
            request = new_request(
                project,
                platforms,
                source_folder=source,
                results=self.results,
                options=RunOptions(engine="docker", keep=keep, shards=shards),
            )
        folder = self.results / request.run_id
        plans = plan_run(
            project,
            request.platforms,
            run_id=request.run_id,
            source=source,
            results=self.results,
            options=request.model_copy(update={"engine": "auto"}),
        )
        run = RunCoordinator(
            request=request,
            plans=plans,
            connect=connect or (lambda _: self.engine),
            records=Records(folder, self.open_store),
            progress=Progress(self.console),
            resumed=resumed,
            jobs=jobs,
        )
        result = run.execute()
        with self.open_store() as store:
            assert store.load(request.run_id) == result
        assert read_results(self.results / "latest" / "results.json") == result
        return result, run

    def open_store(self) -> Store:
        return Store(default_url(self.results))

    def only(self) -> PlatformResult:
        result, _ = self.run()
        return result.platforms[0]

    def output(self) -> str:
        assert isinstance(self.console.file, StringIO)
        return self.console.file.getvalue()


def new_workplace(folder: Path) -> Workplace:
    workplace = Workplace(folder=folder)
    workplace.write("ci.yaml", CONFIG)
    workplace.write("build.py", BUILD)
    workplace.write("tests/test_a.py", PASSING)
    return workplace
