"""``python -m ci shell``."""

from __future__ import annotations

import argparse

from ci.commands.recorded import add_recorded, read_recorded
from ci.run.session import new_session


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add all options of the command."""
    parser.description = (
        "Recreate the environment of an earlier run, and open a shell in it: the recorded image,"
        " the sources of the run, the same user, limits, network and devices. The stages before"
        " the tests run first, with the run's compiler cache. Without a terminal, the commands are"
        " read from the standard input, as `sh` does. Everything is removed when the shell ends."
        " The exit code is that of the shell, or 3 if there is none."
    )
    add_recorded(parser)


def execute(options: argparse.Namespace) -> int:
    """Open the shell, and return its exit code."""
    return new_session(read_recorded(options, "shell")).shell()
