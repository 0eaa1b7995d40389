"""Options that several commands have."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from ci.invocation import RESULTS, RESULTS_VARIABLE


def add_source(parser: argparse.ArgumentParser) -> None:
    """Where the project is."""
    parser.add_argument(
        "--source",
        type=Path,
        metavar="DIR",
        help="the project (default: what --config says, else its folder)",
    )


def add_config(parser: argparse.ArgumentParser) -> None:
    """Where its configuration is."""
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="configuration (default: ci.yaml of --source or of this repository)",
    )


def add_results(parser: argparse.ArgumentParser) -> None:
    """Where the results are, and beside them the store."""
    parser.add_argument(
        "--results",
        type=Path,
        metavar="DIR",
        default=Path(os.environ.get(RESULTS_VARIABLE) or RESULTS),
        help="where results are kept (default: INFINI_CI_RESULTS or results)",
    )


def positive(text: str) -> int:
    """An option's number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a number of at least 1, got '{text}'")
    return int(text)
