"""The state of a run, from events: no clock, no terminal."""

from __future__ import annotations

from typing import Any

import pytest

from ci.engines import EngineMessage
from ci.facts.measures import IMAGE
from ci.protocol.events import (
    LeaseReleased,
    LeaseTaken,
    LeaseWaiting,
    Output,
    StageFinished,
    StageProgress,
    StageSkipped,
    StageStarted,
)
from ci.run.status import (
    Expectation,
    Phase,
    PlatformFailed,
    PlatformStatus,
    RunStatus,
    device_names,
)

STAGES = ("generate", "install", "pytest")


@pytest.fixture
def platform() -> PlatformStatus:
    expected = Expectation(stages=STAGES, tests={"pytest": 90})
    return PlatformStatus(label="CPU", expected=expected)


def begin(platform: PlatformStatus, stage: str, now: float = 0.0) -> None:
    platform.apply(StageStarted(stage), now)


def finish(platform: PlatformStatus, stage: str, now: float = 0.0, exit_code: int = 0) -> None:
    platform.apply(StageFinished(stage, seconds=1.0, exit_code=exit_code), now)


def progress(platform: PlatformStatus, stage: str, now: float = 0.0, **counts: Any) -> None:
    platform.apply(StageProgress(stage, **counts), now)


def output(platform: PlatformStatus, text: str) -> None:
    platform.apply(Output(platform.stage, text), 0.0)


def test_a_platform_waits_until_its_first_event(platform: PlatformStatus) -> None:
    assert (platform.phase, platform.activity, platform.elapsed(50)) == ("waiting", "waiting", 0)
    begin(platform, IMAGE, 10)
    assert (platform.phase, platform.activity, platform.elapsed(50)) == ("running", IMAGE, 40)
    finish(platform, IMAGE, 55)
    assert (platform.activity, platform.elapsed(60)) == ("starting", 5)
    for stage in STAGES:
        begin(platform, stage, 60)
        finish(platform, stage, 70)
    assert platform.activity == "finishing"
    platform.end("passed", 75, passed=True)
    assert (platform.phase, platform.elapsed(1000)) == ("done", 65)
    assert not platform.broken


def test_steps_of_a_build(platform: PlatformStatus) -> None:
    begin(platform, "install")
    assert (platform.counts(), platform.fraction(10)) == ("", None)
    progress(platform, "install", done=18, total=36)
    assert (platform.counts(), platform.fraction(10)) == ("18/36", 0.5)
    begin(platform, "pytest")
    progress(platform, "install", done=36, total=36)  # of a stage that has ended
    assert platform.counts() == "0/90"


@pytest.mark.parametrize(
    ("collected", "counts", "fraction"),
    [(None, "45/90", 0.5), (80, "45/90", 0.5), (180, "45/180", 0.25), (0, "45/90", 0.5)],
    ids=["not printed", "tests vanished", "new tests", "none"],
)
def test_tests_against_the_contract(
    platform: PlatformStatus, collected: int | None, counts: str, fraction: float
) -> None:
    begin(platform, "pytest")
    progress(platform, "pytest", done=45, total=collected)
    assert (platform.counts(), platform.fraction(1)) == (counts, fraction)


def test_tests_without_a_contract() -> None:
    platform = PlatformStatus(label="CPU", expected=Expectation(stages=STAGES))
    begin(platform, "pytest")
    progress(platform, "pytest", done=45)
    assert (platform.counts(), platform.fraction(1)) == ("45/?", None)
    progress(platform, "pytest", done=50, total=40)  # some were run again
    assert (platform.counts(), platform.fraction(1)) == ("50/40", 1.0)


def test_steps_of_an_image(platform: PlatformStatus) -> None:
    begin(platform, IMAGE)
    output(platform, "Step 4/9 : RUN make")
    assert (platform.counts(), platform.latest) == ("3/9", "Step 4/9 : RUN make")
    begin(platform, "install")
    output(platform, "Step 9/9 : nothing")
    assert platform.counts() == ""


def test_the_estimate_fills_the_bar_of_a_stage_without_counts(platform: PlatformStatus) -> None:
    platform.estimates = {"install": 400}
    begin(platform, "install", 100)
    assert platform.fraction(200) == 0.25
    assert platform.fraction(100_000) == 0.99  # late, but not at its end


def test_the_remaining_time(platform: PlatformStatus) -> None:
    platform.estimates = {"generate": 10, "install": 400}
    assert platform.remaining(0) is None  # nothing is known of the tests
    platform.estimates = {**platform.estimates, "pytest": 600}
    assert platform.remaining(0) == 1010
    begin(platform, IMAGE)
    assert platform.remaining(90) == 1010
    finish(platform, IMAGE, 90)
    begin(platform, "generate", 100)
    finish(platform, "generate", 110)
    begin(platform, "install", 110)
    assert platform.remaining(210) == 300 + 600
    assert platform.remaining(1000) == 600  # late
    progress(platform, "install", 610, done=50, total=100)
    assert platform.remaining(610) == 500 + 600  # half of it took longer than all of it did
    finish(platform, "install", 700, exit_code=1)
    assert platform.remaining(700) == 0


def test_failures_so_far(platform: PlatformStatus) -> None:
    begin(platform, "pytest")
    output(platform, "..F")
    assert (platform.failed, platform.log_tail) == (0, ())
    progress(platform, "pytest", done=3, failed=1, failing="t.py::test_a")
    progress(platform, "pytest", done=4, failed=1, failing="t.py::test_a")
    progress(platform, "pytest", done=9, failed=3, failing="t.py::test_c")
    assert platform.failed == 3
    assert list(platform.log_tail) == ["t.py::test_a", "t.py::test_c"]
    assert not platform.broken


def test_the_log_tail_of_a_stage_that_failed(platform: PlatformStatus) -> None:
    begin(platform, "install")
    output(platform, "a.cc: error\n")
    output(platform, "\n")
    finish(platform, "install", exit_code=2)
    platform.apply(StageSkipped("pytest", reason="not run: install failed"), 1)
    assert (platform.broken, platform.log_tail) == (True, ["a.cc: error"])
    assert platform.problem == "install failed with exit code 2"
    assert (platform.activity, platform.latest) == ("finishing", "")


def test_messages_of_the_engine_are_not_of_the_log(platform: PlatformStatus) -> None:
    begin(platform, "install")
    output(platform, "a.cc: error")
    platform.apply(EngineMessage("the engine answers again"), 1)
    finish(platform, "install", exit_code=2)
    assert platform.log_tail == ["a.cc: error"]


def test_an_image_that_is_packed() -> None:
    platform = PlatformStatus(label="CPU")
    begin(platform, IMAGE)
    finish(platform, IMAGE)
    platform.apply(EngineMessage("packing infini-ci/cpu"), 1)
    assert (platform.activity, platform.latest) == ("working", "packing infini-ci/cpu")


def test_another_attempt_begins_anew(platform: PlatformStatus) -> None:
    begin(platform, "install")
    platform.apply(PlatformFailed("the engine does not answer"), 5)
    assert (platform.broken, platform.remaining(5)) == (True, 0)
    platform.wait()
    assert platform.activity == "waiting"
    begin(platform, IMAGE, 9)
    assert (platform.broken, platform.problem, platform.phase) == (False, "", Phase.RUNNING)


def test_devices(platform: PlatformStatus) -> None:
    waits = "pytest has waited 12 s for devices: GPU-1 is held by ci"
    platform.apply(LeaseWaiting("pytest", text=waits), 1)
    assert (platform.activity, platform.waits) == ("waiting", waits)
    device = {"uuid": "GPU-1", "health": "healthy", "index": 3, "name": "H100"}
    platform.apply(LeaseTaken("pytest", waited_s=12.0, devices=(device,)), 2)
    assert (platform.waits, platform.device) == ("", "H100 #3")
    platform.apply(LeaseReleased(devices=(device,)), 3)
    assert platform.device == ""


@pytest.mark.parametrize(
    ("devices", "names"),
    [
        ((), ""),
        (({"uuid": "GPU-1"},), "GPU-1"),
        (({"uuid": "a", "name": "H100", "index": 0}, {"uuid": "b", "name": "H100", "index": 5}),
         "2 x H100 #0 #5"),
    ],
)  # fmt: skip
def test_names_of_devices(devices: tuple[dict[str, Any], ...], names: str) -> None:
    assert device_names(devices) == names


def test_cache_hits(platform: PlatformStatus) -> None:
    begin(platform, "install")
    progress(platform, "install", cache_misses=0)
    assert platform.cache == ""
    progress(platform, "install", cache_hits=97, cache_misses=3)
    assert platform.cache == "cache 97 %"


def run_of(*seconds: float | None) -> RunStatus:
    """A run of platforms with one stage that takes so many seconds; ``None``: not known."""
    run = RunStatus(began=0)
    for number, time in enumerate(seconds):
        platform = run.platform(f"P{number}")
        platform.expected = Expectation(stages=("build",))
        platform.estimates = {} if time is None else {"build": time}
    return run


def test_the_remaining_time_of_a_run() -> None:
    run = run_of(100, 300, 50, 400)
    assert run.remaining(0) == 850  # one after the other, as far as is known
    for label in ("P0", "P1"):
        begin(run.platform(label), "build")
    # At 100 s the third begins, at 150 s the last.
    assert run.remaining(0) == 550
    run.platform("P0").end("passed", 60, passed=True)
    assert run.remaining(60) == 240 + 50 + 400


@pytest.mark.parametrize("begun", [False, True])
def test_the_remaining_time_of_a_run_that_is_not_known(begun: bool) -> None:
    run = run_of(100, None)
    if begun:
        begin(run.platform("P1"), "build")
    assert run.remaining(0) is None
