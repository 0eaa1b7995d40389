"""The identity of alarms while commits are added one by one, as a nightly check sees them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ci.analysis.alarm_messages import due_event, message_of
from ci.analysis.alarm_tracking import (
    TrackedAlarm,
    track_alarms,
    with_levels,
)
from ci.analysis.alarms import find_alarms
from ci.analysis.ancestry import Line
from ci.analysis.changes import POLICY
from ci.analysis.histories import history
from ci.analysis.platform_history import PlatformHistory, ProjectLine
from ci.analysis.repository import Repository
from ci.facts.environment_key import environment_key
from ci.gates.regression import Judgement
from ci.store.rows import (
    AlarmEvent,
    AlarmMessage,
    AlarmRecord,
    AlarmState,
    RunHead,
    RunMeasures,
)
from tests.ci.stored_history import result

PLATFORMS = ("cpu", "metax", "moore")
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
KEYS = {name: environment_key(result(platform=name)) for name in PLATFORMS}


class Nightly:
    """A project of which a check sees each commit, and remembers what it sent to one address."""

    def __init__(self) -> None:
        self.heads: list[RunHead] = []
        self.rows: dict[str, list[RunMeasures]] = {name: [] for name in PLATFORMS}
        self.records: dict[str, AlarmRecord] = {}
        self.sent: dict[str, AlarmMessage] = {}
        self.messages: list[AlarmMessage] = []
        self.tracked: list[TrackedAlarm] = []
        self.along: ProjectLine | None = None
        self.histories: list[PlatformHistory] = []

    def add(self, seconds: Sequence[float]) -> None:
        """A commit, with a run of each platform whose install took so long."""
        started = BEGIN + timedelta(days=len(self.heads))
        run_id, commit = f"run-{len(self.heads):03}", f"{len(self.heads):040x}"
        head = RunHead(
            run_id=run_id,
            project="tiny",
            commit=commit,
            dirty=False,
            started_at=started,
            finished_at=started,
            platforms=PLATFORMS,
            begun=PLATFORMS,
        )
        self.heads.append(head)
        for name, value in zip(PLATFORMS, seconds, strict=True):
            values = {"install.wall_s": value, "install.cpu_s": 2 * value}
            row = RunMeasures(run_id, commit, False, started, KEYS[name].digest, values)
            self.rows[name].append(row)

    def check(self, *, complete: bool = True) -> None:
        line = Line(branch=None, runs=tuple(self.heads))
        along = self.along = ProjectLine(
            project="tiny",
            heads=self.heads,
            line=line,
            accepted=(),
            repository=Repository(Path("/nonexistent")),
        )
        self.histories = [
            PlatformHistory(
                project="tiny",
                platform=name,
                runs=len(self.heads),
                history=history(rows, {KEYS[name].digest: KEYS[name]}),
            )
            for name, rows in self.rows.items()
        ]
        alarms = find_alarms(self.histories, along.order)
        known = [*self.records.values()]
        self.tracked = track_alarms(alarms, known, self.histories, along, complete=complete)
        for it in self.tracked:
            self.records[it.record.alarm_id] = it.record
            last = self.sent.get(it.record.alarm_id)
            if event := due_event(it, last, along, self.sent.values()):
                message = message_of(it, event, last, along, BEGIN)
                self.sent[message.alarm_id] = message
                self.messages.append(message)


@pytest.mark.parametrize("seed", [3, 8, 22])
def test_one_cause_sends_one_message_its_corrections_and_its_end(seed: int) -> None:
    """Noise of 2 %, and a step of 12 % by commit 14 that commit 40 undoes."""
    noise, nightly = random.Random(seed), Nightly()  # noqa: S311
    for number in range(55):
        level = 112 if 14 <= number < 40 else 100
        nightly.add([level * noise.gauss(1, 0.02) * (n + 1) for n in range(3)])
        if number >= 14:
            nightly.check()
    new, *corrections, resolved = nightly.messages
    assert {it.alarm_id for it in nightly.messages} == {new.alarm_id}
    assert (new.event, resolved.event) == (AlarmEvent.NEW, AlarmEvent.RESOLVED)
    assert {it.event for it in corrections} <= {AlarmEvent.CORRECTED}
    assert len(corrections) <= 2
    assert (resolved.before_run_id or "") <= "run-013" < "run-014" <= resolved.run_id


@pytest.fixture
def slower() -> Nightly:
    nightly = Nightly()
    noise = random.Random(1)  # noqa: S311
    for number in range(30):
        level = 120 if number >= 15 else 100
        nightly.add([level * noise.gauss(1, 0.01) for _ in PLATFORMS])
    nightly.check()
    return nightly


def test_platforms_whose_places_move_apart_stay_one_alarm(slower: Nightly) -> None:
    """Their rises are in the record: they are one cause, as was said before."""
    [record] = slower.records.values()
    rows = slower.rows["moore"]
    for place in range(9, 15):  # the rise on one platform seems to begin six runs before
        rows[place] = rows[place]._replace(
            values={k: 1.2 * v for k, v in rows[place].values.items()}
        )
    slower.check()
    [tracked] = slower.tracked
    assert tracked.record.alarm_id == record.alarm_id
    assert tracked.alarm
    assert tracked.alarm.platforms == PLATFORMS
    assert [it.event for it in slower.messages] == [AlarmEvent.NEW]


def test_alarms_that_become_one_are_listed_once(slower: Nightly) -> None:
    """The other one is not over: its rise is still found."""
    [record] = slower.records.values()
    moore = tuple(it for it in record.rises if it.platform == "moore")
    others = tuple(it for it in record.rises if it.platform != "moore")
    slower.records = {
        "a1": replace(record, alarm_id="a1", rises=moore),
        "b2": replace(record, alarm_id="b2", rises=others),
    }
    for number in range(12):
        slower.check()
        slower.add([120 + number % 3] * 3)
    [tracked] = slower.tracked
    assert tracked.alarm
    assert (tracked.record.alarm_id, tracked.alarm.platforms) == ("b2", PLATFORMS)


def test_a_record_of_another_line_is_left_out(slower: Nightly) -> None:
    [record] = slower.records.values()
    rises = tuple(replace(it, run_id="elsewhere") for it in record.rises)
    slower.records["e1"] = replace(record, alarm_id="e1", rises=rises)
    slower.check()
    assert [it.record.alarm_id for it in slower.tracked] == [record.alarm_id]


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ((14, 15), None),  # the range of today contains it: known less well, but not elsewhere
        ((12, 19), None),
        ((13, 14), None),
        ((10, 14), AlarmEvent.CORRECTED),
        ((10, 11), AlarmEvent.CORRECTED),
    ],
)
def test_only_a_range_that_leaves_out_commits_of_the_last_one_is_a_correction(
    slower: Nightly, said: tuple[int, int], expected: AlarmEvent | None
) -> None:
    """The range of today is after run 12, with run 17."""
    [tracked], rows = slower.tracked, slower.rows["cpu"]
    assert tracked.alarm
    assert slower.along
    today = replace(tracked, alarm=replace(tracked.alarm, before=rows[12], first=rows[17]))
    [last] = slower.messages
    before, first = (f"run-{it:03}" for it in said)
    last = replace(last, before_run_id=before, run_id=first, latest_run_id="run-016")
    assert due_event(today, last, slower.along) is expected


def test_alarms_of_two_kinds_with_rises_of_one_record_keep_their_ids(slower: Nightly) -> None:
    """A host was replaced just before a regression, and both were one alarm at first."""
    [tracked], [record] = slower.tracked, slower.records.values()
    assert tracked.alarm
    assert slower.along
    cpu, *others = tracked.alarm.rows
    known = [replace(record, kind=Judgement.ENVIRONMENT)]
    alarms = [
        replace(tracked.alarm, rows=(cpu,)),
        replace(tracked.alarm, rows=tuple(others), kind=Judgement.ENVIRONMENT),
    ]
    ids = []
    for _ in range(3):
        found = track_alarms(alarms, known, slower.histories, slower.along)
        ids.append({it.record.kind: it.record.alarm_id for it in found})
        known = [it.record for it in found]
    assert ids[0]["environment"] == record.alarm_id
    assert ids[0]["regression"] != record.alarm_id
    assert ids == [ids[0]] * 3


def test_a_rise_that_is_larger_elsewhere_is_a_correction() -> None:
    noise, nightly = random.Random(1), Nightly()  # noqa: S311
    for number in range(40):
        levels = (106 if number >= 15 else 100, 130 if number >= 17 else 100, 100)
        if number >= 19:
            nightly.check()
        nightly.add([it * noise.gauss(1, 0.005) for it in levels])
    new, corrected = nightly.messages
    assert (new.event, corrected.event) == (AlarmEvent.NEW, AlarmEvent.CORRECTED)
    assert new.size == pytest.approx(0.06, abs=0.01)
    assert corrected.size == pytest.approx(0.3, abs=0.01)
    assert new.alarm_id == corrected.alarm_id


@pytest.mark.parametrize(
    ("measure", "size", "expected"),
    [
        ("install.wall_s", 0.19, None),
        ("install.cpu_s", 0.11, None),
        ("compile.wall_s", 0.3, None),
        ("install.wall_s", 0.09, AlarmEvent.CORRECTED),
        ("total.wall_s", 0.19, AlarmEvent.CORRECTED),
        ("pytest.wall_s", 0.19, AlarmEvent.CORRECTED),
        (None, None, None),  # an older version did not store it
    ],
)
def test_a_headline_of_another_stage_or_twice_the_size_is_a_correction(
    slower: Nightly, measure: str | None, size: float | None, expected: AlarmEvent | None
) -> None:
    """The alarm of today: install +20 %."""
    [tracked], [last] = slower.tracked, slower.messages
    assert slower.along
    assert tracked.alarm
    last = replace(last, latest_run_id="run-016", measure=measure, size=size)
    assert due_event(tracked, last, slower.along) is expected
    # Not if the stage rose, too, or if a part of the platforms recovered.
    [row, *others] = tracked.alarm.rows
    if size is not None and size > 0.1:
        also = tuple(replace(row.change, measure=f"{it}.wall_s") for it in ("pytest", "compile"))
        more = replace(tracked.alarm, rows=(replace(row, also=also), *others))
        known = None if measure != "total.wall_s" else expected
        assert due_event(replace(tracked, alarm=more), last, slower.along) is known
    alarm = replace(tracked.alarm, rows=tuple(others))
    assert due_event(replace(tracked, alarm=alarm), last, slower.along) is None


@pytest.mark.parametrize(("size", "expected"), [(0.5, None), (0.3, AlarmEvent.REOPENED)])
def test_what_is_left_of_an_undone_rise_is_not_sent(
    slower: Nightly, size: float, expected: AlarmEvent | None
) -> None:
    [tracked], [last] = slower.tracked, slower.messages
    assert slower.along
    last = replace(last, event=AlarmEvent.RESOLVED, latest_run_id="run-016", size=size)
    assert due_event(tracked, last, slower.along) is expected


def test_an_invalid_alarm_that_grew_is_open_again(slower: Nightly) -> None:
    def say_invalid() -> None:
        [tracked] = slower.tracked
        record = replace(with_levels(tracked), state=AlarmState.INVALID)
        slower.records = {record.alarm_id: record}
        slower.check()

    say_invalid()
    [tracked] = slower.tracked
    assert (tracked.state, tracked.is_dismissed) == (AlarmState.INVALID, True)
    for rows in slower.rows.values():
        rows[15:] = [
            row._replace(values={k: 1.25 * v for k, v in row.values.items()}) for row in rows[15:]
        ]
    for _ in range(2):  # it stays open, whatever the store knows of the new level
        slower.check()
        [tracked] = slower.tracked
        assert (tracked.state, tracked.is_dismissed) == (AlarmState.OPEN, False)
        assert "called invalid, install on cpu grew from +19 % to +49 %" in tracked.why
    say_invalid()  # of the new level
    [tracked] = slower.tracked
    assert tracked.state is AlarmState.INVALID
    new, invalid, again, last = (it.event for it in slower.messages)
    assert (new, invalid) == (AlarmEvent.NEW, AlarmEvent.RESOLVED)
    assert (again, last) == (AlarmEvent.REOPENED, AlarmEvent.RESOLVED)


def test_a_rise_that_fifty_runs_did_not_show_is_not_sent(slower: Nightly) -> None:
    """Not even if another alarm was sent since, and the rise is found now."""
    for number in range(POLICY.window + 10):
        slower.add([120 + number % 3] * 3)
    slower.check()
    [tracked], [sent] = slower.tracked, slower.messages
    assert slower.along
    other = replace(sent, alarm_id="0123abcd", latest_run_id=slower.heads[-1].run_id)
    assert due_event(tracked, None, slower.along, [other]) is None
    said = replace(tracked.record, stated_at=BEGIN)
    assert due_event(replace(tracked, record=said), None, slower.along, [other]) is AlarmEvent.NEW
    few = replace(other, latest_run_id=slower.heads[40].run_id)
    for known in ((), [few]):  # a new address, and one to which too early a check sent something
        assert due_event(tracked, None, slower.along, known) is AlarmEvent.NEW


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_leak_is_one_alarm_until_it_ends(seed: int) -> None:
    """Noise of 2 %, and 0.2 % more with each commit from commit 40 on.

    Another platform may show it first as a step at another commit, which is an alarm of its own.
    """
    noise, nightly = random.Random(seed), Nightly()  # noqa: S311
    for number in range(130):
        level = 100 * 1.002 ** min(max(number - 39, 0), 70)
        nightly.add([level * noise.gauss(1, 0.02) * (n + 1) for n in range(3)])
        if number >= 40:
            nightly.check()
    events = [it.event for it in nightly.messages]
    assert events.count(AlarmEvent.NEW) <= 2
    assert events.count(AlarmEvent.CORRECTED) <= 3
    assert AlarmEvent.REOPENED not in events
    [tracked] = [it for it in nightly.tracked if it.alarm]
    assert tracked.alarm
    assert tracked.alarm.largest.change.is_gradual
    assert tracked.alarm.before.run_id < "run-040" <= tracked.alarm.first.run_id
    assert tracked.alarm.reached.run_id > "run-100"


@pytest.mark.parametrize("seed", [4, 5])
def test_a_far_larger_rise_near_a_known_one_is_another_alarm(seed: int) -> None:
    """5 % by commit 24, and 35 % by commit 30, beside which the first is no longer seen."""
    noise, nightly = random.Random(seed), Nightly()  # noqa: S311
    for number in range(52):
        level = 100 * (1.05 if number >= 24 else 1) * (1.35 if number >= 30 else 1)
        nightly.add([level * noise.gauss(1, 0.015), 200 * noise.gauss(1, 0.015), 300])
        if number >= 20:
            nightly.check()
    first, second = nightly.messages
    assert first.event is second.event is AlarmEvent.NEW
    assert (first.before_run_id, first.run_id) == ("run-023", "run-024")
    assert (second.before_run_id, second.run_id) == ("run-029", "run-030")
    assert second.latest_run_id == f"run-{29 + POLICY.confirm:03}"
