"""The summary of results as a page that a forge shows: a comment, an annotation or a job summary.

What changed comes first, then the table, then what each platform that did not pass failed with.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ci.analysis.combined import CombinedResults
from ci.analysis.comparison import Comparison
from ci.model.results import MOST_FAILURES, PlatformResult, Product
from ci.report.comparison import ComparisonReport
from ci.report.document import Block, Document, Fold, Heading, Items, Span, Table, markdown
from ci.report.failures import failure_blocks, failure_count
from ci.report.table import HEADINGS, SECONDS, origin, table_rows
from ci.util.text import counted, shorten


@dataclass(frozen=True, kw_only=True)
class Detail:
    """How much of the results a page shows."""

    failures: int
    """Failed tests of each platform."""
    characters: int
    """Of a cell or a reason."""
    news: bool
    """Whether a sentence describes each change, in addition to the table of platforms."""
    changes: bool
    """Whether all changed tests and times are listed, too."""


# A page has as much as fits. The last one always fits: it has ten short texts for each platform.
DETAILS = (
    Detail(failures=MOST_FAILURES, characters=500, news=True, changes=True),
    Detail(failures=MOST_FAILURES, characters=300, news=True, changes=False),
    Detail(failures=10, characters=200, news=True, changes=False),
    Detail(failures=5, characters=100, news=False, changes=False),
    Detail(failures=0, characters=50, news=False, changes=False),
)
LONGEST_LABEL = 50  # characters; results from elsewhere may have any label
MOST_EVIDENCE = 5  # reasons of a platform; results from elsewhere may have any number


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What a page is made of."""

    results: CombinedResults
    comparison: Comparison | str
    """With the base, or the reason why there is none."""

    def markdown(self, longest: int, head: str = "") -> str:
        """The page in at most ``longest`` characters, after ``head``."""
        pages = (head + markdown(self.document(detail)) for detail in DETAILS)
        text = ""
        for text in pages:
            if len(text) <= longest:
                break
        return text

    @property
    def title(self) -> str:
        """``infini-ops: failed on CPU, Ascend; passed on NVIDIA``."""
        named: dict[Product, list[str]] = {}
        for result in self.results.run.platforms:
            named.setdefault(result.verdict.product, []).append(result.label[:LONGEST_LABEL])
        order = (Product.FAILED, Product.INCOMPLETE, Product.NOT_RUN, Product.PASSED)
        parts = [f"{it.shown} on {', '.join(named[it])}" for it in order if it in named]
        return f"{self.results.run.project}: {'; '.join(parts)}"

    def document(self, detail: Detail) -> Document:
        run = self.results.run
        yield [Heading(2, self.title), origin(run)]
        blocks = [*self._changes()]
        yield [
            _short_table(it, detail) if isinstance(it, Table) else it
            for it in blocks
            if not isinstance(it, Fold) and (detail.news or not isinstance(it, Items))
        ]
        results = Table(HEADINGS, table_rows(run.platforms), numbers=SECONDS)
        yield [Heading(3, "Results"), _short_table(results, detail)]
        for result in run.platforms:
            if result.verdict.product is not Product.PASSED:
                yield [self._failed_platform(result, detail)]
        if detail.changes:
            yield [it for it in blocks if isinstance(it, Fold)]

    def _changes(self) -> Iterator[Block]:
        if isinstance(self.comparison, str):
            yield f"Not compared with a base: {self.comparison.removeprefix('compare: ')}"
            return
        for section in ComparisonReport(self.comparison).document(page=True):
            yield from section

    def _failed_platform(self, result: PlatformResult, detail: Detail) -> Fold:
        count = failure_count(result)
        named = f", {counted(count, 'failed test')}" if count else ""
        verdict = result.verdict
        reasons = [f"{it.grade}: {shorten(it.text, detail.characters)}" for it in verdict.evidence]
        # The command to reproduce a failure names the platform's own run.
        own = self.results.run_ids.get(result.platform, self.results.run.run_id)
        run = self.results.run.model_copy(update={"run_id": own})
        blocks = [*failure_blocks(run, result, detail.failures)]
        blocks.append(("Harness: ", Span(verdict.harness.shown, strong=True), "."))
        if len(reasons) > 1:  # the first one is above
            blocks.append(Items(reasons[1 : MOST_EVIDENCE + 1]))
        return Fold(f"{result.label[:LONGEST_LABEL]}: {verdict.product.shown}{named}", blocks)


def _short_table(table: Table, detail: Detail) -> Table:
    most = detail.characters
    return replace(table, rows=[[shorten(cell, most) for cell in row] for row in table.rows])
