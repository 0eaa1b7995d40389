"""Options that several commands have."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

from ci.util.files import REPOSITORY
from ci.util.invocation import CONFIG_FILE, RESULTS, RESULTS_VARIABLE
from ci.util.text import near_match

LONGEST_NUMBER = 10  # digits: more than any count has; int() refuses 4,301 of them with an error


class Options(Protocol):
    """A parser, or a group of its options."""

    def add_argument(self, *names: str, **settings: Any) -> argparse.Action: ...


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


def config_file(options: argparse.Namespace) -> Path:
    """What `--config` names, else the file of `--source` or of this repository."""
    folder: Path | None = getattr(options, "source", None)
    return options.config or (folder or REPOSITORY) / CONFIG_FILE


def add_results(parser: argparse.ArgumentParser) -> None:
    """Where the results are, and beside them the store."""
    parser.add_argument(
        "--results",
        type=Path,
        metavar="DIR",
        default=Path(os.environ.get(RESULTS_VARIABLE) or RESULTS),
        help="where results are kept (default: INFINI_CI_RESULTS or results)",
    )


def add_format(options: Options, *forms: str) -> None:
    """How the command prints what it found, the first of ``forms`` by default."""
    shown = "{" + ",".join(forms) + "}"
    options.add_argument(
        "--format",
        type=one_of(forms),
        metavar=shown,
        default=forms[0],
        help=f"how to print it (default: {forms[0]})",
    )
    # What --format json was called in a few commands.
    options.add_argument(
        "--json", dest="format", action="store_const", const="json", help=argparse.SUPPRESS
    )


def one_of(names: Iterable[str]) -> Callable[[str], str]:
    """An option's word; a wrong one gets a hint, which argparse's own choices do not give."""
    known = list(names)

    def word(text: str) -> str:
        if text in known:
            return text
        expected = f"expected one of {', '.join(known)}{near_match(text, known)}"
        raise argparse.ArgumentTypeError(f"got '{text}', {expected}")

    return word


def whole(least: int, most: int | None = None) -> Callable[[str], int]:
    """An option's whole number."""
    at_most = "" if most is None else f" and at most {most}"

    def number(text: str) -> int:
        right = text.isascii() and text.isdecimal() and len(text) < LONGEST_NUMBER
        if right and least <= int(text) and (most is None or int(text) <= most):
            return int(text)
        message = f"got '{text}', expected a number of at least {least}{at_most}"
        raise argparse.ArgumentTypeError(message)

    return number
