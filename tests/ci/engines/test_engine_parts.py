"""The engines' helpers: archives, event streams, the wheelhouse, the choice of an engine."""

from __future__ import annotations

import errno
import json
import os
import re
import socket
from pathlib import Path
from urllib.parse import urlencode

import pytest
import requests
from docker.errors import APIError
from urllib3.exceptions import ProtocolError

from ci.engines import EngineMessage
from ci.engines.checks import package_manager
from ci.engines.docker.images import server_stage
from ci.engines.docker.link import is_connection_lost, typed_sdk_errors
from ci.engines.docker.wheelhouse import volume_name, wheel_archive
from ci.engines.host.engine import HostEngine, missing_packages
from ci.engines.logs import AGENT_LOG, LONGEST_SHOWN, MOST_SHOWN, EventReader, ImageLog
from ci.engines.select import ENGINES, select_engine
from ci.errors import ExitCode, InfrastructureError
from ci.facts.measures import IMAGE
from ci.model.plan import EngineKind, EnginePlan, ImagePlan, SystemPackages
from ci.protocol.agent_files import ENGINE_EVENTS
from ci.protocol.events import Event, Output, RunFinished, StageStarted


class Recorder:
    """Keeps the events that it gets."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def event(self, event: Event) -> None:
        self.events.append(event)


STREAM = (
    b'\n{"event": "stage_started", "time": 1, "monotonic": 1, "stage": "build"}\n'
    b'{"event": "output", "stage": "build", "text": "caf\xc3\xa9"}\n'
    b"Traceback (most recent call last):\n"
    b"[1, 2]\n"
    b'{"event": "of a newer agent"}\n'
    b'\n{"event": "run_finished", "time": 2, "monotonic": 2, "exit_code": 0}\n'
)

EVENTS_OF_STREAM = [
    StageStarted("build"),
    Output("build", "café"),
    EngineMessage("Traceback (most recent call last):"),
    EngineMessage("[1, 2]"),
    RunFinished(exit_code=0),
]


@pytest.fixture
def reader(tmp_path: Path) -> EventReader:
    return EventReader(Recorder(), tmp_path)


def events(reader: EventReader) -> list[Event]:
    recorder = reader._observer
    assert isinstance(recorder, Recorder)
    return recorder.events


@pytest.mark.parametrize("size", [1, 7, 64, 1000])
def test_events_from_pieces_of_any_size(reader: EventReader, tmp_path: Path, size: int) -> None:
    for start in range(0, len(STREAM), size):
        reader.feed(STREAM[start : start + size])
    assert events(reader) == EVENTS_OF_STREAM
    assert reader.finished is not None
    assert reader.finished.exit_code == 0
    assert (reader.unreadable_lines, reader.longest_line) == (2, 0)
    kept = (tmp_path / AGENT_LOG).read_text()
    assert kept == "Traceback (most recent call last):\n[1, 2]\n"


def test_events_are_kept_the_last_one_with_the_results(reader: EventReader, tmp_path: Path) -> None:
    kept = tmp_path / ENGINE_EVENTS
    kept.write_text("of a caller that died\n")
    reader.feed(STREAM)
    reader.restart()
    reader.feed(STREAM)
    assert [json.loads(line)["event"] for line in kept.read_text().splitlines()] == [
        "stage_started"
    ]
    reader.complete()
    names = [json.loads(line)["event"] for line in kept.read_text().splitlines()]
    assert names == ["stage_started", "run_finished"]


def test_kept_events_are_bounded(
    reader: EventReader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ci.engines.logs.LARGEST_RECORD", 1000)
    for _ in range(100):
        reader.feed(STREAM)
    assert (tmp_path / ENGINE_EVENTS).stat().st_size <= 1000 + 100


def test_events_are_passed_once_when_the_stream_starts_again(reader: EventReader) -> None:
    reader.feed(STREAM[:100])
    reader.restart()
    reader.feed(STREAM[:90])
    reader.restart()  # cut off again, earlier than the first time
    reader.feed(STREAM)
    assert events(reader) == EVENTS_OF_STREAM


def test_the_volume_of_a_wheelhouse_changes_with_its_files(tmp_path: Path) -> None:
    wheel = tmp_path / "tiny-1-py3-none-any.whl"
    wheel.write_bytes(b"wheel")
    before = volume_name(tmp_path)
    (tmp_path / "folder").mkdir()  # pip does not look into it
    assert volume_name(tmp_path) == before
    os.utime(wheel, (1, 1))
    assert volume_name(tmp_path) != before


def test_a_wheel_that_shrinks_while_it_is_copied(tmp_path: Path) -> None:
    wheel = tmp_path / "tiny-1-py3-none-any.whl"
    wheel.write_bytes(b"wheel")
    archive = wheel_archive(tmp_path)
    next(archive)  # its header
    os.truncate(wheel, 1)
    with pytest.raises(InfrastructureError, match=r"tiny-1.* became shorter while it was copied"):
        list(archive)


OWN_RECIPE = (Path(__file__).parents[3] / "docker" / "Dockerfile").read_text()


@pytest.mark.parametrize(
    ("recipe", "stage"),
    [
        (OWN_RECIPE, "base"),
        ("from x as BASE\n", "base"),
        ("FROM ${BASE_IMAGE}\n", None),
        ("FROM ${BASE_IMAGE} AS basement\n", None),
    ],
    ids=["own", "short", "no stage", "another stage"],
)
def test_the_stage_that_serves_a_wheelhouse(recipe: str, stage: str | None) -> None:
    image = ImagePlan(
        tag="a:b",
        dockerfile="Dockerfile",
        context={"Dockerfile": recipe.encode()},
        build_arguments={},
        base_image="base",
        offline_base_image=None,
        offline_base_command=None,
    )
    assert server_stage(image) == stage


def test_every_kind_has_an_engine() -> None:
    assert {*ENGINES} == {*EngineKind} - {EngineKind.AUTO}
    assert all(engine.name == kind for kind, engine in ENGINES.items())


def test_docker_without_an_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{port}")
    with pytest.raises(
        InfrastructureError, match=rf"no Docker Engine answers at tcp://127.0.0.1:{port}: "
    ) as error:
        select_engine(EnginePlan(name="docker", kind=EngineKind.DOCKER))
    assert error.value.exit_code is ExitCode.INFRASTRUCTURE
    assert error.value.remedy is not None
    assert error.value.remedy.startswith("check the address")
    engine = select_engine(EnginePlan(name="auto", kind=EngineKind.AUTO))
    assert isinstance(engine, HostEngine)
    [note] = engine.notes
    assert note.startswith("DOCKER_HOST was not used: no Docker Engine answers at tcp:")


ADDRESS = "https://user:s3cretpw@host.invalid/simple"
QUERY = urlencode({"buildargs": json.dumps({"PIP_INDEX_URL": ADDRESS, "TOKEN": "t0ken"})})


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(APIError("400 Client Error: /build?" + QUERY), id="no explanation"),
        pytest.param(APIError("/build?" + QUERY, explanation="unknown instruction"), id="answer"),
        pytest.param(ConnectionError(f"retries exceeded with url: /build?{QUERY} (x)"), id="cut"),
    ],
)
def test_error_of_a_build_does_not_contain_its_arguments(error: Exception) -> None:
    with (
        pytest.raises(InfrastructureError, match=r"failed: (400|unknown|retries)") as raised,
        typed_sdk_errors("the Docker Engine at tcp://lab"),
    ):
        raise error
    assert not [secret for secret in ("s3cretpw", "t0ken") if secret in str(raised.value)]


def test_image_log_hides_passwords(tmp_path: Path) -> None:
    recorder = Recorder()
    log = ImageLog(tmp_path, recorder)
    assert log.path.read_text() == ""
    log.write(f"Looking in indexes: {ADDRESS}")
    expected = "Looking in indexes: https://***@host.invalid/simple"
    assert log.tail().strip() == expected
    assert log.path.read_text() == expected + "\n"
    assert recorder.events == [Output(IMAGE, expected)]


@pytest.mark.parametrize(
    ("error", "machine"),
    [
        (APIError("500", explanation="write /x: no space left on device"), "the engine at x"),
        (OSError(errno.ENOSPC, "No space left on device"), "this machine"),
    ],
)
def test_full_disk_is_reported_with_its_machine(error: Exception, machine: str) -> None:
    with (
        pytest.raises(InfrastructureError, match=f"^the disk of {machine} is full: ") as raised,
        typed_sdk_errors("the engine at x"),
    ):
        raise error
    assert raised.value.remedy is not None
    assert "python -m ci gc" in raised.value.remedy


@pytest.mark.parametrize(
    ("error", "cut"),
    [
        (requests.ConnectionError("aborted"), True),
        (ProtocolError("broken"), True),
        (ConnectionResetError(errno.ECONNRESET, "reset"), True),
        (APIError("404"), False),
        (OSError(errno.ENOSPC, "full"), False),
    ],
)
def test_a_cut_connection_is_distinguished_from_an_answer(error: Exception, cut: bool) -> None:
    assert is_connection_lost(error) is cut


HOSTILE = (
    b'{"event": "stage_started"}\n',
    b'{"event": "stage_started", "time": 1, "monotonic": 1, "stage": []}\n',
    b'{"event": "run_finished", "time": 1, "monotonic": 1, "exit_code": "0"}\n',
    b'{"event": "output", "stage": 1, "text": "x"}\n',
    b'{"event": "stage_finished", "time": 1, "monotonic": 1, "stage": "x", "seconds": 1e999,'
    b' "exit_code": 0}\n',
    b"[" * 200_000 + b"\n",
    b"1" * 5000 + b"\n",
    b"\0\xff\n",
)


@pytest.mark.parametrize("line", HOSTILE, ids=range(len(HOSTILE)))
def test_what_is_no_event_is_a_message(reader: EventReader, line: bytes) -> None:
    reader.feed(line + STREAM)
    first, *rest = events(reader)
    assert isinstance(first, EngineMessage)
    assert len(first.text) < 2 * LONGEST_SHOWN
    assert rest == EVENTS_OF_STREAM
    assert reader.unreadable_lines == 3
    assert reader.finished is not None
    assert reader.finished.exit_code == 0


def test_a_line_without_an_end(reader: EventReader, tmp_path: Path) -> None:
    for _ in range(300):
        reader.feed(b"x" * (1 << 20))
    reader.feed(STREAM)  # whose first line is empty: an agent's event begins a line
    first, *rest = events(reader)
    assert isinstance(first, EngineMessage)
    assert first.text.endswith("x [the beginning of 314,572,800 bytes]")
    assert rest == EVENTS_OF_STREAM
    assert (reader.unreadable_lines, reader.longest_line) == (3, 300 << 20)
    assert (tmp_path / AGENT_LOG).stat().st_size < 2 * LONGEST_SHOWN


def test_of_a_flood_of_junk_the_beginning_is_kept(reader: EventReader, tmp_path: Path) -> None:
    reader.feed(b"junk\n" * (3 * MOST_SHOWN))
    assert len(events(reader)) == MOST_SHOWN
    assert reader.unreadable_lines == 3 * MOST_SHOWN
    last = (tmp_path / AGENT_LOG).read_text().splitlines()[-1]
    assert last == "[further lines are counted, not kept]"


@pytest.mark.skipif(package_manager() is None, reason="no apt-get, dnf or yum on this machine")
def test_system_packages_that_this_machine_lacks() -> None:
    wanted = SystemPackages(apt=("dpkg", "no-such-package"), dnf=("rpm", "no-such-package"))
    line = missing_packages(wanted)
    assert line is not None
    assert re.search(rf"{package_manager()} install .* no-such-package'?$", line)
    assert "dpkg" not in line


def test_machine_without_a_package_manager_is_not_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert missing_packages(SystemPackages(apt=("less",), dnf=("less",))) is None
