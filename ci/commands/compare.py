"""``python -m ci compare``."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from ci.commands.options import add_format, add_results, one_of
from ci.errors import ExitCode, UsageError
from ci.util.files import REPOSITORY

REGRESSION, SUSPECTED = "regression", "suspected"
WHAT = (
    "a run, latest, a commit (7 or more digits of it), a branch, a tag or any other revision; each"
    " with /PLATFORM to name one; or the file of a contract"
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add all options of the command."""
    parser.description = (
        "Show what changed between two runs: the tests, and what the stages cost. A commit stands"
        " for its newest run; a branch or a tag for the newest run of the commit nearest to it,"
        " on each platform; runs with uncommitted changes stand for no commit. Times are compared"
        " within one environment only, and judged by the runs that led to BASE and HEAD: one run"
        " that is slow is suspected, a level that stays is a regression."
    )
    parser.add_argument("base", metavar="BASE", help=WHAT)
    parser.add_argument("head", metavar="HEAD", help="the same")
    add_format(parser, "table", "markdown", "json")
    parser.add_argument(
        "--fail-on",
        type=one_of((REGRESSION, SUSPECTED)),
        metavar=f"{{{REGRESSION},{SUSPECTED}}}",
        help="exit with 4 if tests vanished, newly fail or newly skip, or if times got worse for"
        " good (regression), or already if they may have (suspected); what was accepted with"
        " `history --accept` does not count",
    )
    parser.add_argument(
        "--source",
        type=Path,
        metavar="DIR",
        default=REPOSITORY,
        help="the project, in whose git repository branches and tags are looked up (default: this"
        " one)",
    )
    add_results(parser)


def execute(options: argparse.Namespace) -> int:
    """Show what changed; with ``--fail-on``, what cannot be judged is no success."""
    # Imported here: NumPy, the change-point library and the models take 0.5 s, which --help and a
    # wrong command line do without.
    from ci.analysis.comparison import compare
    from ci.report.comparison import ComparisonReport
    from ci.store.folder import existing_store

    open_store = partial(existing_store, options.results)
    found = compare(open_store, options.source, options.base, options.head)
    ComparisonReport(found).show(options.format)
    if options.fail_on is None:
        return ExitCode.PASSED
    if found.regression or (options.fail_on == SUSPECTED and found.suspected):
        return ExitCode.REGRESSION
    if unjudged := list(found.unjudged()):
        remedy = "Name another run of it, or leave out --fail-on."
        raise UsageError("\n".join(unjudged), remedy=remedy)
    return ExitCode.PASSED
