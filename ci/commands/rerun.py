"""``python -m ci rerun``."""

from __future__ import annotations

import argparse

from ci.commands.recorded import add_recorded, recorded_session
from ci.errors import ExitCode
from ci.gates.rules import exit_code
from ci.util.terminal import show
from ci.util.text import mask_credentials


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add all options of the command."""
    parser.description = (
        "Run one test of an earlier run again, or all of them, in the environment that `shell`"
        " opens, and print what pytest prints, or the stage before it that failed. The exit code is"
        " 0 if they passed, 1 if not, and 3 for an infrastructure failure. No result is stored."
    )
    add_recorded(parser)
    parser.add_argument(
        "test", metavar="TEST", nargs="?", help="the test: its pytest node id (default: all)"
    )


def execute(options: argparse.Namespace) -> int:
    """Run the tests, and return the exit code of the verdict on them."""
    with recorded_session(options, "rerun", test=options.test) as session:
        outcome, printed = session.rerun(options.test)
    for line in printed.splitlines():
        show(mask_credentials(line))
    return ExitCode.INTERRUPTED if outcome.interrupted else exit_code([outcome.result])
