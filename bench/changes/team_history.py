"""The history of a team: commits, what slowed the build down, and runs of several platforms.

The same seed always generates the same history. A run is a result as the product writes it.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from bench.generated_history import lineage_of
from ci.facts.sentences.on_rows import full_suite
from ci.model.results import BuildResult, PlatformResult, PytestResult, RunResult, StageResult
from ci.model.verdicts import Evidence, Grade, Harness, Product, Verdict

PROJECT = "team"
BEGIN = datetime(2026, 1, 5, 8, tzinfo=UTC)  # a Monday
WORKDAY = 12  # hours, with one commit in each
# Seconds of install, the share of compile in it, and seconds of pytest.
INSTALL, COMPILED, PYTEST = 600.0, 0.8, 180.0
CPU = 1.8  # CPU seconds in a second
STAGES = ("install", "compile", "pytest")
SIZES = (0.05, 0.08, 0.12, 0.2, 0.3, 0.5)
EVERY = 40  # commits from one cause to the next
FIRST = 30  # commits before the first cause
LEAK = 0.001  # by each commit
LEAKING = 120  # commits
SLOW = 1.12  # the slow mode of a machine
SAME = "CPU A"
# Where in the history a machine is replaced: by another model, and by an equal one.
FIRST_REPLACED, LAST_REPLACED = 0.4, 0.7
SLOWER = 0.08  # the new machine


@dataclass(frozen=True, kw_only=True)
class Habit:
    """How a platform is run, and what disturbs its times."""

    platform: str
    noise: float
    """The standard deviation of times beside their level."""
    every: int = 1
    """It is run for each so many commits."""
    repeats: int = 1
    """Runs of such a commit."""
    skips: float = 0.0
    """The share of these runs that are missing."""
    related: float = 0.0
    """The share of the deviation that the next run keeps."""
    has_modes: bool = False
    has_cycle: bool = False
    has_neighbours: bool = False
    replaced_by: str | None = None
    """The processor of the machine that replaces the first one."""
    disturbance: str = "-"
    """What is special, for people."""


TEAM = (
    Habit(platform="cpu", noise=0.01, has_modes=True, disturbance="fast and slow mode of 12 %"),
    Habit(platform="nvidia", noise=0.02, disturbance="noise of 2 %"),
    Habit(platform="iluvatar", noise=0.015, has_cycle=True, disturbance="hours and weekends"),
    Habit(platform="metax", noise=0.02, has_neighbours=True, skips=0.1, disturbance="neighbors"),
    Habit(platform="cambricon", noise=0.02, every=2, related=0.5, disturbance="related noise"),
    Habit(
        platform="moore",
        noise=0.02,
        every=4,
        repeats=3,
        replaced_by="CPU B",
        disturbance="3 runs of each 4th commit; another processor",
    ),
    Habit(
        platform="ascend",
        noise=0.015,
        skips=0.3,
        replaced_by=SAME,
        disturbance="30 % skipped; an equal machine, 8 % slower",
    ),
)


@dataclass(frozen=True, kw_only=True)
class Cause:
    """Something that made a stage slower."""

    name: str
    at: int
    """The first commit with it."""
    stage: str
    size: float
    platforms: tuple[str, ...]
    until: int | None = None
    """The commit that fixes it."""
    is_leak: bool = False
    """Whether ``size`` comes bit by bit, over ``LEAKING`` commits."""
    torch: str | None = None
    """The version of torch that comes with it."""

    def factor(self, commit: int) -> float:
        if commit < self.at or (self.until is not None and commit >= self.until):
            return 1.0
        share = min((commit - self.at + 1) / LEAKING, 1.0) if self.is_leak else 1.0
        return math.pow(1 + self.size, share)


def plant(commits: int, team: Sequence[Habit], random: Random) -> list[Cause]:
    """Causes for a history of so many commits, oldest first; a slower machine comes last."""
    count = max(3, (commits - FIRST) // EVERY)
    distance = (commits - FIRST) / count
    names = [it.platform for it in team]
    causes = []
    for number in range(count):
        at = FIRST + round(distance * (number + 0.25 * random.random()))
        stage, size = random.choice(STAGES), random.choice(SIZES)
        some = random.sample(names, random.choice((1, 1, min(3, len(names)), len(names))))
        platforms = tuple(it for it in names if it in some)
        until = at + random.randrange(60, 150) if random.random() < 0.5 else None
        known: dict[str, Any] = {"name": f"step {number + 1}", "until": until}
        if number % 9 == 2:
            known = {"name": f"reverted step {number + 1}", "until": at + random.randrange(8, 20)}
        elif number % 9 == 4:
            known |= {"name": f"torch upgrade {number + 1}", "torch": f"2.{number}.0"}
        elif number % 16 == 7:
            known |= {"name": f"leak {number + 1}", "is_leak": True, "until": None}
            size = (1 + LEAK) ** LEAKING - 1
        causes.append(Cause(at=at, stage=stage, size=size, platforms=platforms, **known))
    for habit in team:
        if habit.replaced_by == SAME:  # the environment's key remains
            at, own = round(LAST_REPLACED * commits), (habit.platform,)
            cause = Cause(name="machine", at=at, stage="all", size=SLOWER, platforms=own)
            causes.append(cause)
    return causes


@dataclass(frozen=True, kw_only=True)
class TeamHistory:
    """The commits of a team and what they cost."""

    commits: int
    team: tuple[Habit, ...]
    causes: tuple[Cause, ...]
    seed: int

    def ids(self) -> list[str]:
        """The ids of all commits, oldest first."""
        return [
            hashlib.sha1(f"{self.seed} {it}".encode(), usedforsecurity=False).hexdigest()
            for it in range(self.commits)
        ]

    def runs(self) -> Iterator[tuple[int, list[RunResult]]]:
        """Yield the place of each commit and its runs, oldest first."""
        random, ids = Random(self.seed), self.ids()  # noqa: S311
        machines = {it.platform: _Machine(it, self.commits, random) for it in self.team}
        for place in range(self.commits):
            started = moment(place)
            runs = []
            for repeat in range(max(it.repeats for it in self.team)):
                due = [it for it in self.team if _is_due(it, place, repeat, random)]
                if not due:
                    continue
                at = started + timedelta(minutes=15 * repeat)
                results = [
                    machines[it.platform].measure(place, at, *self._factors(it, place))
                    for it in due
                ]
                line = ids[: place + 1]
                runs.append(_run(line, at, repeat, results))
            yield place, runs

    def _factors(self, habit: Habit, place: int) -> tuple[dict[str, float], str]:
        """The factor of each stage, and the version of torch."""
        own = [it for it in self.causes if habit.platform in it.platforms]
        stages = {
            stage: math.prod(it.factor(place) for it in own if it.stage == stage)
            for stage in STAGES
        }
        versions = [it.torch for it in own if it.torch and place >= it.at]
        return stages, versions[-1] if versions else "2.0.0"


def moment(place: int) -> datetime:
    """When the runs of a commit begin: on six days of a week."""
    day, hour = divmod(place, WORKDAY)
    week, weekday = divmod(day, 6)
    return BEGIN + timedelta(weeks=week, days=weekday, hours=hour)


def _is_due(habit: Habit, place: int, repeat: int, random: Random) -> bool:
    is_kept = random.random() >= habit.skips
    return place % habit.every == 0 and repeat < habit.repeats and is_kept


def _run(
    line: Sequence[str], at: datetime, repeat: int, results: Sequence[PlatformResult]
) -> RunResult:
    commit = line[-1]
    return RunResult(
        run_id=f"{at:%Y%m%dT%H%M%SZ}-{commit[:8]}-{repeat:04x}",
        project=PROJECT,
        commit=commit,
        dirty=False,
        started_at=at,
        finished_at=at + timedelta(minutes=14),
        engine="docker",
        platforms=tuple(results),
        lineage=lineage_of("main", line),
    )


class _Machine:
    """The machine of a platform, with its disturbances."""

    def __init__(self, habit: Habit, commits: int, random: Random) -> None:
        self._habit, self._random = habit, random
        share = LAST_REPLACED if habit.replaced_by == SAME else FIRST_REPLACED
        self._replaced = round(share * commits)
        self._deviation = 0.0
        self._is_slow = False

    def measure(
        self, place: int, at: datetime, stages: Mapping[str, float], torch: str
    ) -> PlatformResult:
        habit, random = self._habit, self._random
        speed = 1.0
        if habit.has_modes:
            if random.random() < 0.15:  # a mode lasts some runs
                self._is_slow = not self._is_slow
            speed *= SLOW if self._is_slow else 1.0
        reference = 0.05 * speed * random.gauss(1, 0.005)
        if habit.has_cycle:
            speed *= 1 + 0.06 * math.sin(math.pi * (at.hour - 8) / WORKDAY)
            speed *= 0.96 if at.weekday() >= 5 else 1.0
        model, host = SAME, f"{habit.platform}-1"
        if habit.replaced_by and place >= self._replaced:
            model, host = habit.replaced_by, f"{habit.platform}-2"
            speed *= 1 + SLOWER
        kept = habit.related
        self._deviation = kept * self._deviation + (1 - kept**2) ** 0.5 * random.gauss(0, 1)
        busy = random.uniform(1.1, 1.6) if habit.has_neighbours and random.random() < 0.1 else 1.0
        common = speed * math.exp(habit.noise * self._deviation)

        def seconds(level: float) -> float:
            return level * common * random.gauss(1, 0.005)

        compiled = seconds(INSTALL * COMPILED * stages["compile"])
        install = (compiled + seconds(INSTALL * (1 - COMPILED))) * stages["install"]
        pytest = seconds(PYTEST * stages["pytest"])
        machine: dict[str, Any] = {
            "cpu_model": model,
            "cores": 64,
            "memory_bytes": 1 << 39,
            "architecture": "x86_64",
            "instruction_sets": "avx2",
            "hostname": host,
        }
        if habit.has_modes:
            machine["reference_cpu_s"] = reference
        environment = {
            "machine": machine,
            "compiler": "g++ 14.2.0",
            "cmake": "4.3.0",
            "ninja": "1.13.2",
            "python": "3.11.2",
            "torch": torch,
            "engine": {"name": "docker"},
        }
        return _result(habit.platform, (compiled, install, pytest), busy, environment)


def _result(
    platform: str, times: tuple[float, float, float], busy: float, environment: dict[str, Any]
) -> PlatformResult:
    """``busy`` is the factor by which neighbors lengthen wall times, but not CPU seconds."""
    compiled, install, pytest = times
    summary = f"100 passed in {pytest * busy:.2f}s"
    stages = tuple(
        StageResult(
            name=name,
            seconds=seconds * busy,
            cpu_user_s=CPU * seconds,
            cpu_system_s=0.1 * seconds,
            exit_code=0,
            in_total=True,
        )
        for name, seconds in (("install", install), ("pytest", pytest))
    )
    return PlatformResult(
        platform=platform,
        label=platform,
        built=True,
        pytest=PytestResult(
            **dict.fromkeys(("failed", "errors", "skipped", "xfailed", "xpassed", "warnings"), 0),
            passed=100,
            deselected=None,
            seconds=pytest * busy,
            summary=summary,
        ),
        stages=stages,
        build=BuildResult(
            configure_s=None,
            compile_s=compiled * busy,
            link_s=None,
            translation_units=48,
            wheel_bytes=4_000_000,
            generated_lines=200_000,
        ),
        build_install_s=install * busy,
        pytest_s=pytest * busy,
        total_s=(install + pytest) * busy,
        verdict=Verdict(
            product=Product.PASSED,
            harness=Harness.CLEAN,
            evidence=(Evidence(grade=Grade.FACT, text=f"pytest: {summary}"),),
        ),
        findings=(full_suite(),),
        environment=environment,
        artifacts={},
    )
