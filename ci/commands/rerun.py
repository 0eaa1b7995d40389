"""``python -m ci rerun``."""

from __future__ import annotations

import argparse
import json

from ci.commands.options import add_format
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
        " With `--format json`, the result is printed: a platform as in results.json, the outcome"
        " of each test, and that output."
    )
    add_recorded(parser)
    parser.add_argument(
        "test", metavar="TEST", nargs="?", help="the test: its pytest node id (default: all)"
    )
    add_format(parser, "text", "json")


def execute(options: argparse.Namespace) -> int:
    """Run the tests, and return the exit code of the verdict on them."""
    with recorded_session(options, "rerun", test=options.test) as session:
        outcome, printed = session.rerun(options.test)
        run_id = session.recorded.request.run_id
    code = ExitCode.INTERRUPTED if outcome.interrupted else exit_code([outcome.result])
    lines = [*map(mask_credentials, printed.splitlines())]
    if options.format == "text":
        for line in lines:
            show(line)
        return code
    tests = [
        {"test": it.node_id, "outcome": it.outcome, "seconds": it.seconds, "reason": it.reason}
        for it in outcome.details.tests
    ]
    document = {
        "run_id": run_id,
        "platform": outcome.result.platform,
        "exit_code": code,
        "result": outcome.result.model_dump(mode="json"),
        "tests": tests,
        "output": lines,
    }
    show(json.dumps(document, indent=2))
    return code
