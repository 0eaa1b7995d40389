"""``python -m ci gate``."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from ci.commands.gating import Gatekeeper, without_rules, write_decision
from ci.commands.options import add_config, add_format, add_results, add_source, config_file
from ci.errors import UsageError
from ci.report.decision_report import DecisionReport
from ci.store.rows import LATEST

_TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+/-]{0,63}")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add all options of the command."""
    parser.description = (
        "Decide by the rules of `release:` in ci.yaml whether a release may be published. Each rule"
        " is shown with its evidence on each platform, and the decision is written to a file. The"
        " exit code is 0 for go, 4 if only regressions stand against it, and 1 for any other no-go."
        " What is missing is never a go."
    )
    parser.add_argument(
        "runs",
        nargs="*",
        metavar="RUN",
        default=[LATEST],
        help="runs of the platforms: ids, commits or other git revisions; or results.json files"
        " and folders that have some, of machines whose runs are not in the store. The newest row"
        " of each platform counts (default: the latest run)",
    )
    parser.add_argument(
        "--tag",
        metavar="TAG",
        help="tag of the release. If git has it, all runs must be of its commit",
    )
    parser.add_argument(
        "--against",
        metavar="RUN",
        help="run of the last release, in one of the forms of RUN (default: the newest run of each"
        " platform at the newest tag before the commit)",
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="FILE",
        help="file to write the decision to (default: decision-TAG.json or decision-COMMIT.json in"
        " the folder of results)",
    )
    add_format(parser, "table", "markdown", "json")
    add_config(parser)
    add_source(parser)
    add_results(parser)


def execute(options: argparse.Namespace) -> int:
    """Decide, write the decision and show it."""
    if options.tag is not None and not _TAG.fullmatch(options.tag):
        message = f"--tag: got '{options.tag}', expected up to 64 letters, digits and any of ._+/-"
        raise UsageError(message, remedy="Name the tag of the release, such as v1.2.")
    path = config_file(options)
    keeper = Gatekeeper.of(path, options.source)
    if keeper is None:
        raise without_rules(path)
    decision = keeper.decide(
        options.results, options.runs, tag=options.tag, against=options.against
    )
    write_decision(decision, options.results, options.output)
    DecisionReport(decision=decision).show(options.format)
    return decision.exit_code
