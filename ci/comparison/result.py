"""What a comparison found, on every platform."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ci.analysis.cause import Explanation
from ci.analysis.difference import Difference
from ci.comparison.sides import Side
from ci.comparison.times import Judgement, NoTimes, Times


@dataclass(frozen=True, kw_only=True)
class PlatformComparison:
    """Both sides on one platform, or on two."""

    base: Side
    head: Side
    tests: Difference | None
    """``None``: one of them has none, and says why."""
    times: Times | NoTimes
    explanations: tuple[Explanation, ...] = ()

    @property
    def name(self) -> str:
        """``cpu``, or ``nvidia -> moore``."""
        return " -> ".join(dict.fromkeys((self.base.platform, self.head.platform)))

    @property
    def stands_for_another(self) -> bool:
        """Whether one of the two is of a simulated device, and the other is not."""
        same = self.base.platform == self.head.platform
        return same and self.base.simulated != self.head.simulated

    @property
    def of_different_operators(self) -> str | None:
        """How the two differ in the operators they were built with, where they do."""
        base, head = (side.selected or "all operators" for side in (self.base, self.head))
        return f"base has {base}, head has {head}" if base != head else None

    def has(self, judgement: Judgement) -> bool:
        return isinstance(self.times, Times) and bool(self.times.of(judgement))

    @property
    def is_newly_broken(self) -> bool:
        """Whether it was built, and is no more."""
        return self.head.is_broken and self.base.missing is None

    @property
    def regression(self) -> bool:
        tests = self.tests is not None and self.tests.regression
        return tests or self.is_newly_broken or self.has(Judgement.REGRESSION)

    @property
    def suspected(self) -> bool:
        return self.has(Judgement.SUSPECTED)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """All of it."""

    base: str
    head: str
    """What was named."""
    platforms: tuple[PlatformComparison, ...]
    only_base: tuple[str, ...] = ()
    only_head: tuple[str, ...] = ()
    """Platforms that the other side does not have."""
    notes: tuple[str, ...] = ()

    @property
    def regression(self) -> bool:
        return any(platform.regression for platform in self.platforms)

    @property
    def suspected(self) -> bool:
        return any(platform.suspected for platform in self.platforms)

    def unjudged(self) -> Iterator[str]:
        """Why ``--fail-on`` cannot judge some platforms."""
        for platform in self.platforms:
            for side in (platform.base, platform.head):
                if side.missing is not None:
                    yield f"{side.title} has no tests: {side.missing}"
            if platform.stands_for_another:
                titles = f"{platform.base.title} and {platform.head.title}"
                yield f"neither stands for the other: {titles}"
            if difference := platform.of_different_operators:
                yield f"{platform.name}: neither stands for the other: {difference}"
