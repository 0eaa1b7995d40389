"""What else changed between two sides: it may be why a measure changed, and has no share. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from statistics import median

from ci.analysis.contributor import BuildSide, Contributor, Pair, pytest_stages, units_of
from ci.analysis.environment_key import environment_key
from ci.analysis.measures import IMAGE, Quantity
from ci.analysis.places import groups
from ci.analysis.quantities import percent
from ci.analysis.shifts import Kind, Part, shifts
from ci.details import UnitKind
from ci.results import Grade
from ci.text import first_names

NAMES = 3
RATE = 0.05  # hits of a compiler cache; less is not worth a word
LINES = 0.01  # relative
LONGEST = 80  # characters
TRACED = 0.05  # of what all units together took longer

# Beside those of the environment key: what builds, and what the build or the tests spend time in.
_PACKAGES = ("numpy", "Cython", "scikit-build-core", "setuptools", "meson-python")
_WITHOUT_FLAGS = frozenset({IMAGE, "generate", "configure"})
_WITHOUT_COMPILER = _WITHOUT_FLAGS | {"link"}
# By the cache's rate, and by whoever compares two platforms.
_TOLD_ELSEWHERE = ("cache", "platform")


def circumstances(pair: Pair, stage: str) -> Iterator[Contributor]:
    """What may have changed a measure of the stage."""
    before, after = pair.sides
    is_pytest = stage in pytest_stages(after.result)
    if pair.quantity.is_time and stage not in _WITHOUT_COMPILER and not is_pytest:
        yield from _cache_rate(before, after)
        yield from _traces(before, after)
    if pair.quantity is Quantity.WHEEL:
        yield from _units(before, after)
    if pair.quantity is not Quantity.LINES and stage != IMAGE and not is_pytest:
        yield from _lines(before.generated, after.generated)
    if pair.quantity not in (Quantity.LINES, Quantity.UNITS) and stage not in _WITHOUT_FLAGS:
        yield from _flags(before, after)
    if stage != IMAGE:
        yield from _packages(before, after)
    yield from _environment(before, after)


def _environment(before: BuildSide, after: BuildSide) -> Iterator[Contributor]:
    for change in environment_key(after.result).changes(environment_key(before.result)):
        name = change.partition(" changed")[0]
        if name not in _TOLD_ELSEWHERE:
            yield _likely(Kind.ENVIRONMENT, change, [name])


def _units(before: BuildSide, after: BuildSide) -> Iterator[Contributor]:
    """Of a size: which units it is made of is known, not what each of them adds."""
    then, now = units_of(before, after, UnitKind.COMPILE)
    for names, verb in ((now.keys() - then.keys(), "new"), (then.keys() - now.keys(), "removed")):
        for group in groups(sorted(names)) if then and now else ():
            yield _likely(
                Kind.ADDED if verb == "new" else Kind.REMOVED,
                group.text(f"{verb} unit"),
                group.names,
            )


def _likely(kind: Kind, text: str, names: Iterable[str] = ()) -> Contributor:
    return Contributor(kind=kind, text=text, grade=Grade.LIKELY, names=tuple(names))


def _cache_rate(before: BuildSide, after: BuildSide) -> Iterator[Contributor]:
    then, now = _hit_rate(before), _hit_rate(after)
    if then is None or now is None or abs(now - then) < RATE:
        return
    verb = "fell" if now < then else "rose"
    text = f"cache hits {verb} from {percent(then)} to {percent(now)}"
    yield Contributor(kind=Kind.CACHE_RATE, text=text)


def _hit_rate(side: BuildSide) -> float | None:
    rate = side.result.facts("compiler_cache").get("hit_rate")
    if isinstance(rate, int | float):
        return float(rate)
    known = [part.cached for part in side.outputs(UnitKind.COMPILE).values()]
    told = [cached for cached in known if cached is not None]
    return sum(told) / len(told) if told else None


def _traces(before: BuildSide, after: BuildSide) -> Iterator[Contributor]:
    """What is part of the units' own seconds, so that it gets no share beside them."""
    then, now = _traced(before), _traced(after)
    if not then or not now:  # traces of one side only are all growth
        return
    # Only the most expensive are kept: what one side does not name was less than all it names.
    least_then, least_now = min(then.values()), min(now.values())
    growth = {name: now.get(name, least_now) - then.get(name, least_then) for name in {*then, *now}}
    work = after.work(UnitKind.COMPILE) - before.work(UnitKind.COMPILE)
    least = max(TRACED * abs(work), 0.1)
    names = sorted((name for name in growth if growth[name] > least), key=lambda n: -growth[n])
    if names:
        told = [f"{_short(name)} (+{growth[name]:.1f} s)" for name in names]
        text = f"the compiler's time traces grew at {first_names(told, NAMES)}"
        yield Contributor(kind=Kind.TRACE, text=text, names=tuple(names))


def _short(name: str) -> str:
    """Templates have names that fill screens."""
    return name if len(name) <= LONGEST else f"{name[:LONGEST]}..."


def _traced(side: BuildSide) -> Mapping[str, float]:
    found: dict[str, list[float]] = defaultdict(list)
    for build in side.builds:
        for name, seconds in build.traced.items():
            found[name].append(seconds)
    return {name: median(seconds) for name, seconds in found.items()}


def _lines(before: Mapping[str, int], after: Mapping[str, int]) -> Iterator[Contributor]:
    then, now = sum(before.values()), sum(after.values())
    if not then or not now or abs(now / then - 1) < LINES:
        return
    parts = [{name: Part(amount=n) for name, n in side.items()} for side in (before, after)]
    found = {shift.names[0]: shift.amount for shift in shifts(*parts, noisy=False)}
    names = sorted(found, key=lambda name: (-abs(found[name]), name))
    changes = [(sum(found[name] for name in group.names), group) for group in groups(names)]
    change, largest = max(changes, key=lambda pair: abs(pair[0]))
    text = f"{now - then:+,.0f} generated lines, {change:+,.0f} in {largest.text('file')}"
    yield _likely(Kind.LINES, text, largest.names)


def _flags(before: BuildSide, after: BuildSide) -> Iterator[Contributor]:
    if not before.flags or not after.flags:
        return
    added, removed = sorted(after.flags - before.flags), sorted(before.flags - after.flags)
    told = [
        f"{verb} {first_names(flags)}"
        for verb, flags in (("added", added), ("removed", removed))
        if flags
    ]
    if told:
        yield _likely(Kind.FLAGS, f"compiler flags changed: {', '.join(told)}", [*added, *removed])


def _packages(before: BuildSide, after: BuildSide) -> Iterator[Contributor]:
    then, now = (side.result.facts("packages") for side in (before, after))
    if not then or not now:
        return
    changed = [name for name in _PACKAGES if then.get(name) != now.get(name)]
    told = [f"{name} {then.get(name, 'none')} -> {now.get(name, 'none')}" for name in changed]
    if told:
        yield _likely(Kind.PACKAGES, f"packages changed: {first_names(told)}", changed)
