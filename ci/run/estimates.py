"""Estimates of stages from earlier runs of the same project on the same platform."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING

from ci.errors import CiError
from ci.facts.environment_key import (
    ALL_OPERATORS,
    CacheState,
    EnvironmentKey,
    platform_component,
    shards_component,
)
from ci.facts.measures import Quantity, measure_key
from ci.model.plan import RunPlan
from ci.protocol.stage_kind import StageKind
from ci.store.rows import RunMeasures

if TYPE_CHECKING:  # it imports SQLAlchemy
    from ci.store.store import Store

LAST = 40  # runs of the project that are looked at; reading them takes milliseconds
MOST = 5  # runs whose times are used: the newest ones of the most similar environment


def stage_estimates(store: Store, project: str, plan: RunPlan, engine: str) -> dict[str, float]:
    """Return the seconds that each stage usually takes, for the stages that ran before.

    ``engine`` is the one that carries the plan out.
    """
    try:
        runs = store.heads(project=project, last=LAST)
        rows = store.measured(plan.platform, runs[::-1])  # the oldest first
        environments = store.environment_keys({row.key for row in rows})
    except CiError:  # a run needs no estimates, and commands that read the store report its damage
        return {}
    alike = {key: similarity(found, plan, engine) for key, found in environments.items()}
    shards = shards_component(plan.shards)
    divided = {key for key, found in environments.items() if found.shards != shards}
    return usual_seconds(plan, rows, alike, divided)


def with_recorded_times(store: Store, project: str, plan: RunPlan) -> RunPlan:
    """Return a plan whose shards get tests by their times in the newest suitable run.

    That is one that was judged, with the same selection of operators. Without any, all tests count
    the same.
    """
    if plan.shards == 1:
        return plan
    seconds: dict[str, float] = {}
    try:
        for run in store.heads(project=project, last=LAST):
            if plan.platform not in run.begun:
                continue
            result = store.load_platform(run.run_id, plan.platform)
            same = result.selected == plan.selected
            if same and result.simulated == plan.simulated and result.verdict.product.is_final:
                outcomes = store.outcomes(run.run_id, plan.platform)
                seconds = dict(zip(outcomes.names, outcomes.seconds, strict=True))
            if seconds:
                break
    except CiError:  # shards need no times, and commands that read the store report its damage
        pass
    stages = tuple(replace(it, seconds=seconds) if it.shards > 1 else it for it in plan.stages)
    return replace(plan, stages=stages)


def similarity(environment: EnvironmentKey, plan: RunPlan, engine: str) -> int:
    """Count what a recorded environment shares with that of a plan, as far as it is known."""
    is_cold = environment.cache == CacheState.COLD
    return sum(
        (
            environment.platform == platform_component(plan.platform, simulated=plan.simulated),
            environment.engine == f"{engine} engine",
            plan.image is not None and environment.image == plan.image.tag,
            environment.selection == (plan.selected or ALL_OPERATORS),
            is_cold == (plan.cache is not None and plan.cache.cold),
        )
    )


def usual_seconds(
    plan: RunPlan,
    rows: Sequence[RunMeasures],
    alike: Mapping[str, int],
    divided: Collection[str] = (),
) -> dict[str, float]:
    """Return the median of each stage's newest times in the most similar environments.

    ``rows`` are in order of time; ``alike`` has the similarity of their environments. In those of
    ``divided`` another number of processes shared the tests, which took another time.
    """
    found = {}
    for stage in plan.stages:
        name = measure_key(stage.name, Quantity.WALL)
        known = alike.keys() - divided if stage.kind is StageKind.PYTEST else alike.keys()
        timed = [row for row in rows if name in row.values and row.key in known]
        best = max((alike[row.key] for row in timed), default=0)
        times = [row.values[name] for row in timed if alike[row.key] == best]
        if times:
            found[stage.name] = median(times[-MOST:])
    return found
