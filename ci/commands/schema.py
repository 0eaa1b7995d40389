"""``python -m ci schema``."""

from __future__ import annotations

import argparse

from ci.config import schema_text
from ci.errors import ExitCode


def add_options(parser: argparse.ArgumentParser) -> None:
    """It has none."""
    parser.set_defaults(command=_schema)


def _schema(_options: argparse.Namespace) -> int:
    print(schema_text(), end="")
    return ExitCode.PASSED
