"""The results of a commit whose platforms were tested by separate runs, such as jobs of a CI."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ci.analysis.references import ReferenceFinder
from ci.analysis.repository import Repository
from ci.errors import UsageError
from ci.model.platforms import PLATFORMS
from ci.model.results import Evidence, Grade, Harness, PlatformResult, Product, RunResult, Verdict
from ci.store.rows import LATEST
from ci.util.invocation import command
from ci.util.text import SHORT

if TYPE_CHECKING:  # it imports SQLAlchemy
    from ci.store.store import Store


@dataclass(frozen=True, kw_only=True)
class CombinedResults:
    """One row for each platform, from one run or from several runs of one commit."""

    run: RunResult
    """All rows. Of several runs, everything else is that of the newest one."""
    run_ids: Mapping[str, str]
    """The run of each platform that has one."""
    reference: str
    """What ``compare`` calls these results: the run, or the commit of the runs."""


def single_run(run: RunResult) -> CombinedResults:
    run_ids = {result.platform: run.run_id for result in run.platforms}
    return CombinedResults(run=run, run_ids=run_ids, reference=run.run_id)


def find_results(
    store: Store, source: Path, name: str | None, expected: Sequence[str] = ()
) -> CombinedResults:
    """Find the results of a run, or of the newest run of each platform at exactly one commit.

    ``name`` is a run, a run and its platform, or a commit or a revision of the repository in
    ``source``; by default the latest run. An expected platform without a run becomes a row that
    did not pass.
    """
    if name in (None, LATEST):
        found = single_run(store.load())
    else:
        finder = ReferenceFinder(store.heads(), Repository(source), store.ancestors)
        commit = finder.commit(name)
        found = _of_commit(store, finder, commit) if commit else _of_run(store, finder, name)
    missing = [it for it in expected if it not in found.run_ids]
    if not missing:
        return found
    rows = {it.platform: it for it in (*found.run.platforms, *map(_missing_result, missing))}
    update = {"platforms": tuple(rows[name] for name in PLATFORMS if name in rows)}
    return replace(found, run=found.run.model_copy(update=update))


def _of_run(store: Store, finder: ReferenceFinder, name: str) -> CombinedResults:
    """The results of a run, or of one platform of a run or a commit."""
    found = finder.find_runs(name)
    if found.platform is None:
        return single_run(store.load(found.name))
    head = found.runs[found.platform]
    if found.commits and found.commits[0] not in (head.commit, head.tip):
        raise _no_run(found.commits[0], found.platform)
    run = store.load(head.run_id)
    only = run.model_copy(update={"platforms": (run.platform(found.platform),)})
    return single_run(only)


def _of_commit(store: Store, finder: ReferenceFinder, commit: str) -> CombinedResults:
    """The newest run of each platform at a commit, if possible one that has begun."""
    heads = [it for it in finder.heads if commit in (it.commit, it.tip) and not it.dirty]
    if not heads:
        raise _no_run(commit, "cpu")
    heads = [it for it in heads if it.project == heads[0].project]
    run_ids: dict[str, str] = {}
    for head in heads:
        run_ids = dict.fromkeys(head.begun, head.run_id) | run_ids
    for head in heads:
        run_ids = dict.fromkeys(head.platforms, head.run_id) | run_ids
    loaded = {run_id: store.load(run_id) for run_id in dict.fromkeys(run_ids.values())}
    newest, *others = sorted(loaded.values(), key=lambda run: run.started_at, reverse=True)
    if not others:
        return single_run(newest)
    update = {
        "platforms": tuple(loaded[run_ids[it]].platform(it) for it in PLATFORMS if it in run_ids),
        "started_at": min(run.started_at for run in loaded.values()),
        "finished_at": max(run.finished_at for run in loaded.values()),
        "engine": newest.engine if len({run.engine for run in loaded.values()}) == 1 else "several",
    }
    return CombinedResults(run=newest.model_copy(update=update), run_ids=run_ids, reference=commit)


def _no_run(commit: str, platform: str) -> UsageError:
    message = f"commit {commit[:SHORT]}: the store holds no run of it"
    return UsageError(message, remedy=f"Run it: {command('run', platform)}")


def _missing_result(platform: str) -> PlatformResult:
    """The row of a platform that was expected, and whose run is not in the store."""
    text = "no run of this commit has a result: its job did not start, its results were lost,"
    text += " or its sources had uncommitted changes"
    evidence = (Evidence(grade=Grade.FACT, text=text),)
    return PlatformResult(
        platform=platform,
        label=PLATFORMS[platform].label,
        built=None,
        pytest=None,
        stages=(),
        build_install_s=None,
        pytest_s=None,
        total_s=None,
        verdict=Verdict(product=Product.NOT_RUN, harness=Harness.LOST, evidence=evidence),
        notes=(text,),
        environment={},
        artifacts={},
    )
