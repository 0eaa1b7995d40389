"""What the store holds of a platform's history, judged; and why what alarms is so."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ci.analysis.regressions import Environment, History, Shift, history
from ci.errors import UsageError
from ci.facts.measures import stage_and_quantity
from ci.store.rows import Measured
from ci.util.text import near_match

if TYPE_CHECKING:
    from ci.analysis.parts import BuildSide
    from ci.model.results import PlatformResult
    from ci.store.store import Store


RECENT_HEADS = 50
EXPLAINED = 5
"""Regressions whose cause is looked for: reading two builds takes some ten milliseconds."""
STEADY = 3
"""Runs on either side that a cause is looked for in: their medians are steadier than one."""


@dataclass(frozen=True, kw_only=True)
class PlatformHistory:
    """A platform's history, and what is said of it."""

    project: str
    platform: str
    runs: int
    history: History
    causes: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """An open regression and its cause in words, by its run and measure."""


def platform_history(
    store: Store,
    platform: str,
    *,
    project: str | None = None,
    stage: str | None = None,
    last: int | None = None,
) -> PlatformHistory:
    """The history of a platform; ``UsageError`` for one, or a stage, that was never measured."""
    name = project_of(store, platform, project)
    rows = store.measured(platform, project=name, last=last)
    if stage is not None:
        _refuse_unknown_stage(stage, platform, rows)
    accepted = [it for it in store.accepted(name) if it.platform == platform]
    keys = store.environment_keys({row.key for row in rows})
    found = history(rows, keys, accepted, stage=stage)
    return PlatformHistory(
        project=name,
        platform=platform,
        runs=len(rows),
        history=found,
        causes=dict(_causes(store, platform, found)),
    )


def project_of(store: Store, platform: str, project: str | None) -> str:
    """The project that is named, or that the newest run of the platform is of."""
    for last in (RECENT_HEADS, None):
        heads = store.heads(project=project, last=last)
        for head in heads:
            if platform in head.platforms:
                return head.project
    if not heads and project is not None:
        known = {head.project for head in store.heads()}
        message = f"the store holds no run of project '{project}'{near_match(project, known)}"
        raise UsageError(message, remedy=f"It has: {', '.join(sorted(known)) or 'no run yet'}.")
    known = {name for head in heads for name in head.platforms}
    message = f"the store holds no run of '{platform}'{near_match(platform, known)}"
    raise UsageError(message, remedy=f"It has: {', '.join(sorted(known)) or 'no run yet'}.")


def _refuse_unknown_stage(stage: str, platform: str, rows: Sequence[Measured]) -> None:
    known = {stage_and_quantity(name)[0] for row in rows for name in row.values}
    if stage not in known:
        message = f"--stage: {platform} has no measure of '{stage}'{near_match(stage, known)}"
        raise UsageError(message, remedy=f"It has: {', '.join(sorted(known)) or 'none yet'}.")


def _causes(store: Store, platform: str, found: History) -> Iterator[tuple[tuple[str, str], str]]:
    shifts = [(it, shift) for it in found.environments for shift in it.open][:EXPLAINED]
    if not shifts:
        return
    from ci.analysis.cause import explain  # nothing of it is needed where nothing got worse

    for environment, shift in shifts:
        change, sides = shift.headline, _sides(store, platform, environment, shift)
        yield (change.run.run_id, change.measure), explain(change.measure, *sides).text


def _sides(
    store: Store, platform: str, environment: Environment, shift: Shift
) -> Iterator[BuildSide]:
    change = shift.headline
    place = environment.runs.index(change.before_run) + 1
    for runs, levels in (
        (environment.runs[:place][::-1], {it.measure: it.point.before for it in shift.changes}),
        (environment.runs[change.place :], {it.measure: it.point.after for it in shift.changes}),
    ):
        run_ids = [run.run_id for run in runs[:STEADY]]  # from the one next to the change on
        result = store.load(run_ids[0], platform=platform).platform(platform)
        yield stored_side(store, result, run_ids, [change.measure], levels)


def stored_side(
    store: Store,
    result: PlatformResult,
    run_ids: Sequence[str],
    measures: Iterable[str],
    levels: Mapping[str, float],
) -> BuildSide:
    """A side of changes of ``measures``, whose causes are looked for.

    ``run_ids`` begin with the run of ``result``; the others make the seconds of units steadier.
    """
    from ci.analysis.parts import BuildSide, pytest_stages

    builds = [store.build_details(run_id, result.platform) for run_id in run_ids]
    stages = {stage_and_quantity(name)[0] for name in measures}
    tests = store.outcomes(run_ids[0], result.platform) if stages & pytest_stages(result) else None
    return BuildSide(
        result=result,
        builds=tuple(build for build in builds if build is not None),
        tests=dict(zip(tests.names, tests.seconds, strict=True)) if tests else {},
        values=levels,
    )
