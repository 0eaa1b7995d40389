"""The page of a platform: its measures and tests over all runs, and their changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ci.analysis.flaky import FlakyTest, find_flaky_tests
from ci.analysis.level_changes import Environment, Series
from ci.facts.environment_key import NONE, EnvironmentKey
from ci.facts.measures import Benchmark, is_benchmark, measure_name, stage_and_quantity
from ci.gates.regression import Judgement
from ci.model.outcomes import Outcome
from ci.report.changes import KINDS, accepted_text, change_status
from ci.report.dashboard.collection import NO_REASON, Collection
from ci.report.history_report import HistoryReport
from ci.store.rows import RunMeasures

if TYPE_CHECKING:
    from ci.store.store import Store

DIGITS = 6  # of a shown value, more than a screen or a table has
SKIP_RUNS = 60  # whose skip reasons are counted: 5 ms for each, and 0.1 MB of memory
MOST_PLOTTED = 100  # of one page: each takes 1 KB for 100 runs
MOST_REASONS = 12  # in one plot; the rest is "other"
# The measures that a page shows first, those that it has.
FIRST = ("total.wall_s", "install.wall_s", "compile.wall_s", "pytest.wall_s", "install.peak_bytes")


@dataclass(frozen=True, kw_only=True)
class PlatformPage:
    """What the page shows beside its plots."""

    platform: str
    label: str
    report: HistoryReport
    flaky: Sequence[FlakyTest]
    accepted: tuple[str, ...]
    data: Mapping[str, Any]
    """The series, for the script."""


def platform_page(store: Store, found: Collection, name: str) -> PlatformPage:
    record = found.histories[name]
    accepted = {
        change.accepted: None
        for _, shift in record.history.shifts
        for change in shift.changes
        if change.accepted
    }
    return PlatformPage(
        platform=name,
        label=found.label(name),
        report=HistoryReport(record),
        flaky=find_flaky_tests(store, found.platform(name), found.project),
        accepted=tuple(
            f"{accepted_text(it)}: {it.reason} ({it.who}, {it.date})" for it in accepted
        ),
        data=_data(store, found, name),
    )


def _data(store: Store, found: Collection, name: str) -> dict[str, Any]:
    results, order = found.results[name], {run.run_id: n for n, run in enumerate(found.runs)}
    run_ids = [run.run_id for run in found.runs if run.run_id in results]
    line = [run.run_id for run in found.line if run.run_id in results]
    rows = {row.run_id: row for row in found.measured[name]}
    digests = [*dict.fromkeys(rows[it].key for it in line if it in rows)]
    digests += [it for it in dict.fromkeys(row.key for row in rows.values()) if it not in digests]
    machines: dict[str, int] = {}
    for digest in digests:
        machines.setdefault(_machine(found.keys[digest]), len(machines))
    places = {run_id: n for n, run_id in enumerate(run_ids)}
    on_line = {run_id: n for n, run_id in enumerate(line)}
    shown = _shown_measures(found, name)
    return {
        "platform": name,
        "label": found.label(name),
        "runs": [order[run_id] for run_id in run_ids],
        "line": [places[run_id] for run_id in line],
        "product": [results[run_id].product for run_id in run_ids],
        "counts": _counts(found, name, run_ids),
        "skips": _skips(store, found.platform(name), line),
        "environments": [*_environments(found, digests, machines)],
        "machines": [*machines],
        "environment": [
            digests.index(rows[run_id].key) if run_id in rows else -1 for run_id in run_ids
        ],
        "measures": [*_measures([rows.get(run_id) for run_id in run_ids], shown)],
        "levels": [it for it in _levels(found, name, on_line, digests) if it["measure"] in shown],
        "marks": [it for it in _marks(found, name, on_line) if it["measure"] in shown],
        "first": [*dict.fromkeys((*_alarming(found, name), *FIRST))],
    }


def _alarming(found: Collection, name: str) -> Iterator[str]:
    """The measures that alarm: a page that does not show them contradicts the overview."""
    for alarm in found.alarms:
        yield from (it.change.measure for it in alarm.rows if it.platform == name)
    for _, shift in found.histories[name].history.shifts:
        if shift.judgement is Judgement.REGRESSION:
            yield shift.headline.measure


def _counts(found: Collection, name: str, run_ids: Sequence[str]) -> dict[str, list[int | None]]:
    counts = [found.results[name][run_id].counts for run_id in run_ids]
    names = dict.fromkeys(key for row in counts for key in row)
    columns = {key: [row.get(key) for row in counts] for key in names}
    return {key: column for key, column in columns.items() if any(column)}


def _skips(store: Store, name: str, line: Sequence[str]) -> dict[str, Any]:
    """Skips by reason in the newest runs of the branch."""
    newest = line[-SKIP_RUNS:]
    found = []
    for run_id in newest:
        endings = store.outcomes(run_id, name).endings
        counted = Counter(map(id, endings))  # equal endings are one object
        reasons: Counter[str] = Counter()
        for ending in {id(it): it for it in endings}.values():
            if ending.state.outcome is Outcome.SKIPPED:
                reasons[ending.state.reason or NO_REASON] += counted[id(ending)]
        found.append(reasons)
    most = [reason for reason, _ in sum(found, Counter[str]()).most_common(MOST_REASONS)]
    series = {reason: [counts[reason] for counts in found] for reason in most}
    other = [counts.total() - sum(counts[it] for it in most) for counts in found]
    if any(other):
        series["other"] = other
    return {"from": len(line) - len(newest), "reasons": series}


def _machine(key: EnvironmentKey) -> str:
    """The kind of machine, with its devices: a fleet of equal machines is one."""
    return "; ".join(it for it in (key.machine, key.devices) if it != NONE)


def _environments(
    found: Collection, digests: Sequence[str], machines: Mapping[str, int]
) -> Iterator[dict[str, Any]]:
    """The environments; those that differ only in the cache, which has symbols, share a band."""
    bands: dict[EnvironmentKey, int] = {}
    for digest in digests:
        key = found.keys[digest]
        band = bands.setdefault(replace(key, cache=""), len(bands))
        machine = machines[_machine(key)]
        yield {"text": str(key), "cache": key.cache, "band": band, "machine": machine}


def _shown_measures(found: Collection, name: str) -> Container[str]:
    """All measures of stages, and of the benchmarks those that changed, then the first ones."""
    stages = {it for row in found.measured[name] for it in row.values if not is_benchmark(it)}
    history = found.histories[name].history
    changed = [
        change.measure
        for _, shift in history.shifts
        for change in sorted(shift.changes, key=lambda it: not it.judgement.is_open)
    ]
    series = [it.measure for environment in history.environments for it in environment.series]
    known = dict.fromkeys([*_alarming(found, name), *changed, *series])
    benchmarks = [it for it in known if is_benchmark(it)]
    return {*stages, *benchmarks[:MOST_PLOTTED]}


def _measures(
    rows: Sequence[RunMeasures | None], shown: Container[str]
) -> Iterator[dict[str, Any]]:
    names = dict.fromkeys(it for row in rows if row for it in row.values if it in shown)
    for name in names:
        stage, quantity = stage_and_quantity(name)
        yield {
            "name": name,
            "title": measure_name(name),
            "stage": stage,
            "quantity": quantity.label,
            "unit": quantity.unit if isinstance(quantity, Benchmark) else quantity.value,
            "values": [_rounded(row.values.get(name)) if row else None for row in rows],
        }


def _rounded(value: float | None) -> float | int | None:
    if value is None:
        return None
    return int(value) if value == int(value) else float(f"{value:.{DIGITS}g}")


def _levels(
    found: Collection, name: str, order: Mapping[str, int], digests: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """The levels between changes, with the places of their first and last runs on the line."""
    for environment in found.histories[name].history.environments:
        key = digests.index(environment.runs[0].key)
        for series in environment.series:
            for first, last, level in _segments(environment, series):
                yield {
                    "measure": series.measure,
                    "environment": key,
                    "from": order[first],
                    "to": order[last],
                    "level": _rounded(level),
                }


def _segments(environment: Environment, series: Series) -> Iterator[tuple[str, str, float]]:
    runs = [run.run_id for run in environment.runs if series.measure in run.values]
    changes = series.finding.changes
    begins = [0, *(change.index for change in changes), len(runs)]
    levels = [*(change.before for change in changes), series.level]
    if changes:
        levels[-1] = changes[-1].after
    for level, (begin, end) in zip(levels, pairwise(begins), strict=True):
        if begin < end:
            yield runs[begin], runs[end - 1], level


def _marks(found: Collection, name: str, order: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    record = found.histories[name]
    for _, shift in record.history.shifts:
        cause = record.cause_of(shift.headline)
        for change in shift.changes:
            texts = (change.text, change_status(change), cause.causes if cause else None)
            yield {
                "measure": change.measure,
                "at": order[change.run.run_id],
                "kind": "accepted rise" if change.accepted else KINDS[change.judgement],
                "text": "; ".join(filter(None, texts)),
            }
