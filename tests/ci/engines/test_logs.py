"""Output and events on their way: into logs, and of a flood only the end to a display."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ci.engines import EngineMessage
from ci.engines.logs import (
    AGENT_LOG,
    LONGEST_SHOWN,
    MOST_SHOWN,
    SHOWN_CHARACTERS,
    SHOWN_LINES,
    EventReader,
    ImageLog,
    LiveLogs,
)
from ci.facts.measures import IMAGE
from ci.protocol.agent_files import ENGINE_EVENTS
from ci.protocol.events import Output, RunFinished, StageFinished, StageStarted
from tests.ci.shown_events import Shown


@pytest.fixture
def shown() -> Shown:
    return Shown()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "results" / "build.log"


def output(text: str, *, stage: str = "build", more: bool = False) -> Output:
    return Output(stage, text, more)


def test_log_grows_with_the_output(log: Path, shown: Shown) -> None:
    live = LiveLogs(shown, {"build": log})
    live.event(output("first\nsec"))
    assert log.read_text() == "first\nsec"
    live.event(output("ond \udcff\n"))
    assert log.read_bytes() == b"first\nsecond \xff\n"
    assert shown.lines == ["first", "sec", "ond \N{REPLACEMENT CHARACTER}"]


def test_log_of_a_dead_caller_is_replaced(log: Path, shown: Shown) -> None:
    for _ in range(2):
        live = LiveLogs(shown, {"build": log})
        live.event(output("line\n"))
    assert log.read_text() == "line\n"


def test_logs_of_a_stage_that_prints_without_end(log: Path, shown: Shown) -> None:
    live = LiveLogs(shown, {"build": log}, most_bytes=15)
    for _ in range(4):
        live.event(output("0123456\n"))
    assert log.read_text() == "0123456\n"
    why = "build.log is not written any further while the stage runs: it is too large"
    assert [it for it in shown.events if not isinstance(it, Output)] == [EngineMessage(why)]


def test_logs_that_are_here_already_are_not_written(log: Path, shown: Shown) -> None:
    live = LiveLogs(shown, {})
    live.event(output("line\n"))
    assert shown.lines == ["line"]
    assert not log.parent.exists()


@pytest.mark.parametrize("full", [False, True], ids=["more follows", "full events"])
def test_a_flood_of_output_is_thinned(
    shown: Shown, monkeypatch: pytest.MonkeyPatch, full: bool
) -> None:
    monkeypatch.setattr("ci.engines.logs.monotonic", lambda: 1.0)
    live = LiveLogs(shown, {})
    filling = "x" * SHOWN_CHARACTERS if full else ""
    for number in range(10 * SHOWN_LINES):
        live.event(output(f"{filling}\n{number}\n" if full else f"{number}\n", more=not full))
    assert shown.lines == []
    end = StageFinished("build", seconds=1.0, exit_code=1)
    live.event(end)
    assert shown.events[-1] == end
    last = 10 * SHOWN_LINES
    numbers = [last - 1] if full else list(range(last - SHOWN_LINES, last))
    assert shown.lines[-len(numbers) :] == [str(number) for number in numbers]
    assert len(shown.lines) == len(shown.events) - 1 <= SHOWN_LINES
    assert sum(map(len, shown.lines)) <= SHOWN_CHARACTERS


def test_lines_of_a_quiet_stage_are_shown_as_they_come(
    shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ci.engines.logs.monotonic", lambda: 1.0)
    live = LiveLogs(shown, {})
    for number in range(2 * SHOWN_LINES):
        live.event(output(f"{number}\n"))
        assert shown.lines[-1] == str(number)


def test_of_a_flood_the_end_is_shown(log: Path, shown: Shown) -> None:
    live = LiveLogs(shown, {"build": log})
    for number in range(100):
        live.event(output(f"line {number}\n", more=number < 99))
    assert shown.lines[-SHOWN_LINES:] == [f"line {number}" for number in range(70, 100)]
    assert log.read_text().count("\n") == 100


@pytest.mark.parametrize("stage", ["../build", "other", "/build"])
def test_container_names_no_files(log: Path, shown: Shown, stage: str) -> None:
    live = LiveLogs(shown, {"build": log})
    live.event(output("line\n", stage=stage))
    assert not log.parent.exists()


def test_halves_of_characters_that_no_agent_prints(log: Path, shown: Shown) -> None:
    live = LiveLogs(shown, {"build": log})
    live.event(output("\ud800\n"))
    assert log.read_text() == "?\n"


def test_log_that_cannot_be_written(log: Path, shown: Shown) -> None:
    log.parent.write_text("a file where a folder must be")
    live = LiveLogs(shown, {"build": log})
    live.event(output("first\n"))
    live.event(output("second\n"))
    wrong = "build.log cannot be written while the stage runs: File exists"
    assert shown.lines == [wrong, "first", "second"]


# The agent's stream

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
def reader(tmp_path: Path, shown: Shown) -> EventReader:
    return EventReader(shown, tmp_path)


@pytest.mark.parametrize("size", [1, 7, 64, 1000])
def test_events_from_pieces_of_any_size(
    reader: EventReader, shown: Shown, tmp_path: Path, size: int
) -> None:
    for start in range(0, len(STREAM), size):
        reader.feed(STREAM[start : start + size])
    assert shown.events == EVENTS_OF_STREAM
    assert reader.finished == RunFinished(exit_code=0)
    assert (reader.unreadable_lines, reader.longest_line) == (2, 0)
    kept = (tmp_path / AGENT_LOG).read_text()
    assert kept == "Traceback (most recent call last):\n[1, 2]\n"


def test_events_are_kept_the_last_one_with_the_results(reader: EventReader, tmp_path: Path) -> None:
    kept = tmp_path / ENGINE_EVENTS
    kept.write_text("of a caller that died\n")

    def names() -> list[str]:
        return [json.loads(line)["event"] for line in kept.read_text().splitlines()]

    reader.feed(STREAM)
    reader.restart()
    reader.feed(STREAM)
    assert names() == ["stage_started"]
    reader.complete()
    assert names() == ["stage_started", "run_finished"]


def test_kept_events_are_bounded(
    reader: EventReader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ci.engines.logs.LARGEST_RECORD", 1000)
    for _ in range(100):
        reader.feed(STREAM)
    assert (tmp_path / ENGINE_EVENTS).stat().st_size <= 1000 + 100


def test_events_are_passed_once_when_the_stream_starts_again(
    reader: EventReader, shown: Shown
) -> None:
    reader.feed(STREAM[:100])
    reader.restart()
    reader.feed(STREAM[:90])
    reader.restart()  # cut off again, earlier than the first time
    reader.feed(STREAM)
    assert shown.events == EVENTS_OF_STREAM


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
def test_what_is_no_event_is_a_message(reader: EventReader, shown: Shown, line: bytes) -> None:
    reader.feed(line + STREAM)
    first, *rest = shown.events
    assert isinstance(first, EngineMessage)
    assert len(first.text) < 2 * LONGEST_SHOWN
    assert rest == EVENTS_OF_STREAM
    assert reader.unreadable_lines == 3
    assert reader.finished == RunFinished(exit_code=0)


def test_a_line_without_an_end(reader: EventReader, shown: Shown, tmp_path: Path) -> None:
    for _ in range(300):
        reader.feed(b"x" * (1 << 20))
    reader.feed(STREAM)  # whose first line is empty: an agent's event begins a line
    first, *rest = shown.events
    assert isinstance(first, EngineMessage)
    assert first.text.endswith("x [the beginning of 314,572,800 bytes]")
    assert rest == EVENTS_OF_STREAM
    assert (reader.unreadable_lines, reader.longest_line) == (3, 300 << 20)
    assert (tmp_path / AGENT_LOG).stat().st_size < 2 * LONGEST_SHOWN


def test_of_a_flood_of_junk_the_beginning_is_kept(
    reader: EventReader, shown: Shown, tmp_path: Path
) -> None:
    reader.feed(b"junk\n" * (3 * MOST_SHOWN))
    assert len(shown.events) == MOST_SHOWN
    assert reader.unreadable_lines == 3 * MOST_SHOWN
    last = (tmp_path / AGENT_LOG).read_text().splitlines()[-1]
    assert last == "[further lines are counted, not kept]"


def test_image_log_hides_passwords(tmp_path: Path, shown: Shown) -> None:
    log = ImageLog(tmp_path, shown)
    assert log.path.read_text() == ""
    log.write("Looking in indexes: https://user:s3cretpw@host.invalid/simple")
    expected = "Looking in indexes: https://***@host.invalid/simple"
    assert log.tail().strip() == expected
    assert log.path.read_text() == expected + "\n"
    assert shown.events == [Output(IMAGE, expected)]
