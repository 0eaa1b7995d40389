"""``python -m ci report``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ci.commands.options import add_format, add_results, whole
from ci.errors import ExitCode, UsageError
from ci.model.results import RunResult, title
from ci.report.console import output
from ci.report.table import print_results, results_markdown
from ci.store.folder import existing_store

if TYPE_CHECKING:
    from ci.store.store import Store

SLOWEST = 10


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add all options of the command."""
    parser.set_defaults(command=_report)
    parser.add_argument("run", nargs="?", metavar="RUN", help="run id (default: the latest)")
    add_format(parser, "table", "markdown", "json")
    parser.add_argument(
        "--slowest",
        type=whole(1),
        nargs="?",
        const=SLOWEST,
        metavar="N",
        help="what the time of the tests went into, instead: the N most expensive tests, operators"
        f" and families (default: {SLOWEST})",
    )
    add_results(parser)


def _report(options: argparse.Namespace) -> int:
    with existing_store(options.results, run=options.run) as store:
        if options.slowest:
            _print_slowest(store, options)
            return ExitCode.PASSED
        print_run(store.load(options.run), options.format)
    return ExitCode.PASSED


def _print_slowest(store: Store, options: argparse.Namespace) -> None:
    from ci.analysis.durations import costs_of
    from ci.report.expensive import expensive_json, expensive_markdown, print_expensive

    run = store.load(options.run)
    costs = {
        title(result.platform, simulated=result.simulated): costs_of(outcomes)
        for result in run.platforms
        if (outcomes := store.outcomes(run.run_id, result.platform)).names
    }
    if not costs:
        raise UsageError(f"run {run.run_id} has no tests", remedy="Name another run.")
    if options.format == "json":
        print(expensive_json(costs, options.slowest), end="")
    elif options.format == "markdown":
        print(expensive_markdown(costs, options.slowest), end="")
    else:
        print_expensive(costs, options.slowest, output())


def print_run(result: RunResult, form: str) -> None:
    """Print the table of a run, or one of the files that it is written to."""
    if form == "json":
        print(result.to_json(), end="")
    elif form == "markdown":
        print(results_markdown(result), end="")
    else:
        print_results(result, output())
