"""``python -m ci compare``."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from ci.commands.options import add_choice, add_format, add_repository, add_results
from ci.errors import ExitCode, UsageError
from ci.gates.rules import COMPARISON, RULES, Subject
from ci.protocol.distributions import WHEEL_SUFFIX

REFERENCE = (
    "a run id, 'latest', a commit (at least 7 digits), a branch, a tag or any other git revision;"
    " append /PLATFORM to compare one platform only. Or the file of a contract, or two wheels"
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
        " stays is a regression. Given two wheels, it compares their exported symbols, and their"
        " ABI if abidiff is installed."
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
    """Show what changed. With ``--fail-on``, what cannot be judged is an error."""
    # Imported here: NumPy, the change-point library and the models take 0.5 s, and neither --help
    # nor a wrong command line needs them.
    is_wheel = [str(it).endswith(WHEEL_SUFFIX) for it in (options.base, options.head)]
    if any(is_wheel):
        subject = _compare_files(options, are_both=all(is_wheel))
    else:
        subject = _compare_runs(options)
    if options.fail_on is None:
        return ExitCode.PASSED
    code = COMPARISON.exit_code(subject, options.fail_on)
    if code is ExitCode.USAGE:
        remedy = "Name another run of it, or leave out --fail-on."
        raise UsageError("\n".join(subject.gaps), remedy=remedy)
    return code


def _compare_runs(options: argparse.Namespace) -> Subject:
    from ci.analysis.comparison import compare
    from ci.commands.reading import reading_store
    from ci.report.comparison_report import ComparisonReport

    open_store = partial(reading_store, options.results)
    found = compare(open_store, options.source, options.base, options.head, results=options.results)
    ComparisonReport(found).show(options.format)
    return found.gate_subject()


def _compare_files(options: argparse.Namespace, *, are_both: bool) -> Subject:
    """Compare two wheels."""
    from ci.analysis.abi import compare_wheels
    from ci.facts.exported_symbols import WheelPair
    from ci.report.wheel_report import WheelReport

    base, head = options.base, options.head
    if not are_both:
        message = f"got '{base or 'nothing'}' and '{head}', expected two wheels"
        raise UsageError(message, remedy="Those of a run are in results/RUN/PLATFORM/dist.")
    before, after = Path(base), Path(head)
    for path in (before, after):
        if not path.is_file():
            raise UsageError(f"{path}: got no file, expected a wheel", remedy="Name another file.")
    found = compare_wheels(WheelPair(name=after.name, before=before, after=after))
    WheelReport(base=base, head=head, found=found).show(options.format)
    return Subject(judgements=found.judgements, gaps=tuple(found.gaps()))
