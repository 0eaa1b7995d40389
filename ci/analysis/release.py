"""The facts about a release: its runs, the last release, and what changed on each platform."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from ci.analysis.combined import CombinedResults, combine_runs, find_results
from ci.analysis.comparison import PlatformComparison, compare
from ci.analysis.repository import Repository
from ci.analysis.times import MeasureChange, MissingTimes, Times
from ci.errors import CiError, UsageError
from ci.facts.exported_symbols import lost_symbols
from ci.facts.measures import (
    TOTAL,
    Quantity,
    growth,
    is_benchmark,
    measure_key,
    measure_name,
    stage_and_quantity,
)
from ci.facts.operator_pairs import executed_pairs, is_proof
from ci.gates.regression import ChangeKind, Judgement
from ci.gates.release_facts import (
    NO_RISE,
    BaselineFacts,
    CostRise,
    PairCoverage,
    PlatformFacts,
    ReleaseFacts,
)
from ci.model.decision import DecidedRun
from ci.model.outcomes import Outcome
from ci.model.release import ReleasePolicy
from ci.model.results import Direction, PlatformResult, RunResult
from ci.store.pool import RunPool
from ci.util.text import SHORT, first_line, join_names

NEW_STAGE = Judgement.TOO_LITTLE_DATA  # of the cost of a stage that only one of two runs has


@dataclass(frozen=True, kw_only=True)
class ReleaseQuestion:
    """What to decide about."""

    project: str
    names: Sequence[str]
    """The runs: ids, commits or other revisions, or paths of results."""
    source: Path
    """The project's folder, whose git repository has the tags."""
    policy: ReleasePolicy
    build_stages: Mapping[str, Collection[str]]
    """The stages that build, by platform."""
    tag: str | None = None
    against: str | None = None
    """The run to compare with, in one of the forms of ``names``; by default the last release."""


def collect_release(pool: RunPool, question: ReleaseQuestion) -> ReleaseFacts:
    """Collect what the rules of a release are about.

    Raises ``UsageError`` for runs that do not exist, or are of another project.
    """
    combined = _find_runs(pool, question, question.names)
    repository = Repository(question.source)
    tag_commit = repository.tag_commit(question.tag) if question.tag else None
    found = {row.platform: (row, run) for row, run in reversed([*combined.rows]) if run}
    names = dict.fromkeys((*question.policy.platforms, *sorted(found)))
    rows = {name: found[name] for name in names if name in found}
    commit = tag_commit or next((run.commit for _, run in rows.values() if run.commit), None)
    baseline = _find_baseline(pool, question, repository, commit)
    failed: dict[str, list[str]] = {name: [] for name in rows}
    for row, run in combined.judged_rows():
        if run and row.selected is not None and row is not rows[row.platform][0]:
            failed[row.platform].append(f"{run.run_id} ({row.selected})")
    return ReleaseFacts(
        project=question.project,
        tag=question.tag,
        tag_commit=tag_commit,
        platforms={
            name: PlatformFacts(
                run=run,
                result=row,
                baseline=_compare_with(pool, question, baseline, row, run),
                skips=_skips(pool, row, run),
                failed_selections=failed[name],
            )
            for name, (row, run) in rows.items()
        },
        runs=tuple(_decided_runs(pool, combined)),
        pairs=_pairs(pool, question.policy, rows.values()),
    )


def _find_runs(pool: RunPool, question: ReleaseQuestion, names: Sequence[str]) -> CombinedResults:
    """Find the named runs, and combine their newest rows."""
    found: dict[str, RunResult] = {}
    for name in names:
        for run in _named_runs(pool, question.source, name):
            if run.project != question.project:
                message = f"{name}: run {run.run_id}: got project '{run.project}', expected"
                raise UsageError(
                    f"{message} '{question.project}'",
                    remedy="Name the configuration of that project: --config FILE",
                )
            rows = {it.platform: it for it in run.platforms}
            if known := found.get(run.run_id):
                rows = {it.platform: it for it in known.platforms} | rows
            found[run.run_id] = run.model_copy(update={"platforms": tuple(rows.values())})
    return combine_runs([*found.values()], join_names(names))


def _named_runs(pool: RunPool, source: Path, name: str) -> list[RunResult]:
    path = Path(name)
    if path.exists():
        return pool.add(path)
    if pool.store is None:
        message = f"got '{name}', which is no file or folder; {pool.results} has no store of runs"
        raise UsageError(message, remedy="Name results.json files, or folders that have some.")
    found = find_results(pool.store, source, name)
    return [*{run.run_id: run for run in found.origins if run}.values()]


def _decided_runs(pool: RunPool, combined: CombinedResults) -> list[DecidedRun]:
    platforms: dict[str, list[str]] = {}
    for row, run in combined.rows:
        if run:
            platforms.setdefault(run.run_id, []).append(row.platform)
    return [
        DecidedRun(run_id=run_id, sha256=pool.digest(run_id), platforms=tuple(dict.fromkeys(names)))
        for run_id, names in sorted(platforms.items())
    ]


def _skips(pool: RunPool, row: PlatformResult, run: RunResult) -> Mapping[str, int] | None:
    """Count the skipped tests by reason; ``None`` if tests are counted and not recorded."""
    outcomes = pool.store_of(run.run_id).outcomes(run.run_id, row.platform)
    if not outcomes.names:
        return None
    skipped = (it for it in outcomes.endings if it.state.outcome is Outcome.SKIPPED)
    return Counter(it.state.reason or first_line(it.message or "no reason") for it in skipped)


def _pairs(
    pool: RunPool, policy: ReleasePolicy, rows: Iterable[tuple[PlatformResult, RunResult]]
) -> PairCoverage | None:
    """What the platforms of the release execute; a simulated device proves nothing."""
    if policy.unexecuted_pairs is None:
        return None
    known: set[tuple[str, str]] = set()
    executed: set[tuple[str, str]] = set()
    for row, run in rows:
        outcomes = pool.store_of(run.run_id).outcomes(run.run_id, row.platform)
        found = executed_pairs(outcomes)
        known |= {(it.overload, it.dtype) for it in (*found.executed, *found.idle)}
        if row.platform in policy.platforms and not row.simulated and is_proof(row.verdict):
            executed |= {(it.overload, it.dtype) for it in found.executed}
    if not known:
        return None
    names = [f"{overload} {dtype}" for overload, dtype in sorted(known - executed)]
    return PairCoverage(known=len(known), unexecuted=names)


# The last release


def _find_baseline(
    pool: RunPool, question: ReleaseQuestion, repository: Repository, commit: str | None
) -> CombinedResults | str:
    """The results of the last release, or the reason why there are none."""
    if question.against:
        return _find_runs(pool, question, [question.against])
    remedy = "name a run with --against"
    if commit is None:
        return f"the commit is unknown, and so is the last release: {remedy}"
    tag = repository.last_tag(commit, question.policy.tags)
    before = tag and repository.tag_commit(tag)
    if before is None:
        pattern = f"'{question.policy.tags}'"
        return f"git finds no tag {pattern} before commit {commit[:SHORT]}: {remedy}"
    try:
        return _find_runs(pool, question, [before])
    except UsageError as error:
        return f"{tag}: {first_line(str(error))}: {remedy}"


def _compare_with(
    pool: RunPool,
    question: ReleaseQuestion,
    baseline: CombinedResults | str,
    row: PlatformResult,
    run: RunResult,
) -> BaselineFacts | str:
    """What changed on a platform since the last release, or why there is nothing to compare."""
    if isinstance(baseline, str):
        return baseline
    # Only named runs may have selected operators: they cannot be compared with all.
    earlier = (
        own
        for base, own in baseline.rows
        if base.platform == row.platform and (question.against or not base.selected)
    )
    base = next(filter(None, earlier), None)
    if base is None:
        return f"the last release has no run of {row.platform} as a whole: name one with --against"
    if base.run_id == run.run_id:
        return f"run {base.run_id} would be compared with itself: name another one with --against"
    names = [f"{it.run_id}/{row.platform}" for it in (base, run)]
    try:
        store = pool.store_of(base.run_id, run.run_id)
        found = compare(lambda: nullcontext(store), question.source, *names)
    except CiError as error:
        fault = [str(error)]
        return BaselineFacts(run_id=base.run_id, gaps=fault, untimed=fault, unread_wheels=fault)
    unlogged = [
        f"run {run_id} has no per-test log"
        for run_id in (base.run_id, run.run_id)
        if not store.outcomes(run_id, row.platform).names
    ]
    gaps = [*unlogged, *found.gate_subject().gaps]
    stages = question.build_stages.get(row.platform, ())
    changes = _changes(base.run_id, gaps, found.platforms[0], stages, question.policy)
    if question.policy.removed_symbols is None:
        return changes
    folders = [pool.folder(it.run_id) for it in (base, run)]
    lost = lost_symbols(base.platform(row.platform), row, folders)
    return replace(changes, removed_symbols=lost.removed, unread_wheels=lost.gaps)


def _changes(
    base: str,
    gaps: Sequence[str],
    found: PlatformComparison,
    build_stages: Collection[str],
    policy: ReleasePolicy,
) -> BaselineFacts:
    times = found.times
    untimed = times.reasons if isinstance(times, MissingTimes) else ()
    changes = times.changes if isinstance(times, Times) else ()
    benchmarks = [it for it in changes if is_benchmark(it.measure)]
    lost: list[str] = []
    if isinstance(times, Times):
        gone = times.base.values.keys() - times.head.values.keys()
        lost = sorted(measure_name(it) for it in gone if is_benchmark(it))
    return BaselineFacts(
        run_id=base,
        gaps=gaps,
        regressions=_regressions(found, changes, build_stages, policy),
        untimed=untimed,
        build=_build_rise(times, build_stages) if isinstance(times, Times) else None,
        benchmarks=[*map(_benchmark_rise, benchmarks)],
        lost_benchmarks=lost,
    )


def _regressions(
    found: PlatformComparison,
    changes: Sequence[MeasureChange],
    build_stages: Collection[str],
    policy: ReleasePolicy,
) -> list[str]:
    """All regressions but those of costs that have a limit of their own."""

    def is_limited(measure: str) -> bool:
        if is_benchmark(measure):
            return policy.benchmark_percent is not None
        stage, quantity = stage_and_quantity(measure)
        is_build = quantity.is_time and stage in (TOTAL, *build_stages)
        return is_build and policy.build_cost_percent is not None

    texts = []
    if found.tests and found.tests.regression:
        kinds = (it for it in ChangeKind if it.regression and found.tests.of(it))
        texts += [found.tests.headline(it) for it in kinds]
    elif found.ended_worse:
        texts.append(f"{found.base.standing} before, now {found.head.standing}")
    texts += [
        it.text
        for it in changes
        if it.judgement is Judgement.REGRESSION and not is_limited(it.measure)
    ]
    return texts


def _build_rise(times: Times, stages: Collection[str]) -> CostRise | None:
    """The rise of the CPU seconds of all stages that build; a new stage is a rise."""
    names = {measure_key(stage, Quantity.CPU): stage for stage in stages}
    judged = {it.measure: it for it in times.changes if it.measure in names}
    levels = {name: (it.before, it.after) for name, it in judged.items()}
    for name in names:
        pair = times.base.values.get(name, 0.0), times.head.values.get(name, 0.0)
        if name not in judged and any(pair):
            levels[name] = pair
    before = sum(it for it, _ in levels.values())
    if not before:
        return None
    judgements = {it: judged[it].judgement if it in judged else NEW_STAGE for it in levels}
    counting = [levels[it] for it in levels if judgements[it] not in NO_RISE]
    after = sum(it for _, it in levels.values())
    return CostRise(
        text=f"CPU seconds of {', '.join(map(names.__getitem__, levels))}"
        f" {growth(before, after, Quantity.CPU)}",
        relative=sum(now - then for then, now in counting or levels.values()) / before,
        judgement=min(
            [it for it in judgements.values() if it not in NO_RISE] or judgements.values(),
            key=[*Judgement].index,
        ),
    )


def _benchmark_rise(change: MeasureChange) -> CostRise:
    _, quantity = stage_and_quantity(change.measure)
    sign = -1 if quantity.direction is Direction.HIGHER else 1
    return CostRise(
        text=change.text, relative=sign * (change.relative or 0.0), judgement=change.judgement
    )
