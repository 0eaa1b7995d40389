"""Real engines for the end-to-end tests."""

from __future__ import annotations

import gc
import os
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from docker.client import DockerClient
from fresh import is_local_engine, make_image
from places import Place
from plans import make_copying_python, make_run_plan, write_project

from ci.engines import Engine, job
from ci.engines.archives import pack
from ci.engines.select import select_engine
from ci.errors import InfrastructureError
from ci.model.job import StagePlan
from ci.model.plan import EnginePlan, RunPlan
from ci.model.results import ExecutionFacts
from tests.built import built_once


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "cut_line: the connection to an engine is lost or refused")
    config.addinivalue_line("markers", "docker: needs a Docker Engine")
    config.addinivalue_line("markers", "machines: takes minutes; part of `nox -s machines`")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the matrix of fresh machines, unless `-m` names it.

    Where a line is cut, the SDK leaves a socket open that it could not connect.
    """
    for item in items:
        if item.get_closest_marker("cut_line"):
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"))
    if "machines" in config.option.markexpr:
        return
    left_out = [item for item in items if item.get_closest_marker("machines")]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


class Recorder:
    """Keeps the events of a run; may react to a line of output."""

    def __init__(self) -> None:
        self.events: list[Mapping[str, object]] = []
        self.reactions: dict[str, Callable[[], None]] = {}

    def event(self, event: Mapping[str, object]) -> None:
        self.events.append(event)
        if event["event"] in ("output", "engine"):
            self.reactions.get(str(event["text"]), lambda: None)()

    def named(self, kind: str) -> list[Mapping[str, object]]:
        return [event for event in self.events if event["event"] == kind]


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
        return select_engine(EnginePlan(name=name, kind=name))
    except InfrastructureError as error:
        pytest.skip(str(error))


with closing(select_engine(EnginePlan(name="auto", kind="auto"))) as _engine:
    USUAL_ENGINE = _engine.name
# For what both engines have in common. With a Docker Engine, only complete tests use both.
ENGINES = [
    pytest.param("host", marks=[pytest.mark.complete] if USUAL_ENGINE == "docker" else []),
    pytest.param("docker", marks=pytest.mark.docker),
]


@pytest.fixture(scope="session")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Makes the virtual environments of the host engine."""
    return str(built_once(tmp_path_factory, "python", make_copying_python) / "python")


@pytest.fixture(scope="session")
def ready_engine(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Engine]:
    """Gives an engine or skips; first makes the image of a `Bench`, and the base image of all.

    Tests with a cache folder of their own would make the base again: the lock of builds is there.
    """

    def make_images(folder: Path) -> None:
        bench = Bench(engine_or_skip("docker"), folder)
        bench.engine.prepare(bench.plan(), bench.observer)
        bench.engine.close()

    def ready(name: str) -> Engine:
        if name == "docker":
            built_once(tmp_path_factory, "images", make_images)
        return engine_or_skip(name)

    return ready


@pytest.fixture(params=ENGINES)
def bench(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    python: str,
    ready_engine: Callable[[str], Engine],
) -> Iterator[Bench]:
    with closing(ready_engine(request.param)) as engine:
        yield Bench(engine, tmp_path, python)


@pytest.fixture(scope="module")
def make_place(
    tmp_path_factory: pytest.TempPathFactory, python: str, ready_engine: Callable[[str], Engine]
) -> Callable[[str, Mapping[str, str]], Place]:
    """Makes a repository with these files, whose runs use this engine."""

    def make(engine: str, files: Mapping[str, str]) -> Place:
        ready_engine(engine).close()
        return Place.make(tmp_path_factory.mktemp("place"), engine, python, files)

    return make


@pytest.fixture
def docker_bench(tmp_path: Path, ready_engine: Callable[[str], Engine]) -> Iterator[Bench]:
    with closing(ready_engine("docker")) as engine:
        yield Bench(engine, tmp_path)


@pytest.fixture
def host_bench(tmp_path: Path, python: str) -> Bench:
    return Bench(engine_or_skip("host"), tmp_path, python)


@pytest.fixture(scope="session")
def fresh_image(ready_engine: Callable[[str], Engine]) -> str:
    """A minimal Debian with python3 alone, on an engine whose containers see this machine."""
    ready_engine("docker").close()
    if not is_local_engine():
        pytest.skip("the Docker Engine is not this machine's own")
    return make_image()


@pytest.fixture
def one_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job, "has_own_user", lambda _plan: False)


@pytest.fixture(autouse=True)
def _no_leftover_sockets(request: pytest.FixtureRequest) -> Iterator[None]:
    """Close the sockets of a cut line, which would fail a later test, whose filters are others."""
    yield
    if request.node.get_closest_marker("cut_line"):
        gc.collect()


@pytest.fixture(autouse=True)
def _no_leftover_folders(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Fail if a file of an engine is left in the temporary folder after the test."""
    folder = tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    others = children()  # such as the browser of other tests
    yield
    while left := children() - others:  # one of them finishes the removal
        for child in left:
            with suppress(ChildProcessError):
                os.waitpid(child, 0)
    assert list(folder.iterdir()) == []


def children() -> set[int]:
    """The processes that this one started, also those that have ended and were not waited for."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it is gone
            _, parent, *_ = stat.read_text().rpartition(")")[2].split()
            if int(parent) == os.getpid():
                found.add(int(stat.parent.name))
    return found
