"""Reports about tests: the most expensive ones and the flaky ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ci.analysis.durations import Costs, Share
from ci.analysis.flaky import FlakyTest
from ci.facts.measures import percent
from ci.report.document import Block, Document, Heading, Items, Report, Table, select_attributes
from ci.util.text import counted

SCHEMA_VERSION = 1  # of both documents
FLAKY_SHOWN = 20  # tests, one screen; JSON has all of them
ADVICE = (
    "Fix a flaky test. Until it is fixed, a quarantine can exclude it, with a reference to the"
    " defect, if the suite has one (tests/ops has quarantine.yaml)."
)
COLUMNS = ("Tests", "Seconds", "Share", "Name")


@dataclass(frozen=True)
class SlowestReport(Report):
    """``report --slowest``."""

    costs: Mapping[str, Costs]
    """Costs by platform title."""
    most: int
    """The largest number of rows in each list."""

    def document(self, *, page: bool) -> Document:
        del page  # terminal and page have the same text
        for platform, cost in self.costs.items():
            tests = counted(len(cost.tests), "test")
            title = f"{platform}: {tests} took {cost.seconds:,.1f} s in total"
            yield [Heading(2, title, style="bold")]
            yield self._most_expensive("tests", cost, cost.tests)
            yield self._most_expensive("operators and functions", cost, cost.functions)
            yield self._most_expensive("families", cost, cost.families)
        yield []

    def _most_expensive(self, what: str, cost: Costs, shares: Sequence[Share]) -> Sequence[Block]:
        shown = shares[: self.most]
        seconds, share = sum(it.seconds for it in shown), percent(cost.share(shown))
        took = f"{len(shown):,} of {len(shares):,} took {seconds:,.1f} s ({share})"
        rows = [
            (f"{it.tests:,}", f"{it.seconds:,.2f}", percent(cost.share([it])), it.name)
            for it in shown
        ]
        table = Table(COLUMNS, rows, numbers=COLUMNS[:-1])
        return Heading(3, f"The most expensive {what}: {took}"), table

    def data(self) -> dict[str, Any]:
        platforms = {}
        for platform, cost in self.costs.items():
            lists = {"slowest": cost.tests, "functions": cost.functions, "families": cost.families}
            platforms[platform] = {"tests": len(cost.tests), "seconds": cost.seconds} | {
                name: [share._asdict() for share in shares[: self.most]]
                for name, shares in lists.items()
            }
        return {"schema_version": SCHEMA_VERSION, "platforms": platforms}


@dataclass(frozen=True)
class FlakyReport(Report):
    """``flaky PLATFORM``: the tests that the store has evidence of flakiness for."""

    platform: str
    found: Sequence[FlakyTest]

    def document(self, *, page: bool) -> Document:
        del page  # terminal and page have the same text
        count = counted(len(self.found), "test") if self.found else "no test"
        title = f"{count} both passed and failed at one commit in one environment"
        lines = [f"{test.node_id}: {test}" for test in self.found[:FLAKY_SHOWN]]
        if left := self.found[FLAKY_SHOWN:]:
            lines.append(f"and {counted(len(left), 'test')} more")
        advice = [ADVICE] if self.found else []
        yield Heading(3, f"{self.platform}: {title}"), Items(lines, indent="  "), *advice

    def data(self) -> dict[str, Any]:
        """All flaky tests with their evidence."""
        tests = [
            {
                "test": test.node_id,
                **select_attributes(test, "failed", "tried"),
                "rate": test.failed / test.tried,
                "interval": test.interval,
                "evidence": [
                    {
                        "commit": it.commit,
                        "environment": it.key,
                        **select_attributes(it, "failed", "tried"),
                    }
                    for it in test.evidence
                ],
            }
            for test in self.found
        ]
        return {"schema_version": SCHEMA_VERSION, "platform": self.platform, "tests": tests}
