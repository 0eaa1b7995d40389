"""Shared by the orchestrator's tests: the published release as a run, and a guard."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import cmake
import pytest
from hypothesis import HealthCheck, settings

from ci.model.results import RunResult
from ci.store.folder import default_url
from ci.util.process import NOTIFY_VARIABLE, STORE_VARIABLE
from tests.ci.agent_job import Job
from tests.ci.postgresql_server import Server, missing, running_server
from tests.ci.published import PUBLISHED, ascend_after_summary, platform_result


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "docker: needs a Docker Engine")
    # Each job of the agent asks cmake for its version. The script beside this Python starts another
    # Python for that, which takes 0.1 CPU-seconds; the program of its package does not.
    programs = (cmake.CMAKE_BIN_DIR, str(Path(sys.executable).parent), os.environ["PATH"])
    os.environ["PATH"] = os.pathsep.join(programs)
    # Examples that take long on a busy machine are no failure. They share what does not change.
    unimportant = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
    settings.register_profile("untimed", deadline=None, suppress_health_check=unimportant)
    settings.load_profile("untimed")


@pytest.fixture(autouse=True)
def _no_outside_world(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail a unit test that reaches for an engine or the network; loopback is allowed."""
    if request.node.get_closest_marker("docker") is None:
        connect = socket.socket.connect

        def guarded(self: socket.socket, address: Any) -> None:
            if isinstance(address, tuple) and address[0] in ("127.0.0.1", "::1", "localhost"):
                return connect(self, address)
            pytest.fail(f"a unit test connects to {address}; mark it `docker` if it must")

        monkeypatch.setattr(socket.socket, "connect", guarded)


@pytest.fixture(autouse=True)
def _own_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the runs of the tests out of the caller's database, and send no alarms."""
    for name in (STORE_VARIABLE, NOTIFY_VARIABLE):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Server]:
    """A real server, started once."""
    if reason := missing():
        pytest.skip(reason)
    with running_server() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty store, in each database that there is."""
    if request.param == "sqlite":
        return default_url(tmp_path)
    server: Server = request.getfixturevalue("postgresql")
    return server.new_store()


@pytest.fixture
def published() -> RunResult:
    """The published release table as a run."""
    *clean, (_, *ascend) = PUBLISHED
    platforms = [platform_result(label, tuple(row)) for label, *row in clean]
    return RunResult(
        run_id="20260101T120000Z-0123abcd-00ff",
        project="infini-ops",
        commit="0123abcd" * 5,
        dirty=False,
        started_at=datetime(2026, 1, 1, 12, tzinfo=UTC),
        finished_at=datetime(2026, 1, 1, 13, 30, 0, 250_000, tzinfo=UTC),
        engine="docker",
        platforms=(*platforms, ascend_after_summary(tuple(ascend))),
    )


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)
