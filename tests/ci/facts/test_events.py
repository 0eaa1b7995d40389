"""Reading the agent's record, whole and broken."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ci.facts.events import MOST_EVENTS, compare_records, parse_event, parse_events
from ci.facts.record import RunRecord
from ci.protocol.events import (
    EVENTS,
    AgentRestarted,
    ArtifactCut,
    ArtifactMissing,
    DiskFull,
    Event,
    LeaseFailed,
    LeaseReleased,
    LeaseTaken,
    LeaseWaiting,
    NetworkRemained,
    NetworkRemoved,
    NetworkWaiting,
    Output,
    RerunFinished,
    RerunsEnded,
    RerunStarted,
    RunFinished,
    RunStarted,
    ShardFinished,
    SourcesRemoved,
    StageFinished,
    StageLost,
    StageProgress,
    StageSkipped,
    StageStarted,
)
from ci.util.lines import LONGEST_EVENT, lines_of_file
from ci.util.text import describe_unreadable

LINES = (
    (Path(__file__).parents[1] / "data" / "events-crash.jsonl")
    .read_text(encoding="utf-8")
    .splitlines()
)


def event(kind: str, **fields: object) -> str:
    return json.dumps({"event": kind, "time": 1.0, "monotonic": 1.0, **fields})


def finished(**fields: object) -> str:
    whole = {"stage": "build", "seconds": 2.0, "exit_code": 0, **fields}
    return event("stage_finished", **whole)


def test_a_recorded_run() -> None:
    record = parse_events(LINES)
    pytest_stage = record.finished_stages["pytest"]
    assert (pytest_stage.exit_code, pytest_stage.signal) == (139, 11)
    [skipped] = [event for event in record.events if isinstance(event, StageSkipped)]
    assert (skipped.stage, skipped.reason) == ("after", "not run: pytest failed")
    assert [missing.path for missing in record.every(ArtifactMissing)] == ["nope"]
    assert record.run_finished is not None
    assert record.run_finished.exit_code == 1
    assert record.unfinished_stages == ()
    assert record.unreadable_lines == 0


DEVICE = {"uuid": "GPU-1", "health": "healthy", "index": 0, "memory_used": None}
WRITTEN: tuple[Event, ...] = (
    RunStarted(protocol=3, run_id="r", platform="cpu", pid=7, machine={"cores": 2, "os": None}),
    StageStarted(stage="build", command=("make", "-j")),
    StageFinished(stage="build", seconds=0.5, exit_code=-3, signal=9, timed_out=True),
    StageFinished(stage="build", seconds=0.5, exit_code=0, interrupted=True, pytest_status=0),
    ShardFinished(
        stage="pytest", shard=2, seconds=0.5, exit_code=5, collected=9, selected=0, digest="0f"
    ),
    StageLost(stage="pytest", reason="the supervisor of stage pytest was killed by SIGKILL"),
    DiskFull(stage="pytest", text="pytest met a full disk"),
    AgentRestarted(),
    StageSkipped(stage="pytest", reason="not run: build failed"),
    LeaseWaiting(stage="pytest", text="waits", waited_s=1.5),
    LeaseTaken(stage="pytest", waited_s=2, devices=(DEVICE,), text="has GPU-1"),
    LeaseReleased(devices=(DEVICE,), text="given back"),
    LeaseFailed(stage=None, reason="no device", text="no device"),
    NetworkWaiting("pytest", ("eth0",), "waits", waited_s=0.5),
    NetworkRemoved(stage="pytest", waited_s=0.7),
    NetworkRemained(stage="pytest", reason="eth0", text="eth0"),
    ArtifactMissing(name="log", path="build/log"),
    ArtifactCut(name="traces", path="*.json", left_out=3),
    SourcesRemoved(stage="install", files=2),
    RerunStarted(stage="pytest", attempt=1, text="rerun 1"),
    RerunFinished(stage="pytest", attempt=1, seconds=1.0, exit_code=139, oom_kills=0),
    RerunsEnded(stage="pytest", reason="time", text="no more"),
    RunFinished(exit_code=130, interrupted=True),
    Output(stage="build", text="half \udce9", more=True),
    StageProgress(stage="pytest", done=3, total=9, failed=1, failing="t.py::test_a", cache_hits=2),
)


def test_every_event_that_is_written_is_read_back() -> None:
    assert {event.event for event in WRITTEN} == set(EVENTS)
    for event in WRITTEN:
        assert parse_event(event.to_json(time=1.0, monotonic=2.0)) == event


def test_a_line_denies_nothing_that_is_rare() -> None:
    line = json.loads(StageFinished(stage="build", seconds=0.5, exit_code=0).to_json(time=1.0))
    assert list(line) == [
        *("event", "time", "stage", "seconds", "exit_code", "signal", "timed_out", "cpu_user_s"),
        *("cpu_system_s", "peak_rss_bytes", "oom_kills", "memory_limit_hits"),
    ]


def test_a_truncated_last_line_is_left_out() -> None:
    record = parse_events([*LINES[:4], LINES[4][:50]])
    assert record.unfinished_stages == ("pytest",)
    assert record.run_finished is None
    assert record.unreadable_lines == 1


def test_all_events_together_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else 4,000 lines of a megabyte each take 60 GiB of memory."""
    monkeypatch.setattr("ci.facts.events.LARGEST_RECORD", len(LINES[0]) + len(LINES[1]))
    record = parse_events(LINES)
    assert len(record.events) == 2
    assert record.unreadable_lines == len(LINES) - 2


def test_events_and_fields_of_a_newer_agent_are_ignored() -> None:
    newer = '{"event": "device_leased", "time": 1.0, "monotonic": 1.0}'
    started = '{"event": "stage_started", "time": 1, "monotonic": 1, "stage": "x", "new": []}'
    record = parse_events([newer, started])
    assert record.unfinished_stages == ("x",)
    assert record.unreadable_lines == 0


NO_TEXTS: tuple[object, ...] = (1, None, [])
NO_SECONDS: tuple[object, ...] = ("x", -1.0, 1e300, None, [])


@pytest.mark.parametrize(
    "line",
    [
        *("[]", "1", "{}", '{"event": 3}', '{"event": "run_finished", "time": 1}', "\ufffd"),
        *('{"event": "stage_started"}', '{"event": []}', '{"event": {}}', "[" * 200_000),
        event("stage_started", stage=[]),
        event("run_finished", exit_code="0"),
        event("run_finished", exit_code=0.0),
        event("run_finished", exit_code=True),
        event("run_finished", exit_code=1 << 40),
        event("run_finished", exit_code=0).replace("1.0", "NaN"),
        event("lease_taken", stage="pytest", waited_s=-1.0),
        event("lease_taken", stage="pytest", waited_s=0.0, devices=[{"uuid": 1}]),
        event("rerun_finished", stage="pytest", attempt="1", seconds=1.0, exit_code=1),
        event("rerun_finished", stage="pytest", seconds=1.0, exit_code=1),
        event("lease_released", devices=[{"uuid": "GPU-1"}]),
        event("lease_released", devices=[{"uuid": "GPU-1", "health": None}]),
        event("run_started", run_id="r", platform="cpu", protocol=3, pid=7, machine={"a": []}),
        event("run_started", run_id="r", platform="cpu", protocol=3, pid=7, machine={"a": True}),
        finished().replace('"time": 1.0', '"time": true'),
        *(json.dumps({"event": "output", "stage": "a", "text": text}) for text in NO_TEXTS),
        json.dumps({"event": "output", "stage": "a", "text": "b", "more": 1}),
        *(finished(seconds=seconds) for seconds in NO_SECONDS),
        finished().replace("2.0", "1e999"),
        finished(exit_code="1" * 5000),
        finished().replace('"exit_code": 0', '"exit_code": ' + "1" * 5000),
        finished(peak_rss_bytes=1 << 63),
        finished(oom_kills=-1),
        finished(timed_out="yes"),
    ],
)
def test_malformed_lines_are_counted(line: str) -> None:
    assert parse_events([line]).unreadable_lines == 1


def test_half_a_character_is_no_obstacle() -> None:
    record = parse_events(
        [r'{"event": "stage_started", "time": 1, "monotonic": 1, "stage": "\udce9"}']
    )
    assert record.unfinished_stages == (r"\udce9",)
    assert record.unreadable_lines == 0


def test_nothing_is_an_empty_record() -> None:
    assert parse_events(["", "\n"]) == RunRecord()


def test_devices_that_appear_or_vanish_do_not_matter() -> None:
    device = {"uuid": "GPU-1", "health": "healthy"}
    taken = event("lease_taken", stage="pytest", waited_s=0, devices=[device])
    released = event("lease_released", devices=[{**device, "health": "failed"}, device])
    assert parse_events([taken, released]).changed_devices == (("GPU-1", "healthy", "failed"),)


def test_a_line_of_any_length_is_counted_with_its_length(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    with path.open("w") as file:
        for _ in range(64):
            file.write("x" * (1 << 20))
        file.write("\n" + finished() + "\nhalf a")
    record = parse_events(lines_of_file(path, LONGEST_EVENT))
    assert set(record.finished_stages) == {"build"}
    assert (record.unreadable_lines, record.longest_line) == (2, 64 << 20)
    message = describe_unreadable(record.unreadable_lines, record.longest_line)
    assert message == "2 unreadable lines, the longest of 67,108,864 bytes"


def test_events_without_an_end_are_counted() -> None:
    line = event("artifact_missing", name="a", path="b")
    record = parse_events(line for _ in range(MOST_EVENTS + 5))
    assert (len(record.events), record.unreadable_lines) == (MOST_EVENTS, 5)


def test_a_file_is_held_against_the_events() -> None:
    own = parse_events(LINES)
    assert compare_records(own, own) == []
    forged = parse_events([line.replace('"exit_code": 139', '"exit_code": 0') for line in LINES])
    (end,) = compare_records(own, forged)
    assert end.startswith("stage pytest ended with exit code 139 after ")
    assert "; the file has exit code 0 after " in end
    forged = parse_events([line.replace("after", "before") for line in LINES])
    assert compare_records(own, forged) == [
        "1 event of the agent not in the file",
        "1 event in the file not of the agent",
    ]
    (missing,) = compare_records(own, RunRecord())
    assert missing == f"{len(LINES)} events of the agent not in the file"
    # An engine that lost the agent may lack its last events.
    assert compare_records(RunRecord(events=own.events[:-2]), own) == []
    assert compare_records(RunRecord(events=own.events[:-1]), forged) == []
