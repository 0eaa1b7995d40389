"""What a forge or a CI system shows of results, by its own rules: a page, and annotations.

The page is for a comment, an annotation or a job summary. What changed comes first, then the table,
then what each platform that did not pass failed with.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, islice, zip_longest

from ci.analysis.combined import CombinedResults
from ci.analysis.comparison import Comparison
from ci.model.decision import Decision
from ci.model.fields import MOST_FAILURES
from ci.model.results import Failure, PlatformResult, RunResult
from ci.model.verdicts import Product
from ci.report.comparison_report import ComparisonReport
from ci.report.decision_report import verdict_blocks
from ci.report.document import Block, Document, Fold, Heading, Items, Span, Table, markdown
from ci.report.failure_list import failure_blocks, failure_count
from ci.report.table import HEADINGS, SECONDS, origin, table_rows
from ci.util.invocation import naming_commands_for_others
from ci.util.text import counted, shorten, strip_controls

# Characters of a page. GitHub and Gitea refuse a comment of more than 65,536, and Buildkite an
# annotation of more than 1 MiB; a longer one is not read on any of them.
LONGEST_PAGE = 65_000


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
MOST_RULES = 20  # of a decision
MOST_EVIDENCE = 5  # reasons of a platform; results from elsewhere may have any number


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What a page is made of."""

    results: CombinedResults
    comparison: Comparison | str
    """With the base, or the reason why there is none."""
    decision: Decision | None = None
    """The newest decision about a release with one of the runs, if there is one."""

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
        if self.decision:
            yield [*verdict_blocks(self.decision, most=MOST_RULES, characters=detail.characters)]
        blocks = [*self._changes()]
        yield [
            _short_table(it, detail) if isinstance(it, Table) else it
            for it in blocks
            if not isinstance(it, Fold) and (detail.news or not isinstance(it, Items))
        ]
        results = Table(HEADINGS, table_rows(run.platforms), numbers=SECONDS)
        yield [Heading(3, "Results"), _short_table(results, detail)]
        for result, own in self.results.rows:
            if result.verdict.product is not Product.PASSED:
                yield [self._failed_platform(own or run, result, detail)]
        if detail.changes:
            yield [it for it in blocks if isinstance(it, Fold)]

    def _changes(self) -> Iterator[Block]:
        if isinstance(self.comparison, str):
            yield f"Not compared with a base: {self.comparison.removeprefix('compare: ')}"
            return
        for section in ComparisonReport(self.comparison).document(page=True):
            yield from section

    def _failed_platform(self, run: RunResult, result: PlatformResult, detail: Detail) -> Fold:
        """A row that did not pass; the commands that reproduce it name its own run."""
        count = failure_count(result)
        named = f", {counted(count, 'failed test')}" if count else ""
        verdict = result.verdict
        reasons = [f"{it.grade}: {shorten(it.text, detail.characters)}" for it in verdict.evidence]
        blocks = [*failure_blocks(run, result, detail.failures)]
        blocks.append(("Harness: ", Span(verdict.harness.shown, strong=True), "."))
        if len(reasons) > 1:  # the first one is above
            blocks.append(Items(reasons[1 : MOST_EVIDENCE + 1]))
        return Fold(f"{result.label[:LONGEST_LABEL]}: {verdict.product.shown}{named}", blocks)


def _short_table(table: Table, detail: Detail) -> Table:
    most = detail.characters
    return replace(table, rows=[[shorten(cell, most) for cell in row] for row in table.rows])


def page(summary: Summary, *, marked: bool = True) -> str:
    """The summary as one page of Markdown, with as much detail as fits.

    ``marked``: it begins with a marker, by which a job finds its comment and updates it in place.
    """
    text, head = "", f"{marker(summary.results.run.project)}\n\n" if marked else ""
    with naming_commands_for_others():
        for detail in DETAILS:
            text = head + markdown(summary.document(detail))
            if len(text) <= LONGEST_PAGE:
                break
    return text


def marker(project: str) -> str:
    """The first line of a comment; a forge does not show it."""
    return f"<!-- infini-ci: {re.sub(r'[^A-Za-z0-9_.-]', '_', project)} -->"


# Annotations

# The first 10 of a step are shown, and the first 50 of a job:
# https://docs.github.com/en/rest/checks/runs
MOST_ANNOTATIONS = 10
LONGEST_ANNOTATION = 500  # characters
# Workflow commands: https://docs.github.com/en/actions/reference/workflow-commands-for-github-actions
_DATA: Mapping[str, str] = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_PROPERTY: Mapping[str, str] = {**_DATA, ":": "%3A", ",": "%2C"}


def error_commands(run: RunResult, is_file: Callable[[str], bool]) -> Iterator[str]:
    """Workflow commands of GitHub that mark the first failures, of each platform in turn.

    ``is_file`` is whether the source has a file of this path: others cannot be marked.
    """
    failed = [it for it in run.platforms if it.verdict.product is not Product.PASSED]
    by_platform = (  # a platform without failures is marked with its verdict
        [_annotation(it, failure, is_file) for failure in it.failures or (None,)] for it in failed
    )
    in_turn = chain.from_iterable(zip_longest(*by_platform))
    yield from islice(filter(None, in_turn), MOST_ANNOTATIONS)


def _annotation(
    result: PlatformResult, failure: Failure | None, is_file: Callable[[str], bool]
) -> str:
    name, message = result.verdict.product.shown, result.verdict.reason or ""
    if failure is not None:
        name, message = failure.name, failure.message or message
    properties = {"title": f"{result.label}: {name}"[:LONGEST_ANNOTATION]}
    file = ((failure and failure.test) or "").partition("::")[0]
    if file and is_file(file):
        properties = {"file": file, **properties}
    words = ",".join(f"{key}={_escape(text, _PROPERTY)}" for key, text in properties.items())
    return f"::error {words}::{_escape(message[:LONGEST_ANNOTATION] or name, _DATA)}"


def _escape(text: str, escapes: Mapping[str, str]) -> str:
    return "".join(escapes.get(character, character) for character in strip_controls(text))
