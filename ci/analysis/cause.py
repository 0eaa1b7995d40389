"""Why the cost of a run changed: a list of contributors, the largest first. Pure.

Logs show the share of some contributors in the change: new or slower translation units, tests,
stages. The others only changed at the same time, and no log gives them a number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from statistics import median
from typing import Any

from ci.analysis.explanation import Contributor, Explanation
from ci.analysis.parts import BuildSide, CauseKind, group_by, group_names, units_of
from ci.analysis.shares import CONFIGURE, LEAST_S, LINK, MeasurePair
from ci.facts import measures
from ci.facts.environment_key import ComponentChange, environment_key
from ci.facts.measures import IMAGE, Benchmark, Quantity
from ci.model.details import UnitKind
from ci.model.results import PlatformResult
from ci.model.verdicts import Grade
from ci.util.text import join_names


def explain(name: str, before: BuildSide, after: BuildSide) -> Explanation:
    """Explain why the measure ``name``, such as ``compile.wall_s``, changed."""
    then, now = before.value(name), after.value(name)
    if then is None or now is None or then == now:
        return Explanation(measure=name, before=then, after=now)
    stage, quantity = measures.stage_and_quantity(name)
    pair = MeasurePair(sides=(before, after), stage=stage, quantity=quantity)
    found = [*pair.shares(), *_circumstances(pair)]
    if all(each.grade is not Grade.LIKELY for each in found):
        suffix = {CauseKind.UNIFORM: ": because of the machine, or of something they all share"}
        found = [each._replace(text=each.text + suffix.get(each.kind, "")) for each in found]
    return Explanation(measure=name, before=then, after=now, contributors=tuple(found))


# Contributors without a share: they changed at the same time

NAMES = 3  # names of each kind in a text, so that it stays one sentence
RATE = 0.05  # of all compilations; same as LISTED
LINES = 0.01  # relative; same as POLICY.exact_minimum, from which the history reports changes
LONGEST = 80  # characters of a trace's name, one terminal line: template names fill screens
TRACED = 0.05  # of the total growth of all units; same as LISTED

# In addition to those of the environment key: build tools, and packages whose speed matters.
_PACKAGES = ("numpy", "Cython", "scikit-build-core", "setuptools", "meson-python")
# The cache's hit rate reports the first, a comparison of two platforms the second.
_REPORTED_ELSEWHERE = ("cache", "platform")


def _circumstances(pair: MeasurePair) -> Iterator[Contributor]:
    """Yield changes that may have affected a measure of the stage."""
    stage, quantity, is_of_tests = pair.stage, pair.quantity, pair.is_of_tests
    before, after = pair.sides
    is_built = stage not in (IMAGE, "generate", CONFIGURE)  # uses the compiler's flags
    if quantity.is_time and is_built and stage != LINK and not is_of_tests:
        yield from _cache_rate(before, after)
        yield from _traces(before, after)
    if quantity is Quantity.WHEEL:
        yield from _units(before, after)
    is_benchmark = isinstance(quantity, Benchmark)
    if quantity is not Quantity.LINES and stage != IMAGE and not (is_of_tests or is_benchmark):
        yield from _lines(before.details.generated, after.details.generated)
    if quantity not in (Quantity.LINES, Quantity.UNITS) and is_built:
        yield from _flags({*before.details.flags}, {*after.details.flags})
    if stage != IMAGE:
        yield from _packages(before.result, after.result)
    for change in environment_key(after.result).changes(environment_key(before.result)):
        name = change.component
        if name not in _REPORTED_ELSEWHERE:
            yield Contributor(CauseKind.ENVIRONMENT, str(change), names=(name,))
    for change in host_changes(before.machines, after.machines):
        yield Contributor(CauseKind.ENVIRONMENT, str(change), names=(change.component,))


_HOST = {"hostname": "host", "kernel": "kernel", "os": "operating system"}


def host_changes(
    before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]
) -> Iterator[ComponentChange]:
    """Yield what differs between the machines of all runs before and all runs after a change.

    These facts are in no environment key: the runs of several equal machines are compared. A host
    name that differs in nearly every run is one of a container, and is no machine's.
    """
    for fact, name in _HOST.items():
        sides = [[str(it[fact]) for it in some if it.get(fact)] for some in (before, after)]
        then, now = (dict.fromkeys(side) for side in sides)
        is_lasting = all(2 * len({*side}) <= len(side) for side in sides)
        if then and now and then.keys().isdisjoint(now) and (is_lasting or fact != "hostname"):
            yield ComponentChange(name, join_names([*then]), join_names([*now]))


def _cache_rate(before: BuildSide, after: BuildSide) -> Iterator[Contributor]:
    then, now = _hit_rate(before), _hit_rate(after)
    if then is not None and now is not None and abs(now - then) >= RATE:
        verb = "fell" if now < then else "rose"
        text = f"cache hits {verb} from {measures.percent(then)} to {measures.percent(now)}"
        yield Contributor(CauseKind.CACHE_RATE, text)


def _hit_rate(side: BuildSide) -> float | None:
    rate = side.result.facts("compiler_cache").get("hit_rate")
    if isinstance(rate, int | float):
        return float(rate)
    parts = side.outputs(UnitKind.COMPILE).values()
    known = [part.cached for part in parts if part.cached is not None]
    return sum(known) / len(known) if known else None


def _traces(before: BuildSide, after: BuildSide) -> Iterator[Contributor]:
    """Yield growth in compiler traces, without a share: the units' seconds already include it."""
    then, now = _traced(before), _traced(after)
    if not then or not now:  # with traces of one side only, everything would look like growth
        return
    # Only the most expensive traces are kept: a missing one took less than all that are listed.
    least_then, least_now = min(then.values()), min(now.values())
    growth = {name: now.get(name, least_now) - then.get(name, least_then) for name in {*then, *now}}
    work = after.work(UnitKind.COMPILE) - before.work(UnitKind.COMPILE)
    least = max(TRACED * abs(work), LEAST_S)
    grown = (name for name in growth if growth[name] > least)
    names = sorted(grown, key=lambda name: (-growth[name], name))
    if names:
        shown = [
            f"{name[:LONGEST]}{'...' if name[LONGEST:] else ''} (+{growth[name]:.1f} s)"
            for name in names
        ]
        text = f"the compiler's time traces grew in {join_names(shown, NAMES)}"
        yield Contributor(CauseKind.TRACE, text, names=tuple(names))


def _traced(side: BuildSide) -> Mapping[str, float]:
    traces = [trace for build in side.builds for trace in build.traced.items()]
    found = group_by(traces, itemgetter(0))
    return {name: median(seconds for _, seconds in traces) for name, traces in found.items()}


def _units(before: BuildSide, after: BuildSide) -> Iterator[Contributor]:
    """Yield new and removed units of a size, without shares: how much each adds is unknown."""
    then, now = units_of(before, after, UnitKind.COMPILE)
    if then and now:
        for group in group_names(sorted(now.keys() - then.keys())):
            yield Contributor(CauseKind.ADDED, group.text("new unit"), names=group.names)
        for group in group_names(sorted(then.keys() - now.keys())):
            yield Contributor(CauseKind.REMOVED, group.text("removed unit"), names=group.names)


def _lines(before: Mapping[str, int], after: Mapping[str, int]) -> Iterator[Contributor]:
    then, now = sum(before.values()), sum(after.values())
    if not then or not now or abs(now / then - 1) < LINES:
        return
    growth = {name: after.get(name, 0) - before.get(name, 0) for name in {**before, **after}}
    names = sorted((name for name in growth if growth[name]), key=lambda n: (-abs(growth[n]), n))
    changes = [(sum(growth[name] for name in group.names), group) for group in group_names(names)]
    change, largest = max(changes, key=lambda pair: abs(pair[0]))
    text = f"{now - then:+,.0f} generated lines, {change:+,.0f} in {largest.text('file')}"
    yield Contributor(CauseKind.LINES, text, names=largest.names)


def _flags(before: set[str], after: set[str]) -> Iterator[Contributor]:
    if not before or not after:
        return
    changes = {"added": sorted(after - before), "removed": sorted(before - after)}
    parts = [f"{verb} {join_names(flags)}" for verb, flags in changes.items() if flags]
    if parts:
        names = (*changes["added"], *changes["removed"])
        text = f"compiler flags changed: {', '.join(parts)}"
        yield Contributor(CauseKind.FLAGS, text, names=names)


def _packages(before: PlatformResult, after: PlatformResult) -> Iterator[Contributor]:
    then, now = before.facts("packages"), after.facts("packages")
    changed = [name for name in _PACKAGES if then.get(name) != now.get(name)]
    if then and now and changed:
        shown = [f"{name} {then.get(name, 'none')} -> {now.get(name, 'none')}" for name in changed]
        text = f"packages changed: {join_names(shown)}"
        yield Contributor(CauseKind.PACKAGES, text, names=tuple(changed))
