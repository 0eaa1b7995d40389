"""``python -m ci history``."""

from __future__ import annotations

import argparse
import json

from ci.commands.options import add_format, add_results, whole
from ci.errors import ExitCode, UsageError


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add all options of the command."""
    parser.description = (
        "Show what the stages of a platform cost over its runs, what changed and between which"
        " commits, and what of it is an open regression. Times are compared only where machine,"
        " toolchain, engine, compiler cache and selection are the same. Runs are taken in the order"
        " of time, those of all branches together; `compare` goes by commits."
    )
    parser.add_argument("platform", metavar="PLATFORM", help="the platform to show")
    parser.add_argument("--stage", metavar="S", help="only this stage: install, compile, pytest")
    parser.add_argument("--last", type=whole(1), metavar="N", help="only the last N runs")
    parser.add_argument(
        "--project", metavar="NAME", help="default: the project of the platform's newest run"
    )
    add_format(parser, "table", "markdown", "json")
    parser.add_argument(
        "--check", action="store_true", help="say only what alarms, and exit with 4 if anything"
    )
    parser.add_argument(
        "--accept",
        metavar="RUN",
        help="record that what got worse with this run is all right: it alarms no more, and what"
        " rises above the new level alarms again",
    )
    parser.add_argument("--reason", metavar="TEXT", help="why, with --accept")
    parser.add_argument(
        "--flaky",
        action="store_true",
        help="only the tests that both passed and failed at one commit in one environment",
    )
    add_results(parser)


def execute(options: argparse.Namespace) -> int:
    """Show a platform's history or its flaky tests, or accept what got worse."""
    _refuse_contradictions(options)
    # Imported here: NumPy, the change-point library and the models take 0.5 s, which --help and a
    # wrong command line do without.
    from ci.analysis.flaky import stored_flaky
    from ci.analysis.history import acceptances, platform_history, project_of
    from ci.report.document import named
    from ci.report.history import HistoryReport, accepted_line
    from ci.report.tests import FlakyReport
    from ci.store.folder import existing_store

    platform, project = options.platform, options.project
    with existing_store(options.results) as store:
        if options.flaky:
            found = stored_flaky(store, platform, project_of(store, platform, project))
            FlakyReport(platform, found).show(options.format)
            return ExitCode.PASSED
        record = platform_history(
            store, platform, project=project, stage=options.stage, last=options.last
        )
        if options.accept:
            accepted = acceptances(record, options.accept, options.reason.strip())
            for rise in accepted:
                store.accept(rise)
            listed = [named(it, "measure", "level", "run_id") for it in accepted]
            lines = "\n".join(map(accepted_line, accepted))
            is_json = options.format == "json"
            print(json.dumps({"accepted": listed}, indent=2) if is_json else lines)
            return ExitCode.PASSED
    HistoryReport(record, options.check).show(options.format)
    if not options.check:
        return ExitCode.PASSED
    if not record.history.environments:  # no run got anywhere: that is no success
        return ExitCode.PRODUCT_FAILURE
    return ExitCode.REGRESSION if record.history.open else ExitCode.PASSED


def _refuse_contradictions(options: argparse.Namespace) -> None:
    if options.accept and not (options.reason or "").strip():
        message = "--accept: expected a reason, got none"
        raise UsageError(message, remedy='Say why: --reason "torch 2.14 is slower to link".')
    if options.reason and not options.accept:
        raise UsageError("--reason: only --accept has one", remedy="Name the run: --accept RUN")
    if options.flaky and (options.accept or options.check or options.stage or options.last):
        message = (
            "--flaky: of all runs and their tests; --accept, --check, --stage and --last are not"
        )
        raise UsageError(message, remedy="Leave them out.")
    if options.accept and options.check:
        raise UsageError("--accept and --check: one of them", remedy="Accept first, then check.")
    if options.accept and options.format == "markdown":
        raise UsageError("--accept: got --format markdown, expected table or json")
