"""A change of one measure in words, with its contributors. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ci.analysis.parts import CauseKind
from ci.facts import measures
from ci.facts.measures import Quantity
from ci.model.verdicts import Grade

MOST = 5  # shares in a text, so that it stays one sentence; the contributors are complete
LISTED = 0.05  # of the change; a smaller share explains too little and is added to the rest
SPREAD = 0.1  # of the change; twice LISTED, as a change spread over many is mostly noise
LAST = (CauseKind.REST, CauseKind.UNEXPLAINED)  # listed last, even if their shares are large


class Contributor(NamedTuple):
    """One reason for a change."""

    kind: CauseKind
    text: str
    """The text after the amount: ``in 4 new units of the triton backend``."""
    share: float | None = None
    """Its part of the change, in the unit of the measure; ``None`` if no log shows it."""
    names: tuple[str, ...] = ()
    """The names of its units, files, tests, flags or parts of the environment."""

    @property
    def amount(self) -> float:
        return self.share or 0.0

    @property
    def grade(self) -> Grade:
        """A fact if logs show it; only likely if it changed at the same time."""
        if self.kind is CauseKind.UNEXPLAINED:
            return Grade.UNKNOWN
        is_fact = self.share is not None or self.kind in (CauseKind.CACHE_RATE, CauseKind.TRACE)
        return Grade.FACT if is_fact else Grade.LIKELY


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """A change of one measure and its contributors, the largest first."""

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
        return measures.headline(self.measure, self.before, self.after)

    @property
    def causes(self) -> str:
        """The text after the headline; empty if no cause is known."""
        contexts = [each for each in self.contributors if each.share is None]
        facts = [each.text for each in contexts if each.grade is Grade.FACT]
        likely = "; ".join(each.text for each in contexts if each.grade is Grade.LIKELY)
        parts = [", ".join(self._shares()), *facts, likely and f"at the same time: {likely}"]
        return "; ".join(filter(None, parts))

    @property
    def text(self) -> str:
        between = ", " if self._listed() else "; "
        return between.join(filter(None, [self.headline, self.causes]))

    def _listed(self) -> list[Contributor]:
        """The contributors whose shares are large enough to be listed."""
        return [
            each
            for each in self.contributors
            if abs(each.amount) > abs(self.change) * (SPREAD if each.kind in LAST else LISTED)
        ]

    def _shares(self) -> Iterator[str]:
        """``31 s of it in 4 new units``; with signs if the shares have different ones."""
        _, quantity = measures.stage_and_quantity(self.measure)
        listed = self._listed()
        one_way = all(each.amount * self.change > 0 for each in listed)
        # No amount where the text already counts units, or where the whole change is unexplained.
        in_words = quantity is Quantity.UNITS
        in_words |= [each.kind for each in listed] == [CauseKind.UNEXPLAINED]
        # Unlisted noise of the other sign must not make the listed shares exceed the change.
        total = sum(abs(each.amount) for each in listed)
        scale = min(1.0, abs(self.change) / total) if one_way and total else 1.0
        for index, each in enumerate(listed[:MOST]):
            size = abs(each.amount) * scale if one_way else each.amount
            amount = measures.amount(size, quantity, "" if one_way else "+")
            of_it = " of it" if one_way and not index else ""
            yield each.text.removeprefix("in ") if in_words else f"{amount}{of_it} {each.text}"
        if len(listed) > MOST:
            yield f"and {len(listed) - MOST} more"
