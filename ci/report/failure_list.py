"""The failures of a run: for each platform that did not pass, why, and how to reproduce it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from ci.facts.sentences.on_harness import interrupted_by_caller
from ci.facts.sentences.on_tests import failed_tests
from ci.model.fields import LONGEST_TEST
from ci.model.results import Failure, PlatformResult, RunResult
from ci.model.verdicts import Harness, Product
from ci.report.document import Block, Code, Heading, Items, Line, Span
from ci.util.invocation import command
from ci.util.text import LONGEST_NAME, counted, first_line, shorten, strip_controls

SHOWN = 5  # failures of a platform; results.json has more
# Another attempt may not meet what ended such a run: `run --resume` makes one.
UNREPEATABLE = (Harness.LOST, Harness.INFRASTRUCTURE)
COLORS = {
    Product.PASSED: "green",
    Product.FAILED: "red",
    Product.INCOMPLETE: "yellow",
    Product.NOT_RUN: "yellow",
}


def reason_of(result: PlatformResult) -> str:
    """Why a platform did not pass, on one line: an interrupt explains what else is missing."""
    stops = [it.text for it in result.verdict.evidence if it.code == interrupted_by_caller.code]
    [reason, *_] = [*stops, result.verdict.reason or "no reason is recorded"]
    return shorten(first_line(reason), LONGEST_NAME)


def command_for(run_id: str, platform: str, failure: Failure) -> str:
    """The command that shows a failure again.

    It runs the test, or all stages up to the tests. It compares the run with a broken contract.
    """
    if failure.contract is not None:
        sides = (failure.contract, f"{run_id}/{platform}")
        return command("compare", *sides, "--fail-on", "regression")
    if failure.test is None:
        return command("rerun", run_id, platform)
    if not _is_nameable(failure.test):
        return command("shell", run_id, platform)
    return command("rerun", run_id, platform, failure.test)


def _is_nameable(test: str) -> bool:
    """Whether a command can name a test: what is shown must be what pytest called it."""
    return len(test) < LONGEST_TEST and "\n" not in test and strip_controls(test) == test


def failure_sections(
    rows: Iterable[tuple[PlatformResult, RunResult]],
) -> Iterator[Sequence[Block]]:
    """A section for each row that did not pass; the commands name its own run."""
    for result, run in rows:
        if result.verdict.product is not Product.PASSED:
            heading = Heading(3, f"{result.label}: why it did not pass", style="bold")
            yield heading, *failure_blocks(run, result, SHOWN)


def failure_blocks(run: RunResult, result: PlatformResult, most: int) -> Iterator[Block]:
    """Why a platform did not pass, and ``most`` of its failures with a command for each."""
    product, shown = result.verdict.product, result.failures[:most]
    began = product is not Product.NOT_RUN and result.verdict.harness not in UNREPEATABLE
    verdict = Span(product.replace("_", " "), color=COLORS[product], strong=True)
    # Without the names of the tests, if they are below.
    first = result.verdict.evidence[:1] if shown and shown[0].test else ()
    counts = [failed_tests.reworded(it, tests=()) for it in first]
    yield verdict, f": {next(filter(None, counts), reason_of(result))}"
    for failure in shown:
        yield Items([*_lines(failure)])
        yield Code(command_for(run.run_id, result.platform, failure))
    tests = [failure for failure in shown if failure.test is not None]
    if (more := failure_count(result) - len(tests)) > 0 and result.failures:
        yield f"and {counted(more, 'more failure')}: see results.json and pytest.jsonl"
    if began and not result.failures:
        yield "The same stages again:"
        yield Code(command("rerun", run.run_id, result.platform))
    if result.kept:
        yield "A shell in what the run left, as long as it is kept:"
    elif began:
        yield "A shell in the same environment:"
    if result.kept or began:
        yield Code(command("shell", run.run_id, result.platform))


def failure_count(result: PlatformResult) -> int:
    """The number of tests that failed or had an error."""
    return result.pytest.bad if result.pytest else 0


def _lines(failure: Failure) -> Iterator[Line]:
    """Yield what failed, and below it the line that says why."""
    yield Span(shorten(failure.name, LONGEST_NAME), code=True)
    if failure.message:
        yield "  ", Span(failure.message, code=True)
