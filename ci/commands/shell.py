"""``python -m ci shell``."""

from __future__ import annotations

import argparse

from ci.commands.recorded import add_recorded, recorded_session


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add all options of the command."""
    parser.description = (
        "Recreate the environment of an earlier run, and open a shell in it: the recorded image,"
        " the sources of the run, the same user, limits, network and devices. The stages before"
        " the tests run first, with the run's compiler cache. Everything is removed when the shell"
        " ends. If the run kept the container of the platform (`run --keep`), the shell opens in"
        " it instead, and it stays. Without a terminal, the commands are read from the standard"
        " input, as `sh` does. The exit code is that of the shell, or 3 if there is none."
    )
    add_recorded(parser)


def execute(options: argparse.Namespace) -> int:
    """Open the shell, and return its exit code."""
    with recorded_session(options, "shell") as session:
        return session.shell()
