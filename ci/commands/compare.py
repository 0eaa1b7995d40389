"""``python -m ci compare``."""

from __future__ import annotations

import argparse
from functools import partial

from ci.commands.options import add_choice, add_format, add_repository, add_results
from ci.errors import ExitCode, UsageError
from ci.gates.rules import COMPARISON, RULES

REFERENCE = (
    "a run id, 'latest', a commit (at least 7 digits), a branch, a tag or any other git revision;"
    " append /PLATFORM to compare one platform only. Or the file of a contract"
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add all options of the command."""
    parser.description = (
        "Show what changed between two runs: the tests and the cost of the stages. A commit means"
        " its newest run of all operators. A branch or tag means, on each platform, the newest run"
        " of the nearest commit that has one. If BASE is a branch, HEAD is compared with the commit"
        " where it left BASE; what BASE gained since is only noted. Runs with uncommitted changes"
        " belong to no commit. Times are compared only within one environment, and judged by the"
        " runs before BASE and HEAD: one slow run is a suspected regression, a higher level that"
        " stays is a regression."
    )
    parser.add_argument(
        "base",
        metavar="BASE",
        nargs="?",
        help=f"{REFERENCE} (default: the branch that HEAD will be merged into; on the main branch,"
        " the commits before HEAD)",
    )
    parser.add_argument("head", metavar="HEAD", help="same forms as BASE")
    add_format(parser, "table", "markdown", "json")
    add_choice(
        parser,
        "--fail-on",
        COMPARISON.choices,
        help=f"exit with 4 if {RULES['regression'].broken_by} (regression). With 'suspected', also"
        f" if {RULES['suspected'].broken_by}. Accepted rises do not count: see `accept`",
    )
    add_repository(parser, "in whose git repository branches and tags are looked up")
    add_results(parser)


def execute(options: argparse.Namespace) -> int:
    """Show what changed. With ``--fail-on``, a platform that cannot be judged is an error."""
    # Imported here: NumPy, the change-point library and the models take 0.5 s, and neither --help
    # nor a wrong command line needs them.
    from ci.analysis.comparison import compare
    from ci.commands.reading import reading_store
    from ci.report.comparison_report import ComparisonReport

    open_store = partial(reading_store, options.results)
    found = compare(open_store, options.source, options.base, options.head, results=options.results)
    ComparisonReport(found).show(options.format)
    if options.fail_on is None:
        return ExitCode.PASSED
    subject = found.gate_subject()
    code = COMPARISON.exit_code(subject, options.fail_on)
    if code is ExitCode.USAGE:
        remedy = "Name another run of it, or leave out --fail-on."
        raise UsageError("\n".join(subject.gaps), remedy=remedy)
    return code
