"""``python -m ci history``."""

from __future__ import annotations

import argparse

from ci.commands.accepting import mirror
from ci.commands.notifying import add_notify, find_target, notify
from ci.commands.options import (
    add_choice,
    add_format,
    add_line,
    add_platforms,
    add_repository,
    add_results,
)
from ci.commands.reading import reading_store
from ci.commands.tracking import tracked_alarms
from ci.errors import ExitCode, UsageError
from ci.gates.rules import HISTORY, RULES


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add all options of the command."""
    parser.description = (
        "Show what the stages of a platform cost over its runs, what changed between which commits,"
        " and which changes are open regressions. Times are compared only where machine, toolchain,"
        " engine, compiler cache and selected operators are the same. Runs are in the order of"
        " their commits, along one branch: the main one, or that of --branch. `accept` accepts a"
        " rise."
    )
    add_platforms(
        parser,
        "the platform to show. Without one, or with several: the open regressions of all (of"
        " the latest runs), those of one cause together",
    )
    add_line(parser)
    add_format(parser, "table", "markdown", "json")
    parser.add_argument(
        "--check",
        action="store_true",
        help="print only open and suspected regressions; exit with 4 if one is open",
    )
    add_choice(
        parser,
        "--fail-on",
        HISTORY.choices,
        help=f"with --check, also exit with 4 if {RULES['environment'].broken_by} (environment;"
        " default: regression)",
    )
    add_notify(parser)
    add_repository(parser, "with its file ci-accepted.yaml")
    add_results(parser)


def execute(options: argparse.Namespace) -> int:
    """Show the history of platforms, and send new alarms."""
    for name in ("fail_on", "notify"):
        if getattr(options, name) and not options.check:
            message = f"--{name.replace('_', '-')}: can only be used with --check"
            raise UsageError(message, remedy="Add it: --check")
    target = find_target(options) if options.check else None
    # Imported here: NumPy, the change-point library and the models take 0.5 s, and neither --help
    # nor a wrong command line needs them.
    from ci.analysis.alarm_tracking import by_rise, gate_subject
    from ci.analysis.platform_history import find_project, platform_histories, project_line
    from ci.report.alarm_report import AlarmReport
    from ci.report.history_report import HistoryReport

    names = list(dict.fromkeys(options.platforms))
    with reading_store(options.results) as store:
        project = find_project(store, names[0] if names else None, options.project)
        for name in names[1:]:
            find_project(store, name, project)
        along = project_line(store, project, options.source, options.branch)
        histories = platform_histories(
            store,
            names or along.platforms,
            along,
            stage=options.stage,
            text=options.measure,
            last=options.last,
        )
        mirror(store, project, along.accepted)
        complete = not names and options.stage is None and options.last is None
        tracked = tracked_alarms(store, histories, along, complete=complete)
        alarms = [it for it in tracked if it.alarm]
        if len(names) == 1:
            HistoryReport(histories[0], options.check, by_rise(alarms)).show(options.format)
        else:
            AlarmReport(project, along.line.branch, histories, alarms).show(options.format)
        if target:
            checked = {rule.name for rule in HISTORY.rules(options.fail_on)}
            notify(store, target, [it for it in tracked if it.record.kind in checked], along)
    if not options.check:
        return ExitCode.PASSED
    return HISTORY.exit_code(gate_subject(histories, alarms), options.fail_on)
