"""The results of a commit whose platforms were tested by separate runs, such as jobs of a CI."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ci.analysis.references import ReferenceFinder
from ci.analysis.repository import Repository
from ci.errors import UsageError
from ci.facts.sentences.on_stages import no_result, only_selected
from ci.gates.rules import Subject
from ci.model.platforms import PLATFORMS
from ci.model.results import PlatformResult, RunResult
from ci.model.verdicts import Harness, Product, Verdict
from ci.store.rows import LATEST
from ci.util.invocation import command
from ci.util.text import SHORT, shorten

if TYPE_CHECKING:  # it imports SQLAlchemy
    from ci.store.store import Store

MOST_SELECTED = 10  # selections of a platform at a commit, the newest; each is a row
LONGEST_NAMED = 60  # characters of their operators


@dataclass(frozen=True, kw_only=True)
class CombinedResults:
    """The rows of the platforms, from one run or from several runs of one commit.

    A run of selected operators has a row of its own, beside that of the whole suite.
    """

    run: RunResult
    """All rows. Of several runs, everything else is that of the newest one."""
    origins: Sequence[RunResult | None]
    """The run of each row; ``None``: the row is expected, and no run has it."""
    reference: str
    """What ``compare`` calls these results: the run, or the commit of the runs."""

    @property
    def rows(self) -> Iterator[tuple[PlatformResult, RunResult | None]]:
        """Each row, and its run."""
        return zip(self.run.platforms, self.origins, strict=True)

    def judged_rows(self) -> Iterator[tuple[PlatformResult, RunResult | None]]:
        """The rows that decide, of rows that were read for it, each with its run.

        No row of selected operators makes up for the whole suite. It counts if it did not pass,
        unless a later run of the whole suite decided about the same tests.
        """
        whole = {
            row.platform: run.started_at for row, run in self.rows if run and row.selected is None
        }
        for row, run in self.rows:
            is_last = run is not None and run.started_at >= whole.get(row.platform, run.started_at)
            is_passed = row.verdict.product is Product.PASSED
            if row.selected is None or (is_last and not is_passed):
                yield row, run

    def gate_subject(self) -> Subject:
        """What ``report --check`` looks at."""
        return Subject(verdicts=[row.verdict for row, _ in self.judged_rows()])


def single_run(run: RunResult) -> CombinedResults:
    return CombinedResults(run=run, origins=[run] * len(run.platforms), reference=run.run_id)


def find_results(
    store: Store,
    source: Path,
    name: str | None,
    expected: Sequence[str] = (),
    *,
    check: bool = False,
) -> CombinedResults:
    """Find the results of a run, or of the newest runs of each platform at exactly one commit.

    ``name`` is a run, a run and its platform, or a commit or a revision of the repository in
    ``source``; by default the latest run. An expected platform without a result of all operators
    gets a row that did not pass. To ``check`` results, and at a commit, every platform is expected.
    """
    commit = None
    if name in (None, LATEST):
        found = single_run(store.load())
    else:
        finder = ReferenceFinder(store.heads(), Repository(source), store.parents)
        commit = finder.commit(name)
        found = _of_commit(store, finder, commit) if commit else _of_run(store, finder, name)
    known = [it.platform for it in found.run.platforms] if check or commit else ()
    whole = {it.platform for it in found.run.platforms if it.selected is None}
    lacking = [it for it in dict.fromkeys([*expected, *known]) if it not in whole]
    return _with_lacking(found, lacking, "commit" if commit else "run")


def _with_lacking(found: CombinedResults, lacking: Sequence[str], of: str) -> CombinedResults:
    """Add a row for each platform that lacks one of all operators."""
    if not lacking:
        return found
    added = [(_missing_result(it, found, of), None) for it in lacking]
    rows = sorted([*added, *found.rows], key=lambda it: _position(it[0].platform))
    run = found.run.model_copy(update={"platforms": tuple(row for row, _ in rows)})
    return replace(found, run=run, origins=[run for _, run in rows])


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
    """The newest run of each platform at a commit, if possible one that has begun.

    Runs of other operators do not replace each other.
    """
    heads = [it for it in finder.heads if commit in (it.commit, it.tip) and not it.dirty]
    if not heads:
        raise _no_run(commit, "cpu")
    heads = [it for it in heads if it.project == heads[0].project]
    places = [(head, it) for head in heads for it in head.begun]
    places += [(head, it) for head in heads for it in head.platforms]
    newest: dict[tuple[str, str | None], str] = {}
    for head, platform in places:
        selected = head.selected.get(platform)
        others = sum(name == platform and it is not None for name, it in newest)
        if selected is None or others < MOST_SELECTED:
            newest.setdefault((platform, selected), head.run_id)
    loaded = {run_id: store.load(run_id) for run_id in dict.fromkeys(newest.values())}
    return _merge({place: loaded[run_id] for place, run_id in newest.items()}, commit)


def combine_runs(runs: Sequence[RunResult], reference: str) -> CombinedResults:
    """Combine the newest row of each platform, if possible one that has begun, on a real device.

    Runs of other operators do not replace each other.
    """
    rows = [(row, run) for run in runs for row in run.platforms]
    rows.sort(
        key=lambda it: (
            it[0].verdict.product is not Product.NOT_RUN,
            not it[0].simulated,
            it[1].started_at,
        ),
        reverse=True,
    )
    newest: dict[tuple[str, str | None], RunResult] = {}
    for row, run in rows:
        others = sum(name == row.platform and it is not None for name, it in newest)
        if row.selected is None or others < MOST_SELECTED:
            newest.setdefault((row.platform, row.selected), run)
    return _merge(newest, reference)


def _merge(newest: Mapping[tuple[str, str | None], RunResult], reference: str) -> CombinedResults:
    """Combine one row of each run, by platform and selected operators."""
    latest = max(newest.values(), key=lambda run: (run.started_at, run.finished_at))
    runs = {run.run_id: run for run in newest.values()}.values()
    if len(runs) == 1:
        return single_run(latest)
    # Sorting keeps the order of the runs: of a platform, all operators first, then the newest.
    known = sorted(newest, key=lambda it: (_position(it[0]), it[1] is not None))
    origins = [newest[it] for it in known]
    update = {
        "platforms": tuple(
            run.platform(name) for (name, _), run in zip(known, origins, strict=True)
        ),
        "started_at": min(run.started_at for run in runs),
        "finished_at": max(run.finished_at for run in runs),
        "engine": latest.engine if len({run.engine for run in runs}) == 1 else "several",
    }
    return CombinedResults(
        run=latest.model_copy(update=update), origins=origins, reference=reference
    )


def _position(platform: str) -> int:
    """The place in the table; results of another version may have other platforms."""
    return [*PLATFORMS, platform].index(platform)


def _no_run(commit: str, platform: str) -> UsageError:
    message = f"commit {commit[:SHORT]}: the store holds no run of it"
    return UsageError(message, remedy=f"Run it: {command('run', platform)}")


def _missing_result(platform: str, found: CombinedResults, of: str) -> PlatformResult:
    """The row of a platform that was expected, and without a result of all operators."""
    selected = [
        f"{run.run_id} ({shorten(row.selected, LONGEST_NAMED)})"
        for row, run in found.rows
        if run and row.platform == platform and row.selected
    ]
    if selected:
        found_none = only_selected(of, selected, command("run", platform, "--select", "all"))
    else:
        found_none = no_result(of, command("run", platform))
    return PlatformResult(
        platform=platform,
        label=PLATFORMS[platform].label if platform in PLATFORMS else platform,
        built=None,
        pytest=None,
        stages=(),
        build_install_s=None,
        pytest_s=None,
        total_s=None,
        verdict=Verdict(product=Product.NOT_RUN, harness=Harness.LOST, evidence=(found_none,)),
        findings=(found_none,),
        environment={},
        artifacts={},
    )
