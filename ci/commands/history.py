"""``python -m ci history``."""

from __future__ import annotations

import argparse
import json

from ci.commands.options import add_format, add_results, choice_of, whole_number
from ci.commands.reading import reading_store
from ci.errors import ExitCode, UsageError
from ci.util.garbage import without_collection
from ci.util.terminal import show

REGRESSION, ENVIRONMENT = "regression", "environment"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add all options of the command."""
    parser.description = (
        "Show what the stages of a platform cost over its runs, what changed between which commits,"
        " and which changes are open regressions. Times are compared only where machine, toolchain,"
        " engine, compiler cache and selected operators are the same. Runs are in the order of"
        " their commits, along one branch: the main one, or that of --branch."
    )
    parser.add_argument("platform", metavar="PLATFORM", help="the platform to show")
    parser.add_argument(
        "--branch",
        metavar="NAME",
        help="follow this branch: the runs of its target up to their newest common commit, then"
        " its own (default: the main branch; a run records both)",
    )
    parser.add_argument("--stage", metavar="S", help="only this stage: install, compile, pytest")
    parser.add_argument("--last", type=whole_number(1), metavar="N", help="only the last N runs")
    parser.add_argument(
        "--project", metavar="NAME", help="project (default: that of the platform's newest run)"
    )
    add_format(parser, "table", "markdown", "json")
    parser.add_argument(
        "--check",
        action="store_true",
        help="print only open and suspected regressions; exit with 4 if one is open",
    )
    parser.add_argument(
        "--fail-on",
        type=choice_of((REGRESSION, ENVIRONMENT)),
        metavar=f"{{{REGRESSION},{ENVIRONMENT}}}",
        help="with --check, also exit with 4 on a confirmed rise that came with a change of the"
        " environment, such as a new compiler (environment; default: regression)",
    )
    parser.add_argument(
        "--accept",
        metavar="RUN",
        help="accept the rises that began with this run: they are no longer reported as"
        " regressions. A further rise above the accepted level is reported again",
    )
    parser.add_argument(
        "--reason", metavar="TEXT", help="why the rise is acceptable; --accept requires it"
    )
    parser.add_argument(
        "--flaky",
        action="store_true",
        help="show only tests that both passed and failed at one commit in one environment",
    )
    add_results(parser)


@without_collection
def execute(options: argparse.Namespace) -> int:
    """Show the history of a platform or its flaky tests, or accept a rise."""
    _refuse_contradictions(options)
    # Imported here: NumPy, the change-point library and the models take 0.5 s, and neither --help
    # nor a wrong command line needs them.
    from ci.analysis.flaky import find_flaky_tests
    from ci.analysis.history import acceptances, find_project, platform_history
    from ci.report.document import select_attributes
    from ci.report.history import HistoryReport, accepted_line
    from ci.report.tests import FlakyReport

    platform, project = options.platform, options.project
    with reading_store(options.results) as store:
        if options.flaky:
            found = find_flaky_tests(store, platform, find_project(store, platform, project))
            FlakyReport(platform, found).show(options.format)
            return ExitCode.PASSED
        record = platform_history(
            store,
            platform,
            project=project,
            branch=options.branch,
            stage=options.stage,
            last=options.last,
        )
        if options.accept:
            accepted = acceptances(record, options.accept, options.reason.strip())
            for rise in accepted:
                store.accept(rise)
            listed = [select_attributes(it, "measure", "level", "run_id") for it in accepted]
            lines = "\n".join(map(accepted_line, accepted))
            is_json = options.format == "json"
            show(json.dumps({"accepted": listed}, indent=2) if is_json else lines)
            return ExitCode.PASSED
    HistoryReport(record, options.check).show(options.format)
    if not options.check:
        return ExitCode.PASSED
    if not record.history.environments:  # no stage completed in any run: not a success
        return ExitCode.PRODUCT_FAILURE
    rises = record.history.environment_rises if options.fail_on == ENVIRONMENT else ()
    failed = record.history.open or any(rise.is_open for rise in rises)
    return ExitCode.REGRESSION if failed else ExitCode.PASSED


def _refuse_contradictions(options: argparse.Namespace) -> None:
    if options.accept and not (options.reason or "").strip():
        message = "--accept: got no reason, expected one"
        raise UsageError(message, remedy='Give it: --reason "torch 2.14 is slower to link".')
    if options.reason and not options.accept:
        message = "--reason: got no --accept, which it belongs to"
        raise UsageError(message, remedy="Name the run: --accept RUN")
    if options.fail_on and not options.check:
        message = "--fail-on: got no --check, which it belongs to"
        raise UsageError(message, remedy="Add it: --check")
    if options.flaky and (options.accept or options.check or options.stage or options.last):
        message = "--flaky: cannot be combined with --accept, --check, --stage or --last"
        raise UsageError(message, remedy="Leave them out.")
    if options.accept and options.check:
        message = "--accept: cannot be combined with --check"
        raise UsageError(message, remedy="Run `history --accept` first, then `history --check`.")
    if options.accept and options.format == "markdown":
        raise UsageError("--accept: got --format markdown, expected table or json")
