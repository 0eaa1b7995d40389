"""Timelines from the files of a run: what is placed, what is combined, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ci.facts.timeline import (
    MOST_LANES,
    MOST_TESTS,
    SHORT_TESTS,
    Timeline,
    TimeSpan,
    read_timeline,
    stages_in_order,
)
from ci.protocol.events import StageFinished, StageStarted

EPOCH = 1_700_000_000.0
CLOCK = 500.0  # the monotonic one
STAGES = (("install", 60.0), ("pytest", 30.0))


def write_events(folder: Path, name: str = "engine-events.jsonl") -> None:
    lines, now = [], 0.0
    for stage, seconds in STAGES:
        end = StageFinished(stage, seconds=seconds, exit_code=0)
        for event, moment in ((StageStarted(stage), now), (end, now + seconds)):
            lines.append(event.to_json(time=EPOCH + moment, monotonic=CLOCK + moment))
        now += seconds
    (folder / name).write_text("\n".join([*lines, '{"event": "stage_st']) + "\n", encoding="utf-8")


def write_ninja(folder: Path, *rows: tuple[int, int, float, str]) -> None:
    """Rows of start and end in milliseconds, when the command began, and its output."""
    text = "# ninja log v7\n" + "".join(
        f"{start}\t{end}\t{round((EPOCH + begun) * 1e9)}\t{output}\t{number:x}\n"
        for number, (start, end, begun, output) in enumerate(rows)
    )
    (folder / "ninja_log").write_text(text, encoding="utf-8")


def write_tests(folder: Path, *reports: dict[str, Any]) -> None:
    usual = {"$report_type": "TestReport", "when": "call", "outcome": "passed", "duration": 0.1}
    lines = [json.dumps({**usual, **report}) for report in reports]
    (folder / "pytest.jsonl").write_text("\n".join(lines), encoding="utf-8")


def lane(found: Timeline | None, prefix: str) -> list[TimeSpan]:
    assert found is not None
    return [span for span in found.spans if span.lane.startswith(prefix)]


@pytest.mark.parametrize("name", ["engine-events.jsonl", "events.jsonl"])
def test_stages_are_placed_by_the_clock_of_the_agent(tmp_path: Path, name: str) -> None:
    write_events(tmp_path, name)
    found = read_timeline(tmp_path)
    assert lane(found, "stages") == [
        TimeSpan("stages", "install", "stage", 0.0, 60.0),
        TimeSpan("stages", "pytest", "stage", 60.0, 90.0),
    ]


def test_there_is_none_without_a_record_of_stages(tmp_path: Path) -> None:
    assert read_timeline(tmp_path) is None
    (tmp_path / "events.jsonl").write_text('{"event": "stage_started", "stage": 3}\n')
    assert read_timeline(tmp_path) is None


def test_build_commands_share_lanes_only_one_after_the_other(tmp_path: Path) -> None:
    write_events(tmp_path)
    write_ninja(
        tmp_path, (0, 1000, 5.0, "b.cc.o"), (0, 4000, 5.0, "a.cc.o"), (1000, 9000, 6.0, "lib.so")
    )
    assert lane(read_timeline(tmp_path), "build") == [
        TimeSpan("build 1", "b.cc.o", "compile", 5.0, 6.0),
        TimeSpan("build 2", "a.cc.o", "compile", 5.0, 9.0),
        TimeSpan("build 1", "lib.so", "link", 6.0, 14.0),
    ]


def test_a_command_that_touches_its_output_later_does_not_move_the_build(tmp_path: Path) -> None:
    write_events(tmp_path)
    write_ninja(tmp_path, (0, 1000, 5.0, "a.cc.o"), (1000, 2000, 30.0, "b.cc.o"))
    starts = {span.name: span.start for span in lane(read_timeline(tmp_path), "build")}
    assert starts == {"a.cc.o": pytest.approx(5.0), "b.cc.o": pytest.approx(6.0)}


def test_lanes_are_bounded(tmp_path: Path) -> None:
    write_events(tmp_path)
    write_ninja(tmp_path, *((0, 1000, 5.0, f"{n}.o") for n in range(MOST_LANES + 10)))
    found = lane(read_timeline(tmp_path), "build")
    assert len(found) == MOST_LANES + 10
    assert len({span.lane for span in found}) == MOST_LANES


@pytest.mark.parametrize("begun", [-1e6, 1e6])
def test_a_build_of_another_time_is_not_placed(tmp_path: Path, begun: float) -> None:
    write_events(tmp_path)
    write_ninja(tmp_path, (0, 1000, begun, "a.cc.o"))
    found = read_timeline(tmp_path)
    assert lane(found, "build") == []
    assert found is not None
    assert found.left_out == ("build commands: Ninja's log does not record when the build began",)


def test_an_older_log_of_ninja_is_not_placed(tmp_path: Path) -> None:
    write_events(tmp_path)
    (tmp_path / "ninja_log").write_text("# ninja log v5\n0\t1000\t0\ta.cc.o\tab\n")
    assert lane(read_timeline(tmp_path), "build") == []


SUBTEST = {"$report_type": "SubTestReport", "_subtest.context": {"msg": "a", "kwargs": {}}}


def test_phases_of_a_test_are_one_span_of_its_worker(tmp_path: Path) -> None:
    write_events(tmp_path)
    test = {"nodeid": "t.py::test_a", "worker_id": "gw1"}
    write_tests(
        tmp_path,
        {**test, "when": "setup", "start": EPOCH + 61, "stop": EPOCH + 62},
        {**test, "outcome": "failed", "start": EPOCH + 62, "stop": EPOCH + 65},
        {**test, "when": "teardown", "start": EPOCH + 65, "stop": EPOCH + 66},
        {"nodeid": "t.py::test_b", "start": EPOCH + 66, "stop": "later"},
        {"nodeid": "t.py::test_c", "outcome": "skipped", "start": EPOCH + 66, "stop": EPOCH + 67},
        # A subtest of unittest has no times.
        {"nodeid": "t.py::test_d", "outcome": "failed", "start": 0, "stop": 0, **SUBTEST},
        {"nodeid": "t.py::test_d", "start": EPOCH + 67, "stop": EPOCH + 68},
    )
    assert lane(read_timeline(tmp_path), "tests") == [
        TimeSpan("tests", "t.py::test_c", "skipped", 66.0, 67.0),
        TimeSpan("tests", "t.py::test_d", "failed", 67.0, 68.0),
        TimeSpan("tests gw1", "t.py::test_a", "failed", 61.0, 66.0),
    ]


def test_short_tests_are_combined_and_failed_ones_are_not(tmp_path: Path) -> None:
    write_events(tmp_path)
    reports = []
    for n in range(2 * MOST_TESTS):
        begin, long = EPOCH + 60 + n / 100, n < MOST_TESTS
        reports.append(
            {
                "nodeid": f"t.py::test_{n}",
                "outcome": "failed" if n == MOST_TESTS + 7 else "passed",
                "start": begin,
                "stop": begin + (0.009 if long else 0.001),
            }
        )
    write_tests(tmp_path, *reports)
    found = lane(read_timeline(tmp_path), "tests")
    assert [span.name for span in found if span.kind == SHORT_TESTS] == [
        "7 short tests",
        f"{MOST_TESTS - 8} short tests",
    ]
    assert [span.name for span in found if span.kind == "failed"] == [
        f"t.py::test_{MOST_TESTS + 7}"
    ]
    assert sum(span.kind == "passed" for span in found) == MOST_TESTS


def test_tests_of_another_time_are_not_placed(tmp_path: Path) -> None:
    write_events(tmp_path)
    write_tests(tmp_path, {"nodeid": "t.py::test_a", "start": 1e300, "stop": 1e301})
    found = read_timeline(tmp_path)
    assert found is not None
    assert found.left_out == ("tests: their log has times outside of the stages",)


def test_without_files_the_stages_follow_each_other() -> None:
    found = stages_in_order([("install", 10.0), ("broken", None), ("pytest", 5.0)])
    assert [(it.name, it.start, it.end) for it in found.spans] == [
        ("install", 0.0, 10.0),
        ("pytest", 10.0, 15.0),
    ]
    assert "not in the folder of results" in found.left_out[0]
