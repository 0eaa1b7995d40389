"""What the store holds of a platform's history, judged; and why what alarms is so."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ci.analysis.measures import stage_and_quantity
from ci.analysis.regressions import Environment, History, Shift, history
from ci.analysis.series import Measured
from ci.errors import UsageError
from ci.text import near_match

if TYPE_CHECKING:
    from ci.analysis.contributor import BuildSide
    from ci.store.store import Store

RECENT_HEADS = 50
EXPLAINED = 5
"""Regressions whose cause is looked for: reading two builds takes some ten milliseconds."""
STEADY = 3
"""Runs on either side that a cause is looked for in: their medians are steadier than one."""


@dataclass(frozen=True, kw_only=True)
class Told:
    """A platform's history, and what is said of it."""

    project: str
    platform: str
    runs: int
    history: History
    causes: Mapping[tuple[str, str], str] = field(default_factory=dict)
    """An open regression and its cause in words, by its run and measure."""


def told(
    store: Store,
    platform: str,
    *,
    project: str | None = None,
    stage: str | None = None,
    last: int | None = None,
) -> Told:
    """The history of a platform; ``UsageError`` for one, or a stage, that was never measured."""
    name = project_of(store, platform, project)
    rows = store.measured(platform, project=name, last=last)
    if stage is not None:
        _refuse_unknown_stage(stage, platform, rows)
    accepted = [it for it in store.accepted(name) if it.platform == platform]
    keys = store.environment_keys({row.key for row in rows})
    found = history(rows, keys, accepted, stage=stage)
    return Told(
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
        before, after = _sides(store, platform, environment, shift)
        change = shift.headline
        yield (change.run.run_id, change.measure), explain(change.measure, before, after).text


def _sides(
    store: Store, platform: str, environment: Environment, shift: Shift
) -> tuple[BuildSide, BuildSide]:
    change = shift.headline
    place = environment.runs.index(change.before_run) + 1
    before, after = environment.runs[:place][::-1], environment.runs[change.place :]
    then = {it.measure: it.point.before for it in shift.changes}
    now = {it.measure: it.point.after for it in shift.changes}
    return _side(store, platform, change.measure, before, then), _side(
        store, platform, change.measure, after, now
    )


def _side(
    store: Store,
    platform: str,
    measure: str,
    runs: Sequence[Measured],
    values: Mapping[str, float],
) -> BuildSide:
    """``runs`` begin with the one next to the change."""
    from ci.analysis.contributor import BuildSide

    first = runs[0].run_id
    builds = [store.build_details(run.run_id, platform) for run in runs[:STEADY]]
    of_tests = stage_and_quantity(measure)[0] == "pytest"
    return BuildSide(
        result=store.load(first).platform(platform),
        builds=tuple(build for build in builds if build is not None),
        tests=store.tests(first, platform) if of_tests else (),
        values=values,
    )
