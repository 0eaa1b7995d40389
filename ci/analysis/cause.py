"""Why the cost of a build changed between two runs. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from statistics import median

from ci.analysis.contributor import BuildSide, Contributor, Pair, groups, pytest_stages, units_of
from ci.analysis.shares import LISTED, shares
from ci.analysis.shifts import Kind, Part, shifts
from ci.facts.environment_key import environment_key
from ci.facts.measures import IMAGE, Quantity, amount, headline, percent, stage_and_quantity
from ci.model.details import UnitKind
from ci.model.results import Grade
from ci.util.text import first_names

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


MOST = 5  # shares in a text; all of them are in the contributors
SPREAD = 0.1  # of the change


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """A change of one measure, and what it is made of, the largest first."""

    measure: str
    before: float | None
    after: float | None
    contributors: tuple[Contributor, ...] = ()

    @property
    def change(self) -> float:
        return 0.0 if self.before is None or self.after is None else self.after - self.before

    @property
    def headline(self) -> str:
        """``compile +38 s (+21 %)``."""
        if self.before is None or self.after is None:
            return f"{self.measure} was not measured on both sides"
        return headline(self.measure, self.before, self.after)

    @property
    def causes(self) -> str:
        """What comes behind the headline; empty where there is nothing to say."""
        contexts = [each for each in self.contributors if each.share is None]
        facts = [each.text for each in contexts if each.grade is Grade.FACT]
        likely = [each.text for each in contexts if each.grade is Grade.LIKELY]
        shares = ", ".join(self._shares())
        told = [shares, *facts, *(f"at the same time: {text}" for text in likely[:1]), *likely[1:]]
        return "; ".join(text for text in told if text)

    @property
    def text(self) -> str:
        between = ", " if self._listed() else "; "
        return between.join(text for text in (self.headline, self.causes) if text)

    def _listed(self) -> list[tuple[float, Contributor]]:
        """What is worth a word, with its share; what is spread over many is mostly noise."""
        shares = [(each.share, each) for each in self.contributors if each.share is not None]
        least = {Kind.REST: SPREAD, Kind.UNEXPLAINED: SPREAD}
        change = abs(self.change)
        return [
            (share, each)
            for share, each in shares
            if abs(share) > change * least.get(each.kind, LISTED)
        ]

    def _shares(self) -> Iterator[str]:
        """``31 s of it in 4 new units``; with signs where not all go the same way."""
        _, quantity = stage_and_quantity(self.measure)
        listed = self._listed()
        one_way = all(share * self.change > 0 for share, _ in listed)
        nothing_known = [each.kind for _, each in listed] == [Kind.UNEXPLAINED]
        # Noise that goes the other way, and is not worth a word, must not make them more than all.
        most = abs(self.change) / sum(abs(share) for share, _ in listed) if listed else 1.0
        scale = min(1.0, most) if one_way else 1.0
        for index, (share, each) in enumerate(listed[:MOST]):
            of_it = " of it" if one_way and not index else ""
            size = share * scale
            told = amount(abs(size), quantity) if one_way else amount(size, quantity, "+")
            # Units are counted in the words.
            in_words = nothing_known or quantity is Quantity.UNITS
            yield each.text.removeprefix("in ") if in_words else f"{told}{of_it} {each.text}"
        if len(listed) > MOST:
            yield f"and {len(listed) - MOST} more"


def explain(name: str, before: BuildSide, after: BuildSide) -> Explanation:
    """Why the measure ``name`` (``compile.wall_s``) is not what it was."""
    then, now = before.value(name), after.value(name)
    stage, quantity = stage_and_quantity(name)
    pair = Pair(before=before, after=after, quantity=quantity)
    if then is None or now is None or then == now:
        return Explanation(measure=name, before=then, after=now)
    found = [*shares(pair, stage, now - then), *circumstances(pair, stage)]
    if all(contributor.grade is not Grade.LIKELY for contributor in found):
        found = [*map(_without_circumstances, found)]
    return Explanation(measure=name, before=then, after=now, contributors=tuple(found))


def _without_circumstances(contributor: Contributor) -> Contributor:
    if contributor.kind is not Kind.UNIFORM:
        return contributor
    return replace(contributor, text=f"{contributor.text}: the machine, or what all of them share")
