"""Output on its way: all of it into a log, of a flood only the end to a display."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from ci.engines.logs import SHOWN_LINES, LiveLogs


class Shown:
    """What a display is told."""

    def __init__(self) -> None:
        self.events: list[Mapping[str, object]] = []

    def event(self, event: Mapping[str, object]) -> None:
        self.events.append(event)

    @property
    def lines(self) -> list[object]:
        return [event["text"] for event in self.events]


@pytest.fixture
def shown() -> Shown:
    return Shown()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "results" / "build.log"


def output(text: str, *, stage: str = "build", more: bool = False) -> dict[str, object]:
    event: dict[str, object] = {"event": "output", "stage": stage, "text": text}
    return {**event, "more": True} if more else event


def test_log_grows_with_the_output(log: Path, shown: Shown) -> None:
    with LiveLogs(shown, {"build": log}) as live:
        live.event(output("first\nsec"))
        assert log.read_text() == "first\nsec"
        live.event(output("ond \udcff\n"))
    assert log.read_bytes() == b"first\nsecond \xff\n"
    assert shown.lines == ["first", "sec", "ond \N{REPLACEMENT CHARACTER}"]


def test_log_of_a_dead_caller_is_replaced(log: Path, shown: Shown) -> None:
    for _ in range(2):
        with LiveLogs(shown, {"build": log}) as live:
            live.event(output("line\n"))
    assert log.read_text() == "line\n"


def test_logs_that_are_here_already_are_not_written(log: Path, shown: Shown) -> None:
    with LiveLogs(shown, {}) as live:
        live.event(output("line\n"))
    assert shown.lines == ["line"]
    assert not log.parent.exists()


def test_of_a_flood_the_end_is_shown(log: Path, shown: Shown) -> None:
    with LiveLogs(shown, {"build": log}) as live:
        for number in range(100):
            live.event(output(f"line {number}\n", more=number < 99))
    assert shown.lines[-SHOWN_LINES:] == [f"line {number}" for number in range(70, 100)]
    assert log.read_text().count("\n") == 100


@pytest.mark.parametrize("stage", ["../build", "other", "/build"])
def test_container_names_no_files(log: Path, shown: Shown, stage: str) -> None:
    with LiveLogs(shown, {"build": log}) as live:
        live.event(output("line\n", stage=stage))
    assert not log.parent.exists()


def test_halves_of_characters_that_no_agent_prints(log: Path, shown: Shown) -> None:
    with LiveLogs(shown, {"build": log}) as live:
        live.event(output("\ud800\n"))
    assert log.read_text() == "?\n"


def test_log_that_cannot_be_written(log: Path, shown: Shown) -> None:
    log.parent.write_text("a file where a folder must be")
    with LiveLogs(shown, {"build": log}) as live:
        live.event(output("first\n"))
        live.event(output("second\n"))
    wrong = "build.log cannot be written while the stage runs: File exists"
    assert shown.lines == [wrong, "first", "second"]
