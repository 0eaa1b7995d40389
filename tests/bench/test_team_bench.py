"""The replay of a team's history: each planted cause is one message, and nothing else is."""

from __future__ import annotations

from random import Random

import pytest

from bench.changes.team import Message, Outcome, replay, tables
from bench.changes.team_history import TEAM, Cause, Habit, TeamHistory, plant
from ci.store.rows import AlarmEvent

SMALL = (
    Habit(platform="cpu", noise=0.01, has_modes=True),
    Habit(platform="nvidia", noise=0.01),
    Habit(platform="moore", noise=0.01, every=2, repeats=2),
)
CAUSES = (
    Cause(
        name="everywhere", at=20, stage="compile", size=0.3, platforms=("cpu", "nvidia", "moore")
    ),
    Cause(name="on one", at=32, stage="install", size=0.2, platforms=("nvidia",)),
    Cause(name="of tests", at=44, stage="pytest", size=0.5, platforms=("cpu",)),
)


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    history = TeamHistory(commits=52, team=SMALL, causes=CAUSES, seed=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("no_proxy", "*")
        # Each check takes 0.2 s: as many as show that the next one sends nothing again.
        return replay(history, tmp_path_factory.mktemp("team"), every=4)


@pytest.mark.parametrize("cause", CAUSES, ids=lambda it: it.name)
def test_each_cause_is_one_message_with_its_commit(outcome: Outcome, cause: Cause) -> None:
    [message] = outcome.messages_of(cause)
    assert message.event is AlarmEvent.NEW
    assert message.distance(cause) == 0
    assert {*message.platforms} <= {*cause.platforms}


def test_nothing_else_is_sent(outcome: Outcome) -> None:
    assert len(outcome.messages) == len(CAUSES)
    assert [outcome.false_alarms(it.platform) for it in SMALL] == [[], [], []]


def test_the_tables_have_all_platforms_and_causes(outcome: Outcome) -> None:
    page = "\n".join(tables(outcome))
    assert "| moore | - | 52 | 0 | 0.0 |" in page
    assert "| everywhere, at 20 | compile +30 % | all |" in page
    assert "| First messages of a cause whose commits contain it | 3 of 3 |" in page


def test_a_history_is_always_the_same_one() -> None:
    one, other = (plant(1_000, TEAM, Random(1)) for _ in range(2))  # noqa: S311
    assert one == other
    assert {it.name.rstrip(" 0123456789") for it in one} == {
        "step",
        "reverted step",
        "torch upgrade",
        "leak",
        "machine",
    }
    short = TeamHistory(commits=8, team=TEAM, causes=tuple(one), seed=1)
    assert [*short.runs()] == [*short.runs()]


@pytest.mark.parametrize(
    ("before", "first", "platform", "distance"),
    [
        (19, 20, "cpu", 0),
        (18, 25, "cpu", 0),
        (20, 21, "cpu", 1),
        (15, 18, "cpu", 2),
        (40, 41, "cpu", None),
        (19, 20, "nvidia", None),
    ],
)
def test_the_distance_of_a_message_from_a_cause(
    before: int, first: int, platform: str, distance: int | None
) -> None:
    cause = Cause(name="", at=20, stage="install", size=0.1, platforms=("cpu",))
    message = Message(
        sent_at=50,
        event=AlarmEvent.NEW,
        alarm_id="a",
        kind="regression",
        headline="",
        platforms=(platform,),
        before=before,
        first=first,
    )
    assert message.distance(cause) == distance
