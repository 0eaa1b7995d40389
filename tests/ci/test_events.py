"""Reading the agent's record, whole and broken."""

from __future__ import annotations

from pathlib import Path

import pytest

from ci.events import RunRecord, StageSkipped, parse_events

LINES = (
    (Path(__file__).parent / "data" / "events-crash.jsonl").read_text(encoding="utf-8").splitlines()
)


def test_a_recorded_run() -> None:
    record = parse_events(LINES)
    pytest_stage = record.finished_stages["pytest"]
    assert (pytest_stage.exit_code, pytest_stage.signal) == (139, 11)
    [skipped] = [event for event in record.events if isinstance(event, StageSkipped)]
    assert (skipped.stage, skipped.reason) == ("after", "not run: pytest failed")
    assert [missing.path for missing in record.missing_artifacts] == ["nope"]
    assert record.run_finished is not None
    assert record.run_finished.exit_code == 1
    assert record.unfinished_stages == ()
    assert record.unreadable_lines == 0


def test_a_truncated_last_line_is_left_out() -> None:
    record = parse_events([*LINES[:4], LINES[4][:50]])
    assert record.unfinished_stages == ("pytest",)
    assert record.run_finished is None
    assert record.unreadable_lines == 1


def test_events_and_fields_of_a_newer_agent_are_ignored() -> None:
    newer = '{"event": "device_leased", "time": 1.0, "monotonic": 1.0}'
    started = '{"event": "stage_started", "time": 1, "monotonic": 1, "stage": "x", "new": []}'
    record = parse_events([newer, started])
    assert record.unfinished_stages == ("x",)
    assert record.unreadable_lines == 0


@pytest.mark.parametrize(
    "line", ["[]", "1", "{}", '{"event": 3}', '{"event": "run_finished", "time": 1}', "\ufffd"]
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
