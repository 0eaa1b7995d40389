"""Engines that are slow, gone, back or lie, behind a proxy on the socket of the real one."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Thread

from ci.facts.sentences import on_harness, on_stages, on_tests
from ci.model.verdicts import Harness, Product
from tests.e2e.engine_proxy import Proxy, lying, proxied
from tools.faults.findings import CUT_IN_COLLECTION, agent_died
from tools.faults.model import NOT_STARTED, PASSED, PASSES, REFUSED, SLOW, Fault, Left
from tools.faults.running import FaultRun

KIND = "Engine"
SOCKET = "engine.sock"
BEHIND = {"DOCKER_HOST": f"unix://{{run}}/{SOCKET}"}
ABORTED = on_stages.platform_failed(
    "the run on the Docker Engine at … failed: ('Connection aborted.', …"
)
SILENT = "the Docker Engine at … has not answered GET /_ping for … s"
LOST = "lost the connection to the Docker Engine at …; trying again for 60 s"
REFUSED_BY_500 = on_stages.platform_failed(
    "the run on the Docker Engine at … failed: out of order (check …"
)
NO_ENGINE = "what answers as the Docker Engine at … is broken, or is no Docker Engine: …"
SLOWNESS_S = 0.4  # for each request; a run has 25 of them
HANG_S = 6.0  # longer than the 3 s after which a missing answer is reported
AWAY_S = 3.0
SERVER_ERROR = (
    b"HTTP/1.1 500 Internal Server Error\r\nContent-Type: application/json\r\n"
    b'Content-Length: 26\r\nConnection: close\r\n\r\n{"message":"out of order"}'
)
TEXT = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"
STATE = r"GET \S*/containers/\w+/json"
Around = Callable[[FaultRun], AbstractContextManager[object]]


def behind(prepare: Callable[[Proxy], None] = lambda _: None) -> Around:
    """Return what puts a proxy before the engine."""

    @contextmanager
    def around(run: FaultRun) -> Iterator[Proxy]:
        with proxied(run.folder / SOCKET) as proxy:
            prepare(proxy)
            yield proxy

    return around


def answering(pattern: str, answer: bytes, times: int = 1000) -> Around:
    """Return what answers the first requests of one kind in place of the engine."""

    def prepare(proxy: Proxy) -> None:
        remaining = iter(range(times))

        def on_request(request: str) -> bytes | None:
            is_asked = re.match(pattern, request) and next(remaining, None) is not None
            return answer if is_asked else None

        proxy.on_request = on_request

    return behind(prepare)


def changing(pattern: str, change: Callable[[bytes], bytes], times: int = 1000) -> Around:
    """Return what changes the first parts of the engine's answers to one kind of request."""

    def prepare(proxy: Proxy) -> None:
        remaining = iter(range(times))

        def on_answer(request: str, part: bytes) -> bytes:
            is_changed = re.match(pattern, request) and next(remaining, None) is not None
            return change(part) if is_changed else part

        proxy.on_answer = on_answer

    return behind(prepare)


def slow(proxy: Proxy) -> None:
    proxy.on_request = lambda _: time.sleep(SLOWNESS_S)


def early_end(run: FaultRun, platform: str) -> None:
    """State the end of a container whose tests run, and end its log."""
    run.wait_for(platform)
    running = replaced(b'"Status":"running"', b'"Status":"exited" ')
    run.setting.on_answer = lambda it, part: running(part) if re.match(STATE, it) else part
    cut(run.setting)


@contextmanager
def nothing_there(_: FaultRun) -> Iterator[None]:
    yield


@contextmanager
def nobody_listens(run: FaultRun) -> Iterator[None]:
    with socket.socket(socket.AF_UNIX) as line:
        line.bind(str(run.folder / SOCKET))
    yield


def lies(body: bytes) -> Around:
    """Return what answers every request with the same text, without an engine."""
    return lambda run: lying(run.folder / SOCKET, body)


def hang(run: FaultRun, platform: str) -> None:
    """Let the engine answer nothing for some seconds."""
    run.wait_for(platform)
    run.setting.running.clear()
    time.sleep(HANG_S)
    run.setting.running.set()


def away(seconds: float) -> Callable[[FaultRun, str], None]:
    """Return the action that takes the engine's socket away for some seconds."""

    def act(run: FaultRun, platform: str) -> None:
        run.wait_for(platform)
        path = run.folder / SOCKET
        path.rename(path.with_suffix(".away"))
        cut(run.setting)
        time.sleep(seconds)
        path.with_suffix(".away").rename(path)

    return act


def cut(proxy: Proxy) -> None:
    """Cut all connections; new ones are accepted at once."""
    proxy.cut()
    proxy.ended = False


def cut_again_and_again(run: FaultRun, platform: str) -> None:
    run.wait_for(platform)
    for _ in range(4):
        cut(run.setting)
        time.sleep(0.5)


def cut_at_the_end(run: FaultRun, platform: str) -> None:
    """Take the engine away until the command has given it up."""
    run.wait_for(platform)
    (run.folder / SOCKET).rename(run.folder / "away")
    cut(run.setting)
    Thread(target=_bring_back, args=(run,), daemon=True).start()


def _bring_back(run: FaultRun) -> None:
    run.processes[0].wait()
    Path(run.folder / "away").rename(run.folder / SOCKET)


def replaced(old: bytes, new: bytes) -> Callable[[bytes], bytes]:
    """Return what replaces a text by one of the same length, as the answer has a length."""
    assert len(old) == len(new)
    return lambda part: part.replace(old, new)


UNNOTICED = replace(PASSES, kind=KIND, environment=BEHIND)
UNREACHABLE = replace(REFUSED, kind=KIND, environment=BEHIND)
INTERRUPTED = replace(NOT_STARTED, kind=KIND, environment=BEHIND)  # `--resume` completes the run
FAULTS = (
    replace(
        UNNOTICED,
        name="the engine is away for 3 s while the tests run",
        files=SLOW,
        around=behind(),
        act=away(AWAY_S),
        shown=(LOST, "reached the Docker Engine at … again"),
    ),
    replace(
        UNNOTICED,
        name="the engine answers nothing for 6 s while the tests run",
        files=SLOW,
        around=behind(),
        act=hang,
        shown=(SILENT,),
    ),
    replace(UNNOTICED, name="the engine takes 0.4 s longer for each answer", around=behind(slow)),
    replace(
        UNNOTICED,
        name="the connections to the engine are cut four times in 2 s",
        files=SLOW,
        around=behind(),
        act=cut_again_and_again,
    ),
    replace(
        UNNOTICED,
        name="the engine is gone for longer than a minute; `--resume` finds the container",
        files=SLOW,
        around=behind(),
        act=cut_at_the_end,
        shown=(LOST, SILENT, "incomplete, lost"),
        exits=(3, 0),
        left=Left.CONTAINER,
        limit_s=120.0,
    ),
    replace(
        UNREACHABLE,
        name="there is no socket of an engine",
        around=nothing_there,
        shown=(
            "no Docker Engine answers at …: [Errno 2] No such file or directory: …\n"
            "start one with docker/start-engine, or use --engine host",
        ),
    ),
    replace(
        UNREACHABLE,
        name="the engine has ended and left its socket",
        around=nobody_listens,
        shown=(
            "no Docker Engine answers at …: [Errno 111] Connection refused: …\n"
            "start one with docker/start-engine, or use --engine host",
        ),
    ),
    replace(
        UNREACHABLE,
        name="a web server is at the engine's address",
        around=lies(b"<html></html>"),
        shown=(NO_ENGINE,),
    ),
    replace(
        UNREACHABLE,
        name="the engine states a version that is none",
        around=lies(b'{"ApiVersion": "x1"}'),
        shown=(NO_ENGINE,),
    ),
    replace(
        UNREACHABLE,
        name="the engine answers `/version` with status 500",
        around=answering(r"GET \S*/version", SERVER_ERROR),
        shown=(
            "what answers as the Docker Engine at … is broken, or is no Docker Engine: out of"
            " order",
        ),
    ),
    replace(
        INTERRUPTED,
        name="status 500 for the creation of the container",
        around=answering(r"POST \S*/containers/create", SERVER_ERROR),
        evidence=(REFUSED_BY_500,),
    ),
    replace(
        INTERRUPTED,
        name="status 500 for the start of the container",
        around=answering(r"POST \S*/containers/\S+/start", SERVER_ERROR),
        evidence=(REFUSED_BY_500,),
    ),
    replace(
        INTERRUPTED,
        name="status 500 for the copy of the sources",
        around=answering(r"PUT \S*/archive", SERVER_ERROR),
        evidence=(REFUSED_BY_500,),
    ),
    replace(
        INTERRUPTED,
        name="the connection is cut while the container is created",
        around=answering(r"POST \S*/containers/create", b"", times=1),
        evidence=(ABORTED,),
    ),
    replace(
        INTERRUPTED,
        name="the connection is cut after the container was created, before the answer",
        around=changing(r"POST \S*/containers/create", lambda _: b"", times=1),
        evidence=(ABORTED,),
    ),
    replace(
        INTERRUPTED,
        name="the connection is cut while the sources are copied",
        around=answering(r"PUT \S*/archive", b"", times=1),
        evidence=(ABORTED,),
    ),
    replace(
        INTERRUPTED,
        name="the answer to the creation of the container is no JSON",
        around=answering(r"POST \S*/containers/create", TEXT),
        evidence=(on_stages.platform_failed(NO_ENGINE),),
    ),
    replace(
        UNNOTICED,
        name="the connection is cut in the middle of the results",
        around=changing(r"GET \S*/archive", lambda _: b"", times=1),
        shown=(LOST,),
    ),
    replace(
        UNNOTICED,
        name="the end of the results' archive is missing, once",
        around=changing(r"GET \S*/archive", lambda part: part[: len(part) // 2], times=1),
    ),
    replace(
        UNNOTICED,
        name="the engine states another exit code of the container than the agent",
        around=changing(STATE, replaced(b'"ExitCode":0,', b'"ExitCode":7,')),
        harness=Harness.INFRASTRUCTURE,
        evidence=(PASSED, on_harness.agent_disagrees(7, 0)),
    ),
    replace(
        UNNOTICED,
        name="the engine states an out-of-memory kill that never was",
        around=changing(STATE, replaced(b'"OOMKilled":false', b'"OOMKilled":true ')),
        harness=Harness.OOM_KILLED,
        evidence=(PASSED, on_harness.killed_for_memory(None, None, None, reached=False)),
    ),
    Fault(
        name="the engine states that a container has ended whose tests run",
        kind=KIND,
        files=SLOW,
        environment=BEHIND,
        around=behind(),
        act=early_end,
        product=Product.INCOMPLETE,
        harness=Harness.INFRASTRUCTURE,
        evidence=(
            CUT_IN_COLLECTION,
            agent_died(0),
            on_tests.running_tests(["…/test_it.py::test_a"]),
        ),
        exits=(3,),
    ),
)
