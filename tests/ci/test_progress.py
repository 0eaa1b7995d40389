"""Progress: few lines while all is well, the end of the log when it is not."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from ci.model.results import RunResult
from ci.run.progress import TAIL_LINES, Progress

BEGIN = {"event": "stage_started", "stage": "install"}
END = {"event": "stage_finished", "stage": "install", "seconds": 1.25, "exit_code": 0}


def shown(*events: dict[str, object], terminal: bool = False) -> str:
    console = Console(file=StringIO(), width=40, force_terminal=terminal)
    with Progress(console) as progress:
        for event in events:
            progress.event("CPU", event)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def output(text: str) -> dict[str, object]:
    return {"event": "output", "stage": "install", "text": text}


def test_a_stage_that_ends_well_is_two_lines() -> None:
    text = shown(BEGIN, output("compiling\n"), END)
    assert text == "CPU: install started\nCPU: install finished after 1.2 s\n"


def test_a_failing_stage_shows_the_end_of_its_log() -> None:
    lines = [output(f"line {n}\n") for n in range(TAIL_LINES + 1)]
    text = shown(BEGIN, *lines, {**END, "exit_code": 2})
    assert "    line 0\n" not in text
    assert "    line 1\n    line 2\n" in text
    assert f"    line {TAIL_LINES}\nCPU: install failed with exit code 2 after 1.2 s" in text


def test_the_log_of_an_earlier_stage_is_not_shown() -> None:
    text = shown(BEGIN, output("all fine"), END, BEGIN, {**END, "exit_code": 1})
    assert "all fine" not in text


def test_lines_are_neither_wrapped_nor_interpreted() -> None:
    line = "error: [red]no[/red] " + "x" * 100
    assert f"    {line}\n" in shown(BEGIN, output(line), {**END, "exit_code": 1})


def test_a_log_does_not_command_the_terminal() -> None:
    text = shown(BEGIN, output("\x1b[31merror\x1b[0m red\x07"), {**END, "exit_code": 1})
    assert "    error red\N{REPLACEMENT CHARACTER}\n" in text


def test_credentials_are_masked() -> None:
    line = output("Looking in indexes: https://user:secret@host/simple")
    assert "secret" not in shown(BEGIN, line, {**END, "exit_code": 1})


def test_what_builds_the_image_is_shown_only_by_its_end() -> None:
    image = {"event": "stage_started", "stage": "image"}
    built = {"event": "stage_finished", "stage": "image", "seconds": 8.0, "exit_code": 0}
    engine = {"event": "engine", "text": "Step 1/9"}
    text = shown(image, engine, {**built, "reason": "cached"}, engine)
    assert text == "CPU: image started\nCPU: image finished after 8.0 s (cached)\nCPU: Step 1/9\n"


@pytest.mark.parametrize("event", [{"event": "run_started"}, {"event": "new"}, {}])
def test_other_events_show_nothing(event: dict[str, object]) -> None:
    assert shown(event) == ""


def test_a_terminal_shows_the_latest_line_as_it_comes() -> None:
    text = shown(BEGIN, output("compiling [a].cc"), END, terminal=True)
    assert "CPU: install started" in text
    assert "CPU: install finished after 1.2 s" in text


@pytest.mark.parametrize("terminal", [False, True])
def test_platforms_are_told_apart(terminal: bool) -> None:
    console = Console(file=StringIO(), width=40, force_terminal=terminal)
    with Progress(console) as progress:
        for label in ("CPU", "Moore"):
            progress.event(label, BEGIN)
            progress.event(label, output(f"of {label}"))
        progress.event("Moore", {**END, "exit_code": 1})
        progress.event("CPU", END)
    assert isinstance(console.file, StringIO)
    text = console.file.getvalue()
    assert "    of Moore" in text
    assert "Moore: install failed with exit code 1" in text
    assert "    of CPU" not in text
    assert "CPU: install finished" in text


def test_how_a_platform_ended(published: RunResult) -> None:
    console = Console(file=StringIO(), width=200)
    with Progress(console) as progress:
        for result in published.platforms[-2:]:
            progress.show_result(result.label, result)
    assert isinstance(console.file, StringIO)
    *_, last = console.file.getvalue().splitlines()
    assert last.startswith("Ascend: passed, exit after summary, ")
