"""The history of a platform in the store, with its regressions and their causes."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from ci.analysis.ancestry import Ancestry, Line
from ci.analysis.cause import explain, host_changes
from ci.analysis.explanation import Explanation
from ci.analysis.histories import history
from ci.analysis.level_changes import IN_USE, LATEST, History, LevelChange
from ci.analysis.parts import BuildSide
from ci.analysis.repository import Repository
from ci.errors import UsageError
from ci.facts.acceptance import Acceptance, split_expired
from ci.facts.measures import is_of, pytest_stages, stage_and_quantity
from ci.gates.regression import Judgement
from ci.model.results import PlatformResult
from ci.store.rows import RunHead, RunMeasures
from ci.util.invocation import ACCEPTED_FILE, command
from ci.util.text import join_names, near_match

if TYPE_CHECKING:
    from ci.store.store import Store  # SQLAlchemy, 0.3 s


RECENT_HEADS = 50
"""Heads of runs that are read first: nearly always, the platform is among them."""
EXPLAINED = 5
"""Regressions whose causes are searched: reading two builds takes some ten milliseconds."""
NO_BRANCH = "no branch"  # of a detached HEAD; no branch's name has a space
_UNEXPLAINED = (Judgement.REGRESSION, Judgement.SUSPECTED)
MOST_NAMED = 10
"""Measures in a message."""
STEADY = 3
"""Runs on either side in which a cause is searched: medians are steadier than one run."""


@dataclass(frozen=True, kw_only=True)
class PlatformHistory:
    """A platform's history, and the causes of its regressions."""

    project: str
    platform: str
    runs: int
    history: History
    branch: str | None = None
    """The branch whose line of commits the runs are on; ``None``: all runs, in order of time."""
    elsewhere: Mapping[str, int] = field(default_factory=dict)
    """The numbers of runs that are not on that line, by branch."""
    abandoned: Mapping[str, int] = field(default_factory=dict)
    """The numbers of runs of commits that the branch no longer has, by the newest of them."""
    searches: Mapping[str, int] = field(default_factory=dict)
    """The numbers of runs that searched a commit, by command: what they run is no sample."""
    expired: tuple[Acceptance, ...] = ()
    """Acceptances that no longer hold."""
    causes: Mapping[tuple[str, str], Explanation] = field(default_factory=dict)
    """The causes of each open regression, by its run and measure."""

    def cause_of(self, change: LevelChange) -> Explanation | None:
        return self.causes.get((change.run.run_id, change.measure))


@dataclass(frozen=True, kw_only=True)
class ProjectLine:
    """The runs of a project along one branch, of all its platforms."""

    project: str
    heads: Sequence[RunHead]
    """All runs of the project."""
    line: Line
    accepted: Sequence[Acceptance]
    """All acceptances of the project, those that no longer hold included."""
    repository: Repository
    """That of the project, if there is one."""

    @cached_property
    def order(self) -> Mapping[str, int]:
        """The place of each run on the line, by id; runs of one commit share a place."""
        places: dict[str, int] = {}
        known: tuple[str | None, bool] | None = None
        for place, run in enumerate(self.line.runs):
            same = known == (run.commit, run.dirty) and run.commit is not None
            places[run.run_id] = places[self.line.runs[place - 1].run_id] if same else place
            known = (run.commit, run.dirty)
        return places

    @cached_property
    def _places(self) -> Sequence[int]:
        """The places of commits with runs."""
        return sorted(set(self.order.values()))

    def commits_since(self, run_id: str | None) -> int:
        """The commits with runs after a run; all of them if it is not on the line."""
        return len(self._places) - bisect_right(self._places, self.order.get(run_id or "", -1))

    @cached_property
    def platform_places(self) -> Mapping[str, Mapping[str, int]]:
        """The place of each run among those of a platform, by platform and run id."""
        places: dict[str, dict[str, int]] = {}
        for run in self.line.runs:
            for name in run.platforms:
                of_platform = places.setdefault(name, {})
                of_platform[run.run_id] = len(of_platform)
        return places

    @property
    def platforms(self) -> tuple[str, ...]:
        """The platforms of the latest runs, which are in use."""
        return tuple(sorted({name for run in self.line.runs[-IN_USE:] for name in run.platforms}))


def project_line(
    store: Store, project: str, folder: Path, branch: str | None = None
) -> ProjectLine:
    """Order the runs of a project along one branch, by default the main one.

    ``folder`` is the project's, with its acceptances and its repository. Raises ``UsageError`` if
    no run recorded the branch.
    """
    heads = store.heads(project=project)
    own = [run for run in heads if run.asked_by is None]
    repository = Repository(folder)
    return ProjectLine(
        project=project,
        heads=heads,
        line=Ancestry(own, store.parents, partial(repository.line, "HEAD")).line(branch),
        accepted=project_acceptances(store, folder, project),
        repository=repository,
    )


def project_acceptances(store: Store, folder: Path, project: str) -> Sequence[Acceptance]:
    """The acceptances in the project's folder; without a file, the store's copy of them."""
    if (folder / ACCEPTED_FILE).exists():
        # Imported here: without a file, no reader needs the loader of configurations.
        from ci.plan.accepted import read_accepted

        found = read_accepted(folder, project)
        if found is not None:
            return found
    return store.accepted(project)


def platform_histories(
    store: Store,
    platforms: Iterable[str],
    along: ProjectLine,
    *,
    stage: str | None = None,
    text: str | None = None,
    last: int | None = None,
    selected: Collection[str | None] | None = None,
) -> list[PlatformHistory]:
    """Judge the histories of platforms along a branch.

    ``stage`` and ``text`` choose the measures that are reported, see ``level_changes.history``.
    ``selected`` has the operators of the runs to read, where ``None`` is all operators; by default
    every run is read.

    Raises ``UsageError`` if no such measure exists on one of them.
    """
    line = along.line
    runs = {
        name: [
            run
            for run in line.runs
            # Not those that were to end before the tests: `bisect` runs few commits, but often.
            if name in run.begun and (selected is None or run.selected.get(name) in selected)
        ][-(last or 0) :]
        for name in platforms
    }
    measured = store.measured_on(runs)
    keys = store.environment_keys({row.key for rows in measured.values() for row in rows})
    of_branch = {run.run_id for runs in (line.runs, *line.abandoned.values()) for run in runs}
    searches = [run for run in along.heads if run.asked_by]
    others = [run for run in along.heads if run.run_id not in of_branch and not run.asked_by]
    histories = []
    for platform, rows in measured.items():
        if stage is not None or text is not None:
            _require_measure({name for row in rows for name in row.values}, platform, stage, text)
        own = (it for it in along.accepted if it.platform == platform)
        holding, expired = split_expired(own, datetime.now(UTC).date())
        accepted = follow_merges(holding, rows, along.repository)
        found = history(rows, keys, accepted, stage=stage, text=text)
        found = _with_host_changes(store, platform, rows, found)
        elsewhere = Counter(run.branch or NO_BRANCH for run in others if platform in run.platforms)
        searched = Counter(str(run.asked_by) for run in searches if platform in run.begun)
        record = PlatformHistory(
            project=along.project,
            platform=platform,
            runs=len(rows),
            history=found,
            branch=line.branch,
            elsewhere=dict(elsewhere.most_common()),
            abandoned={
                commit: count
                for commit, runs in line.abandoned.items()
                if (count := sum(platform in run.platforms for run in runs))
            },
            searches=dict(searched.most_common()),
            expired=tuple(expired),
            causes=dict(_causes(store, platform, found)),
        )
        histories.append(record)
    return histories


def _require_measure(
    measures: Collection[str], platform: str, stage: str | None, text: str | None
) -> None:
    """Raise ``UsageError`` if none of the measures is of the stage and contains the text."""
    stages = {stage_and_quantity(name)[0] for name in measures}
    if stage is not None and stage not in stages:
        message = f"--stage: {platform} has no measure of '{stage}'"
        raise _unknown(message, stage, stages, "none")
    if text is not None and not any(is_of(name, stage, text) for name in measures):
        of = f" of stage {stage}" if stage else ""
        labels = {stage_and_quantity(name)[1].label for name in measures if is_of(name, stage, "")}
        message = f"--measure: {platform} has no measure{of} with '{text}' in its name"
        remedy = f"It has: {join_names(sorted(labels), MOST_NAMED) or 'none yet'}."
        raise UsageError(message, remedy=remedy)


def follow_merges(
    accepted: Sequence[Acceptance], rows: Sequence[RunMeasures], repository: Repository
) -> list[Acceptance]:
    """Name the first of the runs that has an accepted commit, where that has none of its own.

    A commit of a branch that was merged has no run on the line of the main branch.
    """
    measured = {row.commit for row in rows}
    tip = next((row.commit for row in reversed(rows) if row.commit and not row.dirty), None)

    def first_run(commit: str) -> str | None:
        later = repository.commits_since(commit, tip) if tip else ()
        return next((row.run_id for row in rows if row.commit in later), None)

    commits = {it.commit for it in accepted if it.commit and it.commit not in measured}
    runs = {commit: first_run(commit) for commit in commits}
    return [
        it.model_copy(update={"run": run}) if (run := runs.get(it.commit or "")) else it
        for it in accepted
    ]


def find_project(store: Store, platform: str | None, project: str | None) -> str:
    """The given project if it has runs of the platform; by default that of its newest run.

    Without a platform, of any one.
    """
    for last in (RECENT_HEADS, None):
        heads = store.heads(project=project, last=last)
        for head in heads:
            if platform is None or platform in head.platforms:
                return head.project
    if not heads and project is not None:
        known = {head.project for head in store.heads()}
        raise _unknown(f"the store holds no run of project '{project}'", project, known, "no run")
    if platform is None:
        remedy = f"Run a platform first: {command('run', 'cpu')}"
        raise UsageError("the store holds no run yet", remedy=remedy)
    known = {name for head in heads for name in head.platforms}
    raise _unknown(f"the store holds no run of '{platform}'", platform, known, "no run")


def _unknown(message: str, name: str, known: Collection[str], none: str) -> UsageError:
    remedy = f"It has: {', '.join(sorted(known)) or f'{none} yet'}."
    return UsageError(f"{message}{near_match(name, known)}", remedy=remedy)


def _with_host_changes(
    store: Store, platform: str, rows: Sequence[RunMeasures], found: History
) -> History:
    """The history with what changed of the machines together with its newest rises.

    A rise is one of the environment if another host, kernel or system came with it: these are in no
    environment key, since equal machines share one.
    """
    order = {row.run_id: place for place, row in enumerate(rows)}

    def changes(rise: LevelChange) -> tuple[str, ...]:
        first = order[rise.run.run_id]
        before = [row.run_id for row in rows[:first] if row.key == rise.before_run.key][-LATEST:]
        after = [row.run_id for row in rows[first:] if row.key == rise.run.key][:LATEST]
        machines = store.machines([*before, *after], platform)
        sides = ([machines[it] for it in some if it in machines] for some in (before, after))
        return tuple(map(str, host_changes(*sides)))

    newest = found.environment_rises[:EXPLAINED]
    named = (
        replace(it, changes=(*it.changes, *changes(it.rises[0]))) if it in newest else it
        for it in found.key_changes
    )
    found = replace(found, key_changes=tuple(named))
    unexplained = [shift for _, shift in found.shifts if shift.judgement in _UNEXPLAINED]
    for shift in unexplained[:EXPLAINED]:
        if known := changes(shift.headline):
            found = found.move_to_environment(shift, *known)
    return found


def _causes(
    store: Store, platform: str, found: History
) -> Iterator[tuple[tuple[str, str], Explanation]]:
    shifts = [it for it in found.shifts if it[1].judgement is Judgement.REGRESSION]
    for environment, shift in shifts[:EXPLAINED]:
        change, runs = shift.headline, environment.runs
        place = runs.index(change.before_run) + 1
        first_after = runs.index(change.reached) if change.reached else change.place
        before = {it.measure: it.point.before for it in shift.changes}
        after = {it.measure: it.point.after for it in shift.changes}
        ends: list[ChangeEnd] = []
        # The run nearest to the change first.
        for near, levels in ((runs[:place][::-1], before), (runs[first_after:], after)):
            run_ids = [run.run_id for run in near[:STEADY]]
            ends.append((store.load_platform(run_ids[0], platform), run_ids, levels))
        [explanation] = explain_changes(store, [change.measure], ends)
        yield (change.run.run_id, change.measure), explanation


# A result; the ids of its run and of others, for steadier seconds of units; the levels of measures.
ChangeEnd = tuple[PlatformResult, Sequence[str], Mapping[str, float]]


def explain_changes(
    store: Store, names: Sequence[str], ends: Iterable[ChangeEnd]
) -> list[Explanation]:
    """Explain why measures changed between two ends."""
    sides = []
    for result, run_ids, levels in ends:
        builds = store.build_details(run_ids, result.platform)
        tests: Mapping[str, float] = {}
        if {stage_and_quantity(name)[0] for name in names} & pytest_stages(result):
            outcomes = store.outcomes(run_ids[0], result.platform)
            tests = dict(zip(outcomes.names, outcomes.seconds, strict=True))
        known = tuple(builds[run_id] for run_id in run_ids if run_id in builds)
        machines = tuple(store.machines(run_ids, result.platform).values())
        side = BuildSide(result=result, builds=known, tests=tests, values=levels, machines=machines)
        sides.append(side)
    return [explain(name, *sides) for name in names]
