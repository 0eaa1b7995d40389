"""The history of a platform from its runs: the changes within and between environments. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean, median

from ci.analysis.changes import POLICY, SeriesFinding, analyze, judge_step
from ci.analysis.conditions import Conditions, conditions
from ci.analysis.level_changes import (
    IN_DOUBT,
    IN_USE,
    LATEST,
    TOLERANCE,
    Environment,
    History,
    KeyChange,
    LevelChange,
    Shift,
    is_exact,
    sort_by_specificity,
    spread,
)
from ci.analysis.parts import group_by
from ci.analysis.series_judge import SeriesJudge
from ci.analysis.stage_order import place_of
from ci.facts.acceptance import Acceptance
from ci.facts.environment_key import ALL_OPERATORS, EnvironmentKey
from ci.facts.measures import CONDITIONS, MISSES, REFERENCE, is_benchmark, is_of, is_worse
from ci.store.rows import RunMeasures
from ci.util.text import commit_name


def history(
    rows: Sequence[RunMeasures],
    keys: Mapping[str, EnvironmentKey],
    accepted: Sequence[Acceptance] = (),
    *,
    stage: str | None = None,
    text: str | None = None,
) -> History:
    """Judge the runs of one platform, oldest first; ``accepted`` has its accepted changes.

    With ``stage``, report only the measures of that stage; with ``text``, those whose quantity
    contains it. Runs without any measure are left out: often they did not record their environment
    either.
    """
    rows = [row for row in rows if row.values]
    by_key = group_by(rows[::-1], lambda row: row.key)  # the key of the newest run comes first
    grouped = {key: tuple(runs[::-1]) for key, runs in by_key.items()}
    # Many runs of selected operators do not hide those of the whole suite.
    whole = [row for row in rows if keys[row.key].selection == ALL_OPERATORS]
    recent = {row.key for row in (*rows[-IN_USE:], *whole[-IN_USE:])}
    grouped = dict(sorted(grouped.items(), key=lambda it: keys[it[0]].selection != ALL_OPERATORS))
    order = {row.run_id: place for place, row in enumerate(rows)}
    environments: list[Environment] = []
    changes: list[KeyChange] = []
    for key, found in _findings({key: grouped[key] for key in grouped if key in recent}).items():
        judge = SeriesJudge(grouped[key], found, accepted)
        shown = [name for name in found if is_of(name, stage, text)]
        series, shifts = tuple(map(judge.series, shown)), tuple(judge.shifts(shown))
        environment = Environment(key=keys[key], runs=grouped[key], series=series, shifts=shifts)
        environments.append(environment)
    past = [Environment(key=keys[it], runs=grouped[it]) for it in grouped if it not in recent]
    for change, before in _key_changes(rows, keys):
        if change.run.key in recent and keys[change.run.key].is_comparable(keys[before]):
            first = order[change.run.run_id]
            earlier = [row for row in grouped[before] if order[row.run_id] < first]
            found_rises = _environment_rises(earlier, grouped[change.run.key], accepted)
            rises = [rise for rise in found_rises if is_of(rise.measure, stage, text)]
            own = sort_by_specificity([it for it in rises if it.with_environment])
            change = replace(change, rises=tuple(own))
            if late := sort_by_specificity([it for it in rises if not it.with_environment]):
                place = [it.runs[0].key for it in environments].index(change.run.key)
                known = (*environments[place].shifts, Shift(changes=tuple(late)))
                environments[place] = replace(environments[place], shifts=known)
        changes.append(change)
    in_order = tuple(changes)[::-1]
    return _move_rises_in_one_commit(
        History(environments=tuple(environments), past=tuple(past), key_changes=in_order)
    )


def _move_rises_in_one_commit(found: History) -> History:
    """Make the rises between two runs of one commit those of the environment."""
    for _, shift in found.shifts:
        change = shift.headline
        if change.is_rise and change.is_in_one_commit:
            same = f"sources unchanged: both runs are of {commit_name(change.run.commit)}"
            found = found.move_to_environment(shift, same)
    return found


def _findings(grouped: Mapping[str, Sequence[RunMeasures]]) -> dict[str, dict[str, SeriesFinding]]:
    """Findings by key and measure.

    One analysis covers all, since each can raise a false alarm. Benchmarks are a family of their
    own: thousands of them do not make the limits of the stages stricter.
    """
    series: dict[tuple[str, str], list[float]] = {}
    given: dict[tuple[str, str], Conditions] = {}
    for key, rows in grouped.items():
        names = dict.fromkeys(name for row in rows for name in row.values if name not in CONDITIONS)
        places = {name: [at for at, row in enumerate(rows) if name in row.values] for name in names}
        for name, some in places.items():
            series[key, name] = [rows[at].values[name] for at in some]
        speeds, misses = ([row.values.get(name) for row in rows] for name in (REFERENCE, MISSES))
        all_runs = conditions([row.started_at for row in rows], speeds, misses)
        # Most series have a value of every run: they share what is computed of the conditions.
        taken = {some: all_runs.take(some) for some in {*map(tuple, places.values())}}
        given |= {(key, name): taken[tuple(some)] for name, some in places.items()}
    kinds = group_by(series, lambda pair: is_benchmark(pair[1]))
    found: dict[tuple[str, str], SeriesFinding] = {}
    for pairs in kinds.values():
        exact = {pair for pair in pairs if is_exact(pair[1])}
        found |= analyze({pair: series[pair] for pair in pairs}, exact, given, len(kinds))
    findings: dict[str, dict[str, SeriesFinding]] = {key: {} for key in grouped}
    for key, name in sorted(series, key=lambda pair: place_of(pair[1])):
        findings[key][name] = found[key, name]
    return findings


def _key_changes(
    rows: Sequence[RunMeasures], keys: Mapping[str, EnvironmentKey]
) -> Iterator[tuple[KeyChange, str]]:
    """Compare each key, when it first appears, with the most similar earlier one.

    Yield the change with the digest of the earlier key.
    """
    known: dict[str, EnvironmentKey] = {}  # least recently used first
    for row in rows:
        now = keys[row.key]
        if known.pop(row.key, None) is None:
            # A simulated device is not a change of a real one, nor a selection one of the suite.
            alike = {
                it: key
                for it, key in known.items()
                if (key.platform, key.selection) == (now.platform, now.selection)
            }
            if alike:
                before = min(reversed(alike), key=lambda it: len(now.changes(alike[it])))
                changes = tuple(map(str, now.changes(alike[before])))
                yield KeyChange(run=row, changes=changes), before
        known[row.key] = now


def _environment_rises(
    earlier: Sequence[RunMeasures],
    since: Sequence[RunMeasures],
    accepted: Sequence[Acceptance],
) -> Iterator[LevelChange]:
    """Yield the measures that got worse from the last runs of one environment to another's first.

    If the first few of the other are as fast, the rise came later, and is not of the environment.
    Counts and sizes are left out: a new version of a library brings its own.
    """
    names = [name for name in since[0].values if not is_exact(name) and name not in CONDITIONS]
    kinds = Counter(map(is_benchmark, names))
    for name in names:
        before = [row.values[name] for row in earlier if name in row.values][-LATEST:]
        runs = [row for row in since if name in row.values]
        after = [row.values[name] for row in runs]
        late = _runs_before_rise(before, after[:LATEST])
        series = len(kinds) * kinds[is_benchmark(name)]
        point = judge_step([*before, *after[:late]], after[late:][:LATEST], series)
        if point is None or not is_worse(name, point.before, point.after):
            continue
        first = runs[late]
        own = (it for it in accepted if it.measure == name and _begins_with(it, first))
        known = next(own, None)
        is_back = median(after[-POLICY.confirm :]) < (point.before + point.after) / 2
        yield LevelChange(
            measure=name,
            before_run=runs[late - 1] if late else earlier[-1],
            run=first,
            place=since.index(first),
            point=point,
            runs_since=len(after) - late,
            accepted=known if known and known.covers(point.after, TOLERANCE) else None,
            undone=runs[-1] if late and is_back else None,
            with_environment=not late,
        )


def _runs_before_rise(before: Sequence[float], after: Sequence[float]) -> int:
    """The number of first runs of an environment that are certainly not of its higher level.

    0 if there are enough of them for a series of their own, or only one, which may be an outlier.
    """
    if not before or not after:
        return 0
    low, high = median(before), median(after)
    count = next((at for at, it in enumerate(after) if it >= (low + high) / 2), 0)
    if not 1 < count < POLICY.confirm:
        return 0
    distance = median(after[count:]) - fmean(after[:count])
    return count if distance > IN_DOUBT * spread(before) / count**0.5 else 0


def _begins_with(accepted: Acceptance, run: RunMeasures) -> bool:
    return run.run_id == accepted.run or (run.commit is not None and run.commit == accepted.commit)
