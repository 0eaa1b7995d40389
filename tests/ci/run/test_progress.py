"""Progress: few lines while all is well, the end of the log when it is not."""

from __future__ import annotations

import os
import pty
import re
from collections.abc import Mapping
from dataclasses import replace
from io import StringIO
from threading import Event

import pytest
from rich.console import Console

from ci.engines import EngineMessage
from ci.facts.measures import IMAGE
from ci.model.results import RunResult
from ci.protocol.events import Event as AgentEvent
from ci.protocol.events import (
    LeaseReleased,
    Output,
    RunFinished,
    StageFinished,
    StageProgress,
    StageStarted,
)
from ci.run.progress import SIGN_OF_LIFE_S, Progress, is_live
from ci.run.status import TAIL_LINES, Expectation, ImagePrepared, ImageStarted, PlatformFailed

BEGIN = StageStarted("install")
END = StageFinished("install", seconds=1.25, exit_code=0)
FAILED = replace(END, exit_code=1)


def shown(*events: AgentEvent, live: bool = False) -> str:
    console = Console(file=StringIO(), width=40, height=24, force_terminal=live)
    with Progress(console, live=live) as progress:
        for event in events:
            progress.event("CPU", event)
    return text_of(console)


def text_of(console: Console) -> str:
    """What was printed, without the time of day before each line."""
    assert isinstance(console.file, StringIO)
    return re.sub(r"^\d\d:\d\d:\d\d ", "", console.file.getvalue(), flags=re.MULTILINE)


class Clock:
    """A clock that only the test moves."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def output(text: str) -> Output:
    return Output("install", text)


def test_a_stage_that_ends_well_is_two_lines() -> None:
    text = shown(BEGIN, output("compiling\n"), END)
    assert text == "CPU: install started\nCPU: install finished after 1.2 s\n"


def test_a_failing_stage_shows_the_end_of_its_log() -> None:
    lines = [output(f"line {n}\n") for n in range(TAIL_LINES + 1)]
    text = shown(BEGIN, *lines, replace(END, exit_code=2))
    assert "    line 0\n" not in text
    assert "    line 1\n    line 2\n" in text
    assert f"    line {TAIL_LINES}\nCPU: install failed with exit code 2 after 1.2 s" in text


def test_the_log_of_an_earlier_stage_is_not_shown() -> None:
    text = shown(BEGIN, output("all fine"), END, BEGIN, FAILED)
    assert "all fine" not in text


LONG = "error: [red]no[/red] " + "x" * 100  # neither wrapped nor interpreted


@pytest.mark.parametrize(
    ("line", "printed"),
    [
        (LONG, LONG),
        ("\x1b[31merror\x1b[0m red\x07", "error red\N{REPLACEMENT CHARACTER}"),
        ("from https://user:secret@host/simple", "from https://***@host/simple"),
    ],
    ids=["long", "controls", "credentials"],
)
def test_a_line_of_a_log_is_whole_and_inert(line: str, printed: str) -> None:
    assert f"    {printed}\n" in shown(BEGIN, output(line), FAILED)


def test_what_builds_the_image_is_shown_only_by_its_end() -> None:
    built = ImagePrepared(IMAGE, seconds=8.0, exit_code=0, reason="cached")
    text = shown(StageStarted(IMAGE), Output(IMAGE, "Step 1/9"), built)
    assert text == "CPU: image started\nCPU: image finished after 8.0 s (cached)\n"


@pytest.mark.parametrize("live", [False, True])
def test_an_engine_without_images_makes_an_environment(live: bool) -> None:
    built = ImagePrepared(IMAGE, seconds=8.0, exit_code=0, reason="fresh", title="environment")
    text = shown(ImageStarted(IMAGE, title="environment"), built, live=live)
    assert "CPU: environment finished after 8.0 s (fresh)\n" in text
    assert "image" not in text


def test_what_an_engine_reports_is_always_shown() -> None:
    message = EngineMessage("the engine answers again")
    text = shown(StageStarted(IMAGE), message, BEGIN, message)
    assert text.count("CPU: the engine answers again\n") == 2


def test_why_a_platform_cannot_go_on() -> None:
    assert shown(PlatformFailed("the registry is gone")) == "CPU: the registry is gone\n"


@pytest.mark.parametrize(
    "event", [RunFinished(exit_code=0), LeaseReleased(), StageProgress("install", done=1)]
)
def test_other_events_show_nothing(event: AgentEvent) -> None:
    assert shown(event) == ""


def test_lines_have_the_time_of_day() -> None:
    console = Console(file=StringIO(), width=40)
    Progress(console).show_failure("CPU", "gone")
    assert isinstance(console.file, StringIO)
    assert re.fullmatch(r"\d\d:\d\d:\d\d CPU: gone\n", console.file.getvalue())


def test_a_terminal_shows_the_latest_line_as_it_comes() -> None:
    console, clock = Console(file=StringIO(), width=120, height=24, force_terminal=True), Clock()
    with Progress(console, live=True, clock=clock) as progress:
        progress.event("CPU", BEGIN)
        progress.event("CPU", output("compiling [a].cc"))
        clock.now = 3723
        progress.tick()
        assert "compiling [a].cc" in text_of(console)
        assert " 1:02:03" in text_of(console)
        progress.event("CPU", END)
    assert "CPU: install finished after 1.2 s" in text_of(console)
    assert "CPU: install started" not in text_of(console)


def test_a_view_that_did_not_change_is_not_drawn_again() -> None:
    console = Console(file=StringIO(), width=80, height=24, force_terminal=True)
    progress = Progress(console, live=True, clock=Clock())
    with progress:
        progress.event("CPU", BEGIN)
        progress.tick()
        drawn = text_of(console)
        for _ in range(10):
            progress.tick()
        assert text_of(console) == drawn


@pytest.mark.parametrize("live", [False, True])
def test_platforms_are_told_apart(live: bool) -> None:
    console = Console(file=StringIO(), width=40, height=24, force_terminal=live)
    with Progress(console, live=live) as progress:
        for label in ("CPU", "Moore"):
            progress.event(label, BEGIN)
            progress.event(label, output(f"of {label}"))
        progress.event("Moore", FAILED)
        progress.event("CPU", END)
    text = text_of(console)
    assert "    of Moore" in text
    assert "Moore: install failed with exit code 1" in text
    assert "    of CPU" not in text
    assert "CPU: install finished" in text


def test_silent_platforms_are_reported() -> None:
    console, clock = Console(file=StringIO(), width=200), Clock()
    progress = Progress(console, clock=clock)
    for label in ("CPU", "Moore", "Ascend"):
        progress.expect(label, Expectation(stages=("install",)))
    for label in ("CPU", "Moore"):
        progress.event(label, BEGIN)
    progress.estimate("CPU", {"install": 4 * SIGN_OF_LIFE_S})
    before = text_of(console)
    clock.now = SIGN_OF_LIFE_S - 1
    progress.event("Moore", EngineMessage("the engine answers again"))
    progress.tick()
    clock.now = SIGN_OF_LIFE_S
    progress.tick()
    progress.tick()
    assert text_of(console).removeprefix(before).splitlines() == [
        "Moore: the engine answers again",
        "CPU: install for 0:00:29, 25 % of the usual time, about 1 min left",
    ]
    clock.now = 2 * SIGN_OF_LIFE_S - 1
    progress.tick()
    assert text_of(console).endswith("Moore: install for 0:00:57\n")


class Written(StringIO):
    """A log that can be waited for."""

    def __init__(self) -> None:
        super().__init__()
        self.wanted, self.found = "", Event()

    def write(self, text: str) -> int:
        if self.wanted and self.wanted in text:
            self.found.set()
        return super().write(text)


def test_a_stage_that_prints_nothing_is_reported() -> None:
    log, clock = Written(), Clock()
    with Progress(Console(file=log, width=200), clock=clock) as progress:
        progress.event("CPU", BEGIN)
        log.wanted = "CPU: install for 0:01:00"
        clock.now = 60.0  # and no event comes
        assert log.found.wait(60)


@pytest.mark.parametrize(
    ("environ", "live"),
    [
        ({"TERM": "xterm"}, True),
        ({"TERM": "xterm", "CI": ""}, True),
        ({"TERM": "xterm", "CI": "false"}, True),
        ({"TERM": "xterm", "CI": "true"}, False),
        ({"TERM": "xterm", "CI": "woodpecker"}, False),
        ({"TERM": "dumb"}, False),
    ],
)
def test_a_person_at_a_terminal_gets_the_live_view(environ: Mapping[str, str], live: bool) -> None:
    terminal, theirs = pty.openpty()
    with os.fdopen(terminal), os.fdopen(theirs, "w") as file:
        assert is_live(Console(file=file, _environ=environ), environ) is live


def test_a_file_gets_no_live_view_even_with_colors() -> None:
    environ = {"TERM": "xterm", "FORCE_COLOR": "1"}
    console = Console(file=StringIO(), _environ=environ)
    assert console.is_terminal
    assert not is_live(console, environ)


@pytest.mark.parametrize("live", [False, True])
def test_a_run_goes_on_when_no_one_reads_its_progress(
    live: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as stream:
        monkeypatch.setattr("sys.stderr", stream)
        with Progress(live=live) as progress:
            progress.show_failure("CPU", "a first line")
            progress.show_failure("CPU", "a second one")


def test_a_refused_platform_is_shown_until_the_end() -> None:
    console = Console(file=StringIO(), width=80, height=24, force_terminal=True)
    with Progress(console, live=True) as progress:
        progress.show_refusal("Moore", "no base image is configured")
        progress.tick()
        assert "cannot begin" in text_of(console)
    assert "Moore: no base image is configured" in text_of(console)


def test_how_a_platform_ended(published: RunResult) -> None:
    console = Console(file=StringIO(), width=200)
    with Progress(console) as progress:
        for result in published.platforms[-2:]:
            progress.show_result(result.label, result)
    *_, last = text_of(console).splitlines()
    assert last.startswith("Ascend: passed, exit after summary, ")
