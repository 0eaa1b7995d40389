"""``python -m ci report``."""

from __future__ import annotations

import argparse

from ci.analysis.durations import add_up_costs
from ci.commands.options import add_format, add_results, whole_number
from ci.commands.reading import reading_store
from ci.errors import ExitCode, UsageError
from ci.model.results import title
from ci.report.table import ResultsReport
from ci.report.tests import SlowestReport

SLOWEST = 10  # lines: the three lists fit on a screen of 50


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add all options of the command."""
    parser.add_argument("run", nargs="?", metavar="RUN", help="run id (default: the latest)")
    add_format(parser, "table", "markdown", "json")
    parser.add_argument(
        "--slowest",
        type=whole_number(1),
        nargs="?",
        const=SLOWEST,
        metavar="N",
        help="show instead the N most expensive tests, operators and operator families (default:"
        f" {SLOWEST})",
    )
    add_results(parser)


def execute(options: argparse.Namespace) -> int:
    """Show the results of a run, or its most expensive tests."""
    with reading_store(options.results, run=options.run) as store:
        run = store.load(options.run)
        if not options.slowest:
            ResultsReport(run).show(options.format)
            return ExitCode.PASSED
        costs = {
            title(result.platform, result.platform, simulated=result.simulated): add_up_costs(
                outcomes
            )
            for result in run.platforms
            if (outcomes := store.outcomes(run.run_id, result.platform)).names
        }
    if not costs:
        message = f"run {run.run_id}: got no tests, expected some for --slowest"
        raise UsageError(message, remedy="Name another run.")
    SlowestReport(costs, options.slowest).show(options.format)
    return ExitCode.PASSED
