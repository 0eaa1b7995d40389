"""Real engines for the end-to-end tests."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from itertools import zip_longest
from pathlib import Path

import psutil
import pytest

from ci.engines import Engine, job
from tests.built import built_once
from tests.e2e.benches import ENGINES, Bench, engine_or_skip
from tests.e2e.fresh import is_local_engine, make_image
from tests.e2e.places import Place
from tests.e2e.plans import make_copying_python

HERE = Path(__file__).parent


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "cut_line: the connection to an engine is lost or refused")
    config.addinivalue_line("markers", "docker: needs a Docker Engine")
    config.addinivalue_line("markers", "machines: takes minutes; part of `nox -s machines`")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Alternate these files, which wait for engines, with the others, which compute.

    The matrix of fresh machines is left out unless `-m` names it. Where a line is cut, the SDK
    leaves a socket open that it could not connect.
    """
    files: dict[Path, list[pytest.Item]] = {}
    left_out = []
    for item in items:
        if item.get_closest_marker("cut_line"):
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"))
        if item.get_closest_marker("machines") and "machines" not in config.option.markexpr:
            left_out.append(item)
        else:
            files.setdefault(item.path, []).append(item)
    config.hook.pytest_deselected(items=left_out)
    ours = [path for path in files if path.parent == HERE]
    ours.sort(key=lambda path: path.name != "test_release.py")  # the longest
    others = [path for path in files if path.parent != HERE]
    pairs = zip_longest(ours, others)
    items[:] = [item for pair in pairs for path in pair if path for item in files[path]]


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
    this = psutil.Process()
    others = this.children()  # such as the browser of other tests
    yield
    psutil.wait_procs(set(this.children()) - set(others))  # one of them finishes the removal
    assert list(folder.iterdir()) == []
