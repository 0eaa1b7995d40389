"""What the Ray engine does if an actor or a host is lost, with scripted actors."""

from __future__ import annotations

import os
import pickle
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ci.engines import EngineMessage
from ci.engines.ray.actor import COMPLETE, PlatformActor, feed_name
from ci.engines.ray.cluster import ActorGoneError, Host, HostLostError, RayCluster
from ci.engines.ray.engine import RayEngine
from ci.engines.ray.hosted import LONGEST_FEED_LINE, SHOWN, Mirror
from ci.engines.ray.messages import StepOutcome
from ci.engines.ray.placement import MOST_STARTS, Record
from ci.engines.ray.service import Feed
from ci.errors import InfrastructureError
from ci.facts.events import parse_event
from ci.model.execution import ExecutionFacts, ImageFacts
from ci.model.plan import EngineKind, EnginePlan, RunPlan
from ci.protocol.events import Output
from tests.ci.made_plans import pool_plans
from tests.ci.shown_events import Shown

IMAGE = ImageFacts(reference="venv", digest=None, built=False, seconds=0.5, reason="cached")
PREPARED = StepOutcome(value=IMAGE)
DEATH = ActorGoneError("its process was killed")


@pytest.fixture
def plan(tmp_path: Path) -> RunPlan:
    plan = pool_plans(tmp_path)["cpu"]
    plan.results.mkdir(parents=True)
    return plan


class Actor:
    """An actor whose steps have these answers; an error is raised while the step runs."""

    def __init__(self, **answers: StepOutcome | list[BaseException | StepOutcome]) -> None:
        self.steps: list[str] = []
        self.interrupts = 0
        self._answers = {
            step: [it] if isinstance(it, StepOutcome) else it for step, it in answers.items()
        }

    def __getattr__(self, name: str) -> Any:
        return SimpleNamespace(remote=lambda *arguments: self.call(name, *arguments))

    def call(self, name: str, *arguments: Any) -> object:
        """Return the answer to a call, or the error for the one who waits for it."""
        match name, arguments:
            case "node", _:
                return "node-1"
            case "state", _:
                return self.steps[-1] if self.steps else None, ""
            case "offer", _:
                return COMPLETE
            case "start", (step, *_):
                self.steps.append(step)
            case "interrupt", _:
                self.interrupts += 1
            case "poll", _:
                return {}, False
            case "read", (_, 0, _):
                answer = self._answers[self.steps[-1]].pop(0)
                return pickle.dumps(answer) if isinstance(answer, StepOutcome) else answer
            case "read", _:
                return b""
        return None


class Pool:
    """A cluster of one host, with these actors, one after the other."""

    place, address = "the Ray cluster at head:1", "head:1"

    def __init__(self, *actors: Actor) -> None:
        self.here = [Host(node="node-1", address="10.0.0.1", port=1, name="gpu-1", resources={})]
        self._actors = iter(actors)

    def hosts(self) -> list[Host]:
        return self.here

    def host_at(self, _address: str) -> Host | None:
        return next(iter(self.here), None)

    def offers(self, _needs: object) -> bool:
        return True

    def queue(self) -> Any:
        first = SimpleNamespace(remote=lambda *_: 0)
        return SimpleNamespace(ask=first, leave=first)

    def request_actor(self, _name: str, _needs: object) -> Actor:
        return next(self._actors)

    def find_actor(self, _name: str) -> None:
        return None

    def start_actor_on(self, _host: Host, _name: str) -> Actor:
        return next(self._actors)

    def get(self, reference: object, _timeout_s: float = 0.0) -> object:
        if isinstance(reference, BaseException):
            raise reference
        return reference

    def kill(self, _handle: Actor) -> None:
        """End an actor."""

    def close(self) -> None:
        """Close the connection."""


@pytest.fixture(autouse=True)
def _reachable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Host, "is_reachable", lambda _: True)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1e9]
    monkeypatch.setattr("ci.engines.ray.engine.time.time", lambda: now[0])
    return now


def engine_of(pool: Any) -> RayEngine:
    return RayEngine(EnginePlan(name="lab", kind=EngineKind.RAY), connect=lambda _: pool)


# The stages


def test_a_program_that_is_lost_before_the_stages_is_a_fault(plan: RunPlan) -> None:
    first, second = Actor(prepare=PREPARED, execute=[DEATH]), Actor(resume=StepOutcome())
    with closing(engine_of(Pool(first, second, Actor(resume=StepOutcome())))) as engine:
        image = engine.prepare(plan, Shown())
        expected = r"^host gpu-1 \(10\.0\.0\.1\): the program was lost before the stages began$"
        with pytest.raises(InfrastructureError, match=expected) as caught:
            engine.execute(plan, image, Shown())
        assert not isinstance(caught.value, HostLostError)
        assert "run --resume RUN" in str(caught.value.remedy)
        assert second.steps == ["resume"]
        assert Record.read(plan) is not None  # the next attempt looks there first
        assert engine.resume(plan, Shown()) is None  # and starts over
    assert Record.read(plan) is None


def test_an_interrupt_of_a_lost_program_stays_one(plan: RunPlan) -> None:
    first = Actor(prepare=PREPARED, execute=[KeyboardInterrupt(), DEATH])
    second = Actor(resume=StepOutcome())
    with closing(engine_of(Pool(first, second))) as engine:
        facts = engine.execute(plan, engine.prepare(plan, Shown()), Shown())
    assert facts.interrupted
    assert (first.interrupts, second.interrupts) == (1, 1)


# The record of the host


def test_a_record_expires_by_the_limits_of_the_stages(plan: RunPlan, clock: list[float]) -> None:
    lost = StepOutcome(value=ExecutionFacts(engine="docker", lost=True))
    pool = Pool(Actor(prepare=PREPARED, execute=lost))
    with closing(engine_of(pool)) as engine:
        image = engine.prepare(plan, Shown())
        clock[0] += 2 * plan.longest_s  # a long pull
        here, pool.here = pool.here, []
        with pytest.raises(HostLostError, match="has left the pool"):
            engine.check(plan)
        pool.here = here
        engine.execute(plan, image, Shown())
        pool.here = []
        clock[0] += plan.longest_s - 1
        with pytest.raises(HostLostError, match="has left the pool"):
            engine.check(plan)
        clock[0] += 2
        engine.check(plan)  # by now the stages have ended, wherever the host is


# The display


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (Output("a", "x" * LONGEST_FEED_LINE).to_json(), "a line of 1,048,"),
        ('{"event": "output", "text', "Unterminated string"),
        ('{"text": "of no event"}', "an event without a name"),
        ("[]", "not a JSON object"),
    ],
)
def test_an_unreadable_event_is_skipped_and_counted(line: str, reason: str, plan: RunPlan) -> None:
    observer = Shown()
    mirror = Mirror(plan, observer)
    mirror.follow("aa")
    shown = Output("a", "next").to_json()
    mirror.add({feed_name("aa"): (0, f"{line}\n{line}\n{shown}\n".encode())})
    first, *others = observer.lines
    assert first.startswith(f"an event of the host is not shown: {reason}")
    assert others == ["next"]
    assert mirror.unreadable_lines == 2
    mirror.follow("bb", adopted=True)
    assert mirror.unreadable_lines == 0  # they come again


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\u00e9" * 100_000, "\u00e9" * 100_000),
        ("one\ntwo", "one\ntwo"),
        ("\ud800", "?"),  # half of a pair, which UTF-8 cannot have
    ],
)
def test_an_event_gets_no_longer_on_its_way(text: str, expected: str, tmp_path: Path) -> None:
    path = tmp_path / "feed.jsonl"
    feed = Feed(path)
    feed.event(EngineMessage(text))
    feed._file.close()
    [line] = path.read_bytes().splitlines()
    assert parse_event(line.decode(), SHOWN) == EngineMessage(expected)
    assert len(line) < len(text.encode(errors="replace")) + 100


# Files of other actors


@pytest.fixture
def trees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    PlatformActor("run-cpu")
    return tmp_path / "cache/infini-ci/pool/trees"


def test_a_file_that_vanishes_is_no_error(trees: Path) -> None:
    (trees / "renamed.part").symlink_to("nowhere")  # listed, and gone when it is looked at
    (trees / "old").mkdir()
    os.utime(trees / "old", (0, 0))
    PlatformActor("run-cpu")
    assert not (trees / "old").exists()


def test_an_old_lock_stays(trees: Path) -> None:
    (trees / "aa.lock").touch()
    os.utime(trees / "aa.lock", (0, 0))
    PlatformActor("run-cpu")
    assert (trees / "aa.lock").exists()


# The end


@pytest.mark.parametrize(
    ("keep", "answer", "kept"),
    [
        (True, StepOutcome(value="container tiny"), "container tiny on host gpu-1 (10.0.0.1)"),
        (False, StepOutcome(), None),
    ],
)
def test_a_program_that_is_lost_at_the_end_settles_again(
    keep: bool, answer: StepOutcome, kept: str | None, plan: RunPlan
) -> None:
    ended = StepOutcome(value=ExecutionFacts(engine="docker", exit_code=1))
    first = Actor(prepare=PREPARED, execute=ended, settle=[DEATH])
    second = Actor(settle=answer, resume=ended)
    plan = replace(plan, keep=True)
    with closing(engine_of(Pool(first, second))) as engine:
        engine.execute(plan, engine.prepare(plan, Shown()), Shown())
        assert engine.settle(plan, keep=keep) == kept
    assert second.steps == ["settle"]


# Messages


def test_an_error_in_an_actor_has_a_remedy() -> None:
    class RayTaskError(Exception):
        cause = KeyError("digest")

    class OtherError(Exception):
        pass

    def get(*_: object, **__: object) -> None:
        raise RayTaskError

    others = dict.fromkeys(("GetTimeoutError", "ActorUnavailableError", "RayError"), OtherError)
    cluster = object.__new__(RayCluster)  # connects to none
    errors = SimpleNamespace(RayTaskError=RayTaskError, **others)
    cluster._ray = SimpleNamespace(get=get, exceptions=errors)
    expected = r"^the platform's program on its host failed: KeyError\('digest'\)$"
    with pytest.raises(InfrastructureError, match=expected) as caught:
        cluster.get(None)
    assert caught.value.remedy == (
        "See Ray's logs on that host, then continue with run --resume RUN."
    )


def not_prepared(plan: RunPlan, pool: Pool, message: str) -> str:
    """Return the remedy of an error with this message."""
    with (
        closing(engine_of(pool)) as engine,
        pytest.raises(InfrastructureError, match=f"^{message}") as caught,
    ):
        engine.prepare(plan, Shown())
    return str(caught.value.remedy)


def test_a_host_that_starts_no_program(plan: RunPlan) -> None:
    class Dead(Actor):
        def call(self, *_: Any) -> object:
            return DEATH

    remedy = not_prepared(
        plan,
        Pool(*(Dead() for _ in range(MOST_STARTS))),
        "the Ray cluster at head:1: a host cannot start the program of platform cpu: its process",
    )
    assert "/tmp/ray/session_latest/logs" in remedy  # noqa: S108


def test_a_host_that_leaves_before_the_run(plan: RunPlan) -> None:
    pool = Pool(Actor())
    pool.here = []
    remedy = not_prepared(plan, pool, "platform cpu: its host left the pool before the run began$")
    assert remedy == "Run again: another host takes the platform."
