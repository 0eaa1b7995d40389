"""``python -m ci report``."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ci.analysis.combined import CombinedResults, find_results
from ci.analysis.durations import add_up_costs
from ci.commands.options import (
    add_explain,
    add_format,
    add_repository,
    add_results,
    platform_name,
    whole_number,
)
from ci.commands.publishing import Form, Publication
from ci.commands.reading import reading_store
from ci.errors import ExitCode, UsageError
from ci.gates.rules import RESULTS
from ci.model.platforms import PLATFORMS
from ci.model.results import selected_title, title
from ci.report.flaky_and_slowest import SlowestReport
from ci.report.table import ResultsReport
from ci.util.terminal import show
from ci.util.text import near_match

if TYPE_CHECKING:  # it imports SQLAlchemy
    from ci.store.store import Store

SLOWEST = 10  # lines: the three lists fit on a screen of 50


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add all options of the command."""
    parser.description = (
        "Show the results of a run, or of a commit: the newest run of each platform at this commit,"
        " such as the jobs of a CI. The formats github, gitlab, gitea and buildkite are a page for"
        " a comment or a job summary, with what changed since the merge base; junit and ctrf have"
        " every test; crcr has the inputs of PyTorch's CI relay, with who has to act on a failure."
    )
    parser.add_argument(
        "run",
        nargs="?",
        metavar="RUN",
        help="run id, RUN/PLATFORM, or a commit or another git revision such as HEAD (default: the"
        " latest run)",
    )
    add_format(parser, "table", "markdown", "json", *Form)
    add_explain(parser)
    parser.add_argument(
        "--expect",
        type=_platforms,
        metavar="PLATFORM,...",
        default=(),
        help="platforms that must have a result of all operators: one without it gets a row that"
        " did not pass",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="exit with the code of `run`: 0 only if all platforms passed with all operators; a run"
        " with --select has a row of its own and does not count as one. In a job of GitHub, Gitea,"
        " Forgejo or Buildkite, also write its summary, as `run` does",
    )
    parser.add_argument(
        "--slowest",
        type=whole_number(1),
        nargs="?",
        const=SLOWEST,
        metavar="N",
        help="show instead the N most expensive tests, operators and operator families (default:"
        f" {SLOWEST})",
    )
    add_repository(parser, "in whose git repository RUN and the merge base are looked up")
    add_results(parser)


def _platforms(text: str) -> Sequence[str]:
    """An argparse type for names of platforms, separated by commas."""
    names = [platform_name(name.strip()) for name in text.split(",") if name.strip()]
    unknown = next((name for name in names if name not in PLATFORMS), None)
    if unknown or not names:
        expected = f"expected some of {', '.join(PLATFORMS)}{near_match(unknown, PLATFORMS)}"
        raise argparse.ArgumentTypeError(f"got '{text}', {expected}")
    return tuple(dict.fromkeys(names))


def execute(options: argparse.Namespace) -> int:
    """Show the results of a run or a commit, or its most expensive tests."""
    with reading_store(options.results, run=options.run) as store:
        found = find_results(
            store, options.source, options.run, options.expect, check=options.check
        )
        if options.slowest:
            _slowest(store, found, options.slowest).show(options.format)
            return ExitCode.PASSED
        publication = Publication(results=options.results, source=options.source, found=found)
        if options.format in tuple(Form):
            show(publication.text(store, Form(options.format)), end="")
        else:
            ResultsReport(found.run, found.origins, options.explain).show(options.format)
        if not options.check:
            return ExitCode.PASSED
        publication.show(os.environ)
        return RESULTS.exit_code(found.gate_subject())


def _slowest(store: Store, found: CombinedResults, most: int) -> SlowestReport:
    """The most expensive tests; raises ``UsageError`` if there are none."""
    costs = {}
    for result, run in found.rows:
        outcomes = store.outcomes(run.run_id if run else "", result.platform)
        if outcomes.names:
            name = title(result.platform, result.platform, simulated=result.simulated)
            name = selected_title(name, result.selected)
            costs[name] = add_up_costs(outcomes)
    if not costs:
        message = f"--slowest: run {found.run.run_id}: got no recorded tests, expected at least one"
        raise UsageError(message, remedy="Name a run whose tests ran: report RUN --slowest")
    return SlowestReport(costs, most)
