"""The results of a commit whose platforms were tested by separate runs, such as jobs of a CI."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ci.analysis.references import ReferenceFinder, ReferenceRuns
from ci.analysis.repository import Repository
from ci.errors import UsageError
from ci.model.platforms import PLATFORMS
from ci.model.results import Evidence, Grade, Harness, PlatformResult, Product, RunResult, Verdict
from ci.store.rows import LATEST
from ci.store.store import Store
from ci.util.invocation import command
from ci.util.text import SHORT


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
        runs = ReferenceFinder(store.heads(), Repository(source), store.ancestors).find_runs(name)
        found = _combine(store, runs)
    missing = [it for it in expected if it not in found.run_ids]
    if not missing:
        return found
    rows = {it.platform: it for it in (*found.run.platforms, *map(_missing_result, missing))}
    update = {"platforms": tuple(rows[name] for name in PLATFORMS if name in rows)}
    return replace(found, run=found.run.model_copy(update=update))


def _combine(store: Store, runs: ReferenceRuns) -> CombinedResults:
    heads = {runs.platform: runs.runs[runs.platform]} if runs.platform else dict(runs.runs)
    if runs.commits:
        commit = runs.commits[0]
        heads = {it: head for it, head in heads.items() if commit in (head.commit, head.tip)}
        if not heads:
            message = f"'{runs.name}' is commit {commit[:SHORT]}: the store holds no run of it"
            raise UsageError(message, remedy=f"Run it: {command('run', runs.platform or 'cpu')}")
    run_ids = {platform: head.run_id for platform, head in heads.items()}
    loaded = {run_id: store.load(run_id) for run_id in dict.fromkeys(run_ids.values())}
    newest = max(loaded.values(), key=lambda run: run.started_at)
    if len(loaded) == 1 and not runs.platform:
        return single_run(newest)
    update = {
        "platforms": tuple(loaded[run_ids[it]].platform(it) for it in PLATFORMS if it in run_ids),
        "started_at": min(run.started_at for run in loaded.values()),
        "finished_at": max(run.finished_at for run in loaded.values()),
        "engine": newest.engine if len({run.engine for run in loaded.values()}) == 1 else "several",
    }
    return CombinedResults(
        run=newest.model_copy(update=update),
        run_ids=run_ids,
        reference=newest.run_id if len(loaded) == 1 else newest.commit or newest.run_id,
    )


def _missing_result(platform: str) -> PlatformResult:
    """The row of a platform that was expected, and whose run is not in the store."""
    text = (
        "no run of this commit has a result: its job did not start, its results were lost, or its"
    )
    text += " sources had uncommitted changes"
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
