"""``python -m ci schema``."""

from __future__ import annotations

import argparse

from ci.commands.options import add_format
from ci.errors import ExitCode
from ci.plan.load import schema_text
from ci.util.terminal import show


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add all options of the command."""
    add_format(parser, "json")


def execute(_options: argparse.Namespace) -> int:
    """Print the JSON schema of ci.yaml."""
    show(schema_text(), end="")
    return ExitCode.PASSED
