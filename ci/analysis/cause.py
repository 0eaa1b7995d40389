"""Why the cost of a build changed between two runs. Pure.

Nothing is claimed that the data does not show: what was counted is a fact, what merely changed at
the same time is likely, and what is left over is said to be unexplained. The shares of all
contributors add up to the change.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ci.analysis.circumstances import circumstances
from ci.analysis.contributor import BuildSide, Contributor, Pair
from ci.analysis.measures import Quantity, stage_and_quantity
from ci.analysis.quantities import amount, headline
from ci.analysis.shares import LISTED, shares
from ci.analysis.shifts import Kind
from ci.results import Grade

MOST = 5  # shares in a text; all of them are in the contributors
SPREAD = 0.1  # of the change

__all__ = ["BuildSide", "Contributor", "Explanation", "Kind", "explain"]


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
