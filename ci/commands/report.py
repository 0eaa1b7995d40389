"""``python -m ci report``."""

from __future__ import annotations

import argparse
import sys

from rich.console import Console

from ci.commands.options import add_results
from ci.errors import ExitCode
from ci.report import print_results, results_markdown
from ci.results import RunResult
from ci.store import existing_store

FILE_WIDTH = 200  # characters of a table that is not printed on a terminal


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add all options of the command."""
    parser.set_defaults(command=_report)
    parser.add_argument("run", nargs="?", metavar="RUN", help="run id (default: the latest)")
    parser.add_argument("--format", choices=("table", "markdown", "json"), default="table")
    add_results(parser)


def _report(options: argparse.Namespace) -> int:
    with existing_store(options.results) as store:
        print_run(store.load(options.run), options.format)
    return ExitCode.PASSED


def print_run(result: RunResult, form: str) -> None:
    """Print the table of a run, or one of the files that it is written to."""
    if form == "json":
        print(result.to_json(), end="")
    elif form == "markdown":
        print(results_markdown(result), end="")
    else:
        # Without a terminal there is no width to fit into.
        print_results(result, Console(width=None if sys.stdout.isatty() else FILE_WIDTH))
