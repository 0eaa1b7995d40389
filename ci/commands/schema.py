"""``python -m ci schema``."""

from __future__ import annotations

import argparse

from ci.commands.options import add_choice, add_format
from ci.errors import ExitCode
from ci.model.decision import decision_schema
from ci.model.results import results_schema
from ci.plan.load import schema_text
from ci.util.terminal import show

SCHEMAS = {"config": schema_text, "results": results_schema, "decision": decision_schema}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add all options of the command."""
    add_choice(
        parser,
        "file",
        SCHEMAS,
        nargs="?",
        default="config",
        help="the file: ci.yaml (config, the default), results.json of any version (results), or a"
        " decision of `gate` (decision)",
    )
    add_format(parser, "json")


def execute(options: argparse.Namespace) -> int:
    """Print the JSON schema of a file."""
    show(SCHEMAS[options.file](), end="")
    return ExitCode.PASSED
