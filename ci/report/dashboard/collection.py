"""What the pages are made from, read from the store once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from ci.analysis.alarm_tracking import TrackedAlarm, track_alarms
from ci.analysis.alarms import Alarm, find_alarms
from ci.analysis.level_changes import IN_USE
from ci.analysis.owners import add_owners
from ci.analysis.platform_history import (
    PlatformHistory,
    ProjectLine,
    platform_histories,
    project_line,
)
from ci.facts.environment_key import EnvironmentKey
from ci.model.platforms import PLATFORMS
from ci.report.dashboard.commits import Commits, read_commits
from ci.store.folder import is_running
from ci.store.rows import ResultHead, RunHead, RunMeasures

if TYPE_CHECKING:
    from ci.store.store import Store  # SQLAlchemy, 0.3 s

NO_REASON = "no recorded reason"  # of a skip


@dataclass(frozen=True, kw_only=True)
class Collection:
    """The runs of one project, along one branch.

    A platform's runs of selected operators are apart from those of the whole suite, as if they were
    of another platform: a row is a platform, or a platform with a selection.
    """

    along: ProjectLine
    platforms: tuple[str, ...]
    """The rows in use, in the order of the results table."""
    results: Mapping[str, Mapping[str, ResultHead]]
    """By row and run id."""
    measured: Mapping[str, Sequence[RunMeasures]]
    """By row, in order of time, those of other branches included."""
    keys: Mapping[str, EnvironmentKey]
    """The environments of all measures, by digest."""
    histories: Mapping[str, PlatformHistory]
    tracked: Sequence[TrackedAlarm]
    """The alarms of rows with all operators, those that are over included."""
    commits: Commits
    running: frozenset[str]
    """The runs that are going on, by id."""

    @cached_property
    def alarms(self) -> tuple[Alarm, ...]:
        """The open alarms that no one marked as invalid."""
        return tuple(it.alarm for it in self.tracked if it.alarm and not it.is_dismissed)

    @property
    def project(self) -> str:
        return self.along.project

    @property
    def branch(self) -> str | None:
        return self.along.line.branch

    @cached_property
    def runs(self) -> tuple[RunHead, ...]:
        """All runs that have results, oldest first."""
        known = {run_id for results in self.results.values() for run_id in results}
        heads = [run for run in self.along.heads if run.run_id in known]
        return tuple(reversed(heads))

    @cached_property
    def line(self) -> tuple[RunHead, ...]:
        """The runs along the branch, oldest commit first."""
        known = {run.run_id for run in self.runs}
        return tuple(run for run in self.along.line.runs if run.run_id in known)

    def label(self, platform: str) -> str:
        """The name of a row in the table of its newest run."""
        return self._newest(platform).label

    def platform(self, row: str) -> str:
        """The platform of a row, as the store and commands name it."""
        return self._newest(row).platform

    def is_whole(self, row: str) -> bool:
        """Whether the runs of a row have all operators."""
        return self._newest(row).selected is None

    def _newest(self, row: str) -> ResultHead:
        return [*self.results[row].values()][-1]

    def on_line(self, platform: str) -> list[ResultHead]:
        """The results of a row along the branch, oldest commit first."""
        found = (self.result(platform, run.run_id) for run in self.line)
        return [it for it in found if it is not None]

    def result(self, row: str, run_id: str) -> ResultHead | None:
        """The result of a row in a run; ``None`` too while the run is still to have it."""
        found = self.results[row].get(run_id)
        return None if found and found.is_pending and run_id in self.running else found


def collect(
    store: Store, source: Path, project: str, branch: str | None, results_folder: Path
) -> Collection:
    """Read the history of a project along a branch, by default the main one.

    ``source`` is the project's folder, with its acceptances and its repository. The folder of
    results shows which runs are going on. Raises ``UsageError`` if no run recorded the branch.
    """
    along = project_line(store, project, source, branch)
    results: dict[str, dict[str, ResultHead]] = {}
    for head in store.result_heads(project=project):
        results.setdefault(_row(head.platform, head.selected), {})[head.run_id] = head
    selections: dict[str, dict[str | None, None]] = {name: {} for name in along.platforms}
    for run in along.line.runs[-IN_USE:]:
        for name in run.platforms:
            selections[name][run.selected.get(name)] = None
    rows = {
        _row(name, selected): (name, selected)
        for name in sorted(selections, key=_position)
        for selected in (None, *sorted(filter(None, selections[name])))
        if _row(name, selected) in results
    }
    histories = {}
    for row, (name, selected) in rows.items():
        accepting = along if selected is None else replace(along, accepted=())
        [histories[row]] = platform_histories(store, [name], accepting, selected=[selected])
    measured = store.measured_on(dict.fromkeys(selections, along.heads[::-1]))
    of_rows = {
        row: [it for it in measured[name] if it.run_id in results[row]]
        for row, (name, _) in rows.items()
    }
    digests = {it.key for found in of_rows.values() for it in found}
    whole = [histories[row] for row, (_, selected) in rows.items() if selected is None]
    alarms, records = find_alarms(whole, along.order), store.alarm_records(project)
    tracked = track_alarms(alarms, records, whole, along, complete=False)
    return Collection(
        along=along,
        platforms=tuple(rows),
        results=results,
        measured=of_rows,
        keys=store.environment_keys(digests),
        histories=histories,
        tracked=add_owners(tracked, along),
        commits=read_commits(along.repository, filter(None, (it.tested for it in along.heads))),
        running=frozenset(_running(results, results_folder)),
    )


def _running(results: Mapping[str, Mapping[str, ResultHead]], folder: Path) -> Iterator[str]:
    """Yield the runs that lack a result, and whose process still holds their lock.

    The kernel releases the lock of a process that died.
    """
    lacking = {it.run_id for row in results.values() for it in row.values() if it.is_pending}
    for run_id in lacking:
        # Names in a store that others can write to may lead anywhere.
        own = (folder / run_id).resolve()
        if own.parent == folder.resolve() and is_running(own):
            yield run_id


def _row(platform: str, selected: str | None) -> str:
    """The name of a row, without spaces: pages list the names of several rows."""
    return platform if selected is None else f"{platform}:{'_'.join(selected.split())}"


def _position(platform: str) -> tuple[int, str]:
    """The place in the results table; results of another version may have other platforms."""
    return [*PLATFORMS, platform].index(platform), platform
