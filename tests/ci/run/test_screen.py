"""The live view of seven platforms, drawn at any width: clocks are whole, output is inert."""

from __future__ import annotations

import re

import pytest
from rich.cells import cell_len

from ci.facts.measures import IMAGE
from ci.protocol.events import (
    Event,
    LeaseTaken,
    LeaseWaiting,
    Output,
    StageFinished,
    StageProgress,
    StageStarted,
)
from ci.run.screen import ASCII, LONGEST, about, clean, clock, describe, draw
from ci.run.status import Expectation, RunStatus

SEVEN = (
    *("CPU", "NVIDIA", "Iluvatar (simulated)", "MetaX", "Cambricon (simulated)", "Moore", "Ascend"),
)
WIDTHS = (80, 120, 200)
HOSTILE = "\x1b[2J\x1b]0;title\x07\u202e[bold]x[/bold]\t\u5bbd\u0301\r\n\x9b" + "y\u5bbd" * 3000
TEST = "tests/ops/test_torch_ops.py::test_op[add.out-float16-slot8]"
CLOCK = re.compile(r" \d+:\d\d:\d\d$")


def apply(run: RunStatus, label: str, event: Event, now: float) -> None:
    run.platform(label).apply(event, now)


@pytest.fixture
def run() -> RunStatus:
    """Platforms in every state, with hostile output."""
    run = RunStatus(began=0)
    for label in SEVEN:
        platform = run.platform(label)
        platform.expected = Expectation(stages=("install", "pytest"), tests={"pytest": 9206})
        platform.estimates = {"install": 400, "pytest": 900}
        if label != "Ascend":
            apply(run, label, StageStarted(IMAGE), 0)
        if label not in ("Ascend", "MetaX"):
            apply(run, label, StageFinished(IMAGE, seconds=5, exit_code=0), 5)
    apply(run, "CPU", StageStarted("pytest"), 400)
    apply(run, "CPU", Output("pytest", HOSTILE), 500)
    numbers = {"done": 4210, "failed": 2, "cache_hits": 97, "cache_misses": 3}
    apply(run, "CPU", StageProgress("pytest", failing=TEST, **numbers), 600)
    device = {"uuid": "GPU-1", "name": "H100", "index": 3, "health": "healthy"}
    apply(run, "NVIDIA", StageStarted("install"), 6)
    apply(run, "NVIDIA", LeaseTaken("install", waited_s=0, devices=(device,)), 6)
    apply(run, "NVIDIA", StageProgress("install", done=18, total=33), 600)
    apply(run, "Iluvatar (simulated)", StageStarted("install"), 6)
    for number in range(9):
        text = f"{HOSTILE} {number}" if number else "error: a"
        apply(run, "Iluvatar (simulated)", Output("install", text), 9)
    finished = StageFinished("install", seconds=60, exit_code=1)
    apply(run, "Iluvatar (simulated)", finished, 66)
    apply(run, "MetaX", Output(IMAGE, "Step 4/9 : RUN pip install"), 7)
    text = "install has waited 60 s for devices: MLU-1 is held"
    apply(run, "Cambricon (simulated)", LeaseWaiting("install", text=text), 60)
    outcome = "passed, 9206 passed, 8664 skipped, 104 warnings in 177.98s (0:02:57)"
    run.platform("Moore").end(outcome, 590, passed=True)
    return run


def rows_of(run: RunStatus, width: int, height: int = 24) -> list[str]:
    return [line.plain for line in draw(run, width=width, height=height, now=612)]


@pytest.mark.parametrize("width", WIDTHS)
def test_every_platform_has_its_line(run: RunStatus, width: int) -> None:
    rows = rows_of(run, width)
    heads = [row for row in rows if not row.startswith("  ")]
    labels = [row[2:24].strip() for row in heads]
    assert labels[:-1] == [label[:22] for label in SEVEN]
    assert heads[-1].startswith("7 platforms: 1 done, 5 running, 1 waiting, about ")
    clocks = ["0:03:32", "0:10:06", "0:09:06", "0:10:12", "0:10:07", "0:09:50", "", "0:10:12"]
    assert [row.split()[-1] if CLOCK.search(row) else "" for row in heads] == clocks
    cpu, nvidia, iluvatar, metax, cambricon, moore, ascend, _ = heads
    assert re.search(r" pytest +\u2501+\u2500+ +4,210/9,206 ", cpu)
    assert re.search(r" install +\u2501+\u2500+ +18/33 ", nvidia)
    assert re.search(r" finishing ", iluvatar)
    assert re.search(r" image +\u2501+\u2500+ +3/9 ", metax)
    assert " waiting " in cambricon
    assert " passed, 9206 passed, 8664 skipped" in moore
    assert ascend.endswith(" waiting" + " " * (width - 1 - len(ascend.rstrip())))


@pytest.mark.parametrize("width", WIDTHS)
def test_what_else_is_known_is_shown(run: RunStatus, width: int) -> None:
    text = "\n".join(rows_of(run, width))
    for known in ("2 failed", "cache 97 %", "H100 #3", "install failed with exit code 1"):
        assert text.count(known) == 1
    assert "install has waited 60 s for devices" in text
    assert f"\n  \u2502 {TEST}" in text
    assert len(re.findall(r"^  \u2502 .*y\u5bbdy", text, re.MULTILINE)) == 3


@pytest.mark.parametrize("width", [*WIDTHS, 100, 99, 60, 40, 20])
def test_lines_have_the_width_of_the_terminal(run: RunStatus, width: int) -> None:
    lines = draw(run, width=width, height=24, now=612)
    assert {line.cell_len for line in lines} == {width - 1}
    assert {cell_len(line.plain) for line in lines} == {width - 1}
    assert all(line.plain.isprintable() for line in lines)
    assert CLOCK.search(lines[-1].plain)


@pytest.mark.parametrize("height", range(1, 30))
@pytest.mark.parametrize("width", WIDTHS)
def test_a_low_terminal_shows_what_fits(run: RunStatus, width: int, height: int) -> None:
    rows = rows_of(run, width, height)
    assert len(rows) <= height
    assert rows[-1].startswith("7 platforms:")
    heads = [row for row in rows[:-1] if not row.startswith("  ")]
    assert len(heads) == min(height - 1, len(SEVEN))


def test_a_terminal_without_unicode(run: RunStatus) -> None:
    run.platform("CPU").tail.clear()
    run.platform("Iluvatar (simulated)").tail.clear()
    for line in draw(run, width=80, height=24, now=612, symbols=ASCII):
        assert line.plain.isascii()


def test_a_run_without_platforms() -> None:
    [line] = draw(RunStatus(began=0), width=80, height=24, now=5)
    assert line.plain.split() == ["0", "platforms:", "0:00:05"]


def test_words_for_a_log(run: RunStatus) -> None:
    words = {label: describe(run.platform(label), 612) for label in SEVEN}
    assert words["CPU"] == (
        "pytest for 0:03:32, 4,210/9,206 (46 %), 2 failed, cache 97 %, about 18 min left"
    )
    assert words["NVIDIA"].startswith("install for 0:10:06, 18/33 (55 %), H100 #3, about ")
    assert words["Iluvatar (simulated)"] == "finishing for 0:09:06"
    assert words["Cambricon (simulated)"].startswith(
        "waiting for 0:10:07, install has waited 60 s for devices: MLU-1 is held"
    )


@pytest.mark.parametrize("width", [80, 120])
def test_a_long_step_shows_its_time_and_an_estimate(width: int) -> None:
    run = RunStatus(began=0)
    platform = run.platform("CPU")
    platform.expected = Expectation(stages=("install", "pytest"))  # it never ran before
    apply(run, "CPU", StageStarted("install"), 0)
    apply(run, "CPU", StageProgress("install", done=21, total=39), 210)
    for now, step in ((215, ""), (285, "this step 0:01:15")):
        apply(run, "CPU", StageProgress("install", done=21, total=39, cache_misses=1), now)
        text = "\n".join(line.plain for line in draw(run, width=width, height=24, now=now))
        minutes = round(now * 18 / 21 / 60)
        assert f"install: about {minutes} min left{', ' * bool(step)}{step}" in text
        assert ("this step" in text) is bool(step)
        words = (
            f"21/39 (54 %), {step}{', ' * bool(step)}cache 0 %, install: about {minutes} min left"
        )
        assert words in describe(platform, now)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0:00:00"), (59.9, "0:00:59"), (3723, "1:02:03"), (359_999, "99:59:59"), (-1, "0:00:00")],
)
def test_clock(seconds: float, text: str) -> None:
    assert clock(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(20, "less than 1 min left"), (40, "about 1 min left"), (3900, "about 1 h 5 min left")],
)
def test_remaining_time(seconds: float, text: str) -> None:
    assert about(seconds) == text


def test_texts_are_cleaned() -> None:
    assert clean("a\n\tb \x1b[31mc\x1b[0m") == "a b c"
    assert clean("at https://user:secret@host/simple") == "at https://***@host/simple"
    beyond = "x" * (LONGEST - len("https://user:secret"))
    assert "secret" not in clean(f"{beyond}https://user:secret@host/simple")
