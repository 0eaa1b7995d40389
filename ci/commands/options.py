"""Options that several commands have."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

from ci.util.invocation import CONFIG_FILE, REPOSITORY, RESULTS, RESULTS_VARIABLE
from ci.util.text import near_match

LONGEST_NUMBER = 10  # digits, more than any count needs; int() raises an error from 4,301 on


class Options(Protocol):
    """A parser, or a group of its options."""

    def add_argument(self, *names: str, **settings: Any) -> argparse.Action: ...


def add_source(parser: argparse.ArgumentParser) -> None:
    """Add ``--source``, the folder of the project."""
    parser.add_argument(
        "--source",
        type=Path,
        metavar="DIR",
        help="the project's folder (default: `source` of --config, else the folder of that file)",
    )


def add_repository(parser: argparse.ArgumentParser, about: str) -> None:
    """Add ``--source`` to a command that reads results; ``about``: what it looks up there."""
    parser.add_argument(
        "--source",
        type=Path,
        metavar="DIR",
        default=REPOSITORY,
        help=f"the project's folder, {about} (default: this repository)",
    )


def add_config(parser: argparse.ArgumentParser) -> None:
    """Add ``--config``, the configuration of the project."""
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="configuration file (default: ci.yaml of --source or of this repository)",
    )


def config_file(options: argparse.Namespace) -> Path:
    """The file of ``--config``, else ``ci.yaml`` of ``--source`` or of this repository."""
    folder: Path | None = getattr(options, "source", None)
    return options.config or (folder or REPOSITORY) / CONFIG_FILE


def add_results(parser: argparse.ArgumentParser) -> None:
    """Add ``--results``, the folder of results and of the default store."""
    parser.add_argument(
        "--results",
        type=Path,
        metavar="DIR",
        default=Path(os.environ.get(RESULTS_VARIABLE) or RESULTS),
        help="folder of results (default: $INFINI_CI_RESULTS, else `results`)",
    )


def add_format(options: Options, *forms: str) -> None:
    """Add ``--format``, the form of the output; the first of ``forms`` is the default."""
    about = f"output format (default: {forms[0]})"
    add_choice(options, "--format", forms, default=forms[0], help=about)
    # The old name of --format json in some commands.
    options.add_argument(
        "--json", dest="format", action="store_const", const="json", help=argparse.SUPPRESS
    )


def add_runs_of_commits(parser: argparse.ArgumentParser) -> None:
    """Add the options of a command that runs commits of a project, and reports what it found."""
    parser.add_argument("--engine", metavar="ENGINE", help="as of `run`")
    parser.add_argument("--select", metavar="OPERATORS", help="as of `run`")
    add_source(parser)
    add_config(parser)
    add_results(parser)
    add_format(parser, "table", "markdown", "json")


def add_explain(parser: argparse.ArgumentParser) -> None:
    """Add ``--explain`` to a command that shows the table."""
    parser.add_argument(
        "--explain",
        action="store_true",
        help="print below the table what the words of the verdicts mean, as the format markdown"
        " always does",
    )


def add_project(parser: argparse.ArgumentParser) -> None:
    """Add ``--project``, whose runs are read."""
    parser.add_argument(
        "--project", metavar="NAME", help="project (default: that of the newest run)"
    )


def add_branch(parser: argparse.ArgumentParser) -> None:
    """Add ``--branch``, whose runs are read."""
    parser.add_argument(
        "--branch",
        metavar="NAME",
        help="follow this branch: the runs of its target up to their newest common commit, then"
        " its own (default: the main branch; a run records both); or a commit: the runs up to it",
    )


def add_line(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose what is read of a history: runs along a branch, and a stage."""
    add_branch(parser)
    parser.add_argument("--stage", metavar="S", help="only this stage: install, compile, pytest")
    parser.add_argument(
        "--measure",
        metavar="TEXT",
        help="only quantities and benchmarks whose name contains this text, in any case",
    )
    parser.add_argument("--last", type=whole_number(1), metavar="N", help="only the last N runs")
    add_project(parser)


def platform_name(text: str) -> str:
    """An argparse type for a platform, which may be written as in the table: ``NVIDIA``."""
    return text.lower()


def add_platform(parser: argparse.ArgumentParser, about: str) -> None:
    """Add the platform of a command."""
    parser.add_argument("platform", type=platform_name, metavar="PLATFORM", help=about)


def add_platforms(parser: argparse.ArgumentParser, about: str, *, nargs: str = "*") -> None:
    """Add the platforms of a command; none are needed, unless ``nargs`` is ``+``."""
    parser.add_argument(
        "platforms", type=platform_name, nargs=nargs, metavar="PLATFORM", help=about
    )


def add_choice(options: Options, name: str, words: Iterable[str], **settings: Any) -> None:
    """Add an option or an argument for one of these words, which the help lists."""
    known = [*words]
    metavar = "{" + ",".join(known) + "}"
    options.add_argument(name, type=choice_of(known), metavar=metavar, **settings)


def choice_of(names: Iterable[str]) -> Callable[[str], str]:
    """An argparse type for one of ``names``; unlike ``choices``, its error has a hint."""
    known = list(names)

    def word(text: str) -> str:
        if text in known:
            return text
        expected = f"expected one of {', '.join(known)}{near_match(text, known)}"
        raise argparse.ArgumentTypeError(f"got '{text}', {expected}")

    return word


def whole_number(least: int, most: int | None = None) -> Callable[[str], int]:
    """An argparse type for a whole number within bounds."""
    at_most = "" if most is None else f" and at most {most}"

    def number(text: str) -> int:
        right = text.isascii() and text.isdecimal() and len(text) < LONGEST_NUMBER
        if right and least <= int(text) and (most is None or int(text) <= most):
            return int(text)
        message = f"got '{text}', expected a number of at least {least}{at_most}"
        raise argparse.ArgumentTypeError(message)

    return number
