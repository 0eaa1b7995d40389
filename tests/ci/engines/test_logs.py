"""Output on its way: all of it into a log, of a flood only the end to a display."""

from __future__ import annotations

from pathlib import Path

import pytest

from ci.engines import EngineMessage
from ci.engines.logs import SHOWN_CHARACTERS, SHOWN_LINES, LiveLogs
from ci.protocol.events import Event, Output, StageFinished


class Shown:
    """The calls that a display gets."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def event(self, event: Event) -> None:
        self.events.append(event)

    @property
    def lines(self) -> list[str]:
        return [event.text for event in self.events if isinstance(event, Output | EngineMessage)]


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
