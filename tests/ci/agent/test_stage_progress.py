"""How far a stage is: what the agent counts while the stage runs, and prints for a display."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ci.agent import stage_progress
from ci.agent.stage_progress import INTERVAL_S, LARGEST_PIECE, GrowingFile, ProgressWatch
from ci.engines.logs import EventReader
from ci.protocol.agent_files import ENGINE_EVENTS
from ci.protocol.events import StageProgress
from ci.protocol.stage_kind import StageKind
from tests.ci.agent_job import Job, printed_events
from tests.ci.shown_events import Shown


class Clock:
    """A clock that only the test moves."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def record(test: str, *, when: str = "call", outcome: str = "passed", **more: object) -> bytes:
    fields = {"nodeid": test, "when": when, "outcome": outcome, "duration": 0.1, **more}
    return json.dumps({**fields, "$report_type": "TestReport"}).encode() + b"\n"


def counted(watch: ProgressWatch) -> tuple[int, int | None]:
    event = watch.next_event(last=True)
    return (event.done, event.total) if event else (-1, None)


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (b"[1/33] Building\n[18/33] Building CXX object\n", (18, 33)),
        (b"  [18/33] Building, below pip's own lines\n", (18, 33)),
        (b"[18/33] Building\nnote: [3/4] in a line\n", (18, 33)),
        (b"[18/33] Building\r[19/33] Building", (18, 33)),
        (b"[18/33]no step\n", (-1, None)),
        (b"[99999999999/99999999999] too many\n", (-1, None)),
        (b"\xff[18/33] no line of ninja\n", (-1, None)),
    ],
)
def test_steps_of_ninja(output: bytes, expected: tuple[int, int | None], clock: Clock) -> None:
    watch = ProgressWatch("install", clock=clock)
    watch.feed(output)
    assert counted(watch) == expected


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_steps_in_pieces(size: int, clock: Clock) -> None:
    output = b"".join(b"[%d/300] Building CXX object %d.o\n" % (n, n) for n in range(1, 201))
    watch = ProgressWatch("install", clock=clock)
    for start in range(0, len(output), size):
        watch.feed(output[start : start + size])
    assert counted(watch) == (200, 300)


@pytest.mark.parametrize(
    ("output", "total"),
    [
        (b"===== test session starts =====\ncollected 12 items\n", 12),
        (b"collecting ... collected 1 item\n", 1),
        (b"\x1b[1mcollecting ... \x1b[0m\x1b[1mcollected 12 items\x1b[0m\n", 12),
        (b"collected 12 items / 4 deselected / 8 selected\n", 8),
        (b"4 workers [900 items]\n", 900),
        (b"a test printed: collected 3 items\n", None),
        (b"[3/4] like ninja\n", None),
    ],
)
def test_the_number_of_tests(
    output: bytes, total: int | None, clock: Clock, tmp_path: Path
) -> None:
    watch = ProgressWatch("pytest", tests=GrowingFile(tmp_path / "none"), clock=clock)
    watch.feed(output)
    watch.feed(b"collected 77 items\n" if total else b"more\n")  # of a test's own pytest
    assert counted(watch) == ((0, total) if total else (-1, None))


def test_tests_of_a_growing_log(tmp_path: Path, clock: Clock) -> None:
    log = tmp_path / "pytest.jsonl"
    watch = ProgressWatch("pytest", tests=GrowingFile(log), clock=clock)
    assert watch.next_event(last=True) is None  # no log yet
    with log.open("ab", buffering=0) as file:
        file.write(record("t.py::a", when="setup") + record("t.py::a"))
        file.write(record("t.py::a", when="teardown") + record("t.py::b")[:20])
        assert counted(watch) == (1, None)
        file.write(record("t.py::b")[20:] + record("t.py::b", when="teardown"))
        quoted = 'print("when": "teardown", "outcome": "failed")'
        file.write(record("t.py::c", outcome="failed", longrepr=quoted))
        file.write(record("t.py::c", when="teardown", outcome="failed"))
        file.write(record("t.py::d", when="???", outcome="failed"))
    event = watch.next_event(last=True)
    assert event == StageProgress("pytest", done=4, failed=2, failing="t.py::d")
    watch.close()


def test_events_come_at_intervals_and_only_with_news(clock: Clock) -> None:
    watch = ProgressWatch("install", clock=clock)
    watch.feed(b"[1/9] a\n")
    assert watch.next_event() is None
    clock.now = INTERVAL_S
    watch.feed(b"[2/9] b\n")
    assert watch.next_event() == StageProgress("install", done=2, total=9)
    watch.feed(b"[3/9] c\n")
    assert watch.next_event() is None
    clock.now = 2 * INTERVAL_S
    assert watch.next_event() == StageProgress("install", done=3, total=9)
    clock.now = 3 * INTERVAL_S
    assert watch.next_event() is None


def test_hits_of_the_compiler_cache(tmp_path: Path, clock: Clock) -> None:
    log = tmp_path / "ccache.txt"
    log.write_text("# a.cc\ndirect_cache_hit\n# b.cc\ndirect_cache_miss\ncache_miss\n# c.cc\n")
    watch = ProgressWatch("install", cache=GrowingFile(log), clock=clock)
    event = watch.next_event(last=True)
    assert event == StageProgress("install", cache_hits=1, cache_misses=1)
    watch.close()


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_files_that_are_none_are_not_read(tmp_path: Path, kind: str) -> None:
    path, other = tmp_path / "log", tmp_path / "other"
    other.write_text("secret\n")
    if kind == "link":
        path.symlink_to(other)
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    assert GrowingFile(path).read() == b""


def test_a_line_without_an_end_is_read_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert LARGEST_PIECE > 1000
    monkeypatch.setattr(stage_progress, "LARGEST_PIECE", 10)
    path = tmp_path / "log"
    path.write_bytes(b"a" * 25 + b"\nb\nc")
    file = GrowingFile(path)
    assert [file.read() for _ in range(5)] == [b"a" * 10, b"a" * 10, b"aaaaa\nb\n", b"", b""]
    file.close()


def test_a_file_is_opened_with_the_rights_of_the_stages(tmp_path: Path) -> None:
    path, opened = tmp_path / "log", []

    @contextmanager
    def access() -> Iterator[None]:
        opened.append(path.exists())
        yield

    file = GrowingFile(path, access)
    assert file.read() == b""
    path.write_bytes(b"line\n")
    assert (file.read(), file.read()) == (b"line\n", b"")
    assert opened == [False, True]
    file.close()


TESTS = """
import pytest

@pytest.mark.parametrize("number", range(9))
def test_one(number):
    assert number != 4
"""


def test_an_agent_prints_the_counts_of_a_suite(job: Job) -> None:
    (job.workspace / "test_a.py").write_text(TESTS)
    pytest_command = (job.interpreter, "-m", "pytest", "-p", "no:cacheprovider", "test_a.py")
    job.stage("pytest", *pytest_command, kind=StageKind.PYTEST)
    assert job.run() == 1
    last = [event for event in job.printed if event["event"] == "progress"][-1]
    del last["time"], last["monotonic"]
    assert last == {
        "event": "progress",
        "stage": "pytest",
        "done": 9,
        "total": 9,
        "failed": 1,
        "failing": "test_a.py::test_one[4]",
        "cache_hits": 0,
        "cache_misses": 0,
    }
    assert job.events("progress") == []


def test_progress_comes_while_the_stage_runs(job: Job, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    program = f"print('[1/2] a', flush=True); open({str(gate)!r}).read(); print('[2/2] b')"
    job.python("build", program)
    seen = []
    with job.start() as process:
        for event in printed_events(process):
            if event["event"] == "progress":
                seen.append((event["done"], event["total"]))
                if event["done"] == 1:
                    gate.write_text("go on")
    assert seen == [(1, 2), (2, 2)]


def test_a_display_gets_progress_and_no_file_keeps_it(tmp_path: Path) -> None:
    shown, event = Shown(), StageProgress("build", done=1, total=2)
    reader = EventReader(shown, tmp_path)
    reader.feed(event.to_json(time=1.0, monotonic=1.0).encode() + b"\n")
    assert shown.events == [event]
    assert not (tmp_path / ENGINE_EVENTS).exists()
    assert reader.unreadable_lines == 0
