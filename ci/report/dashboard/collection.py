"""What the pages are made from, read from the store once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from ci.analysis.acceptances import project_acceptances
from ci.analysis.alarms import Alarm, find_alarms
from ci.analysis.history import PlatformHistory, ProjectLine, platform_histories, project_line
from ci.analysis.repository import Repository
from ci.facts.environment_key import EnvironmentKey
from ci.model.platforms import PLATFORMS
from ci.store.rows import ResultHead, RunHead, RunMeasures

if TYPE_CHECKING:
    from ci.store.store import Store  # SQLAlchemy, 0.3 s

NO_REASON = "no recorded reason"  # of a skip


@dataclass(frozen=True, kw_only=True)
class Collection:
    """The runs of one project, along one branch."""

    along: ProjectLine
    platforms: tuple[str, ...]
    """The platforms in use, in the order of the results table."""
    results: Mapping[str, Mapping[str, ResultHead]]
    """By platform and run id."""
    measured: Mapping[str, Sequence[RunMeasures]]
    """By platform, in order of time, those of other branches included."""
    keys: Mapping[str, EnvironmentKey]
    """The environments of all measures, by digest."""
    histories: Mapping[str, PlatformHistory]
    alarms: Sequence[Alarm]

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
        """The name of a platform in the table of its newest run."""
        return [*self.results[platform].values()][-1].label

    def on_line(self, platform: str) -> list[ResultHead]:
        """The results of a platform along the branch, oldest commit first."""
        results = self.results[platform]
        return [results[run.run_id] for run in self.line if run.run_id in results]


def collect(store: Store, source: Path, project: str, branch: str | None) -> Collection:
    """Read the history of a project along a branch, by default the main one.

    ``source`` is the project's folder, with its acceptances and its repository. Raises
    ``UsageError`` if no run recorded the branch.
    """
    along = project_line(store, project, branch)
    results: dict[str, dict[str, ResultHead]] = {}
    for row in store.result_heads(project=project):
        results.setdefault(row.platform, {})[row.run_id] = row
    in_use = [name for name in along.platforms if name in results]
    order = [*PLATFORMS]
    in_use.sort(key=lambda name: (order.index(name) if name in order else len(order), name))
    accepted = project_acceptances(store, source, project)
    histories = platform_histories(
        store,
        in_use,
        along,
        repository=Repository(source),
        accepted=accepted,
        today=datetime.now(UTC).date(),
    )
    measured = store.measured_on(dict.fromkeys(in_use, along.heads[::-1]))
    digests = {row.key for rows in measured.values() for row in rows}
    return Collection(
        along=along,
        platforms=tuple(in_use),
        results=results,
        measured=measured,
        keys=store.environment_keys(digests),
        histories={it.platform: it for it in histories},
        alarms=find_alarms(histories, along.order),
    )
