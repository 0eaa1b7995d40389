"""``python -m ci shell``."""

from __future__ import annotations

import argparse
import json
import os
import sys
from tempfile import TemporaryFile

from ci.commands.options import add_format
from ci.commands.recorded import add_recorded, recorded_session
from ci.errors import UsageError
from ci.run.session import Session
from ci.util.terminal import show, standard_output_to

LONGEST_OUTPUT = 1 << 20  # bytes in a JSON document


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add all options of the command."""
    parser.description = (
        "Recreate the environment of an earlier run, and open a shell in it: the recorded image,"
        " the sources of the run, the same user, limits, network and devices. The stages before"
        " the tests run first, with the run's compiler cache. Everything is removed when the shell"
        " ends. If the run kept the container of the platform (`run --keep`), the shell opens in"
        " it instead, and it stays. Without a terminal, the commands are read from the standard"
        " input, as `sh` does. The exit code is that of the shell, or 3 if there is none. With"
        " `--format json`, the result of these commands is printed: the exit code, and the last MiB"
        " of what they printed to the standard output."
    )
    add_recorded(parser)
    add_format(parser, "text", "json")


def execute(options: argparse.Namespace) -> int:
    """Open the shell, and return its exit code."""
    if options.format == "json" and sys.stdin.isatty():
        message = "shell: --format: got json, expected text: the standard input is a terminal"
        remedy = "Pass the commands on the standard input: echo 'COMMAND' | ..."
        raise UsageError(message, remedy=remedy)
    with recorded_session(options, "shell") as session:
        return _report(session) if options.format == "json" else session.shell()


def _report(session: Session) -> int:
    """Run the shell, and print what became of it."""
    with TemporaryFile() as file:
        with standard_output_to(file):
            code = session.shell()
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - LONGEST_OUTPUT))
        output = file.read().decode(errors="replace")
    recorded = session.recorded
    document = {
        "run_id": recorded.request.run_id,
        "platform": recorded.result.platform,
        "exit_code": code,
        "output": output,
        "output_bytes": size,
    }
    show(json.dumps(document, indent=2))
    return code
