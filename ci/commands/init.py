"""``python -m ci init``."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from ci.commands.options import add_format
from ci.errors import ExitCode, UsageError
from ci.plan.foreign.proposal import PLATFORM, propose
from ci.plan.load import load_config
from ci.util.files import write_atomically
from ci.util.invocation import CONFIG_FILE, command
from ci.util.terminal import show


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add all options of the command."""
    parser.description = (
        "Write ci.yaml for a project that installs with pip and tests with pytest. It is derived"
        " from what pyproject.toml, tox, nox, hatch, setup.cfg and requirements files state about"
        " the tests. Nothing of the project is executed."
    )
    parser.add_argument(
        "source",
        type=Path,
        nargs="?",
        default=Path.cwd(),
        metavar="FOLDER",
        help="the project's folder (default: the current folder)",
    )
    parser.add_argument("--force", action="store_true", help="replace an existing ci.yaml")
    parser.add_argument(
        "--dry-run", action="store_true", help="print the file instead of writing it"
    )
    add_format(parser, "table", "json")


def execute(options: argparse.Namespace) -> int:
    """Write the configuration of a project, and say what it was derived from."""
    folder: Path = options.source
    if not folder.is_dir():
        raise UsageError(f"{folder}: got no folder, expected the folder of a project")
    path = folder / CONFIG_FILE
    if not (options.force or options.dry_run) and (path.exists() or path.is_symlink()):
        raise UsageError(
            f"{path}: got an existing file, expected none", remedy="To replace it, add: --force"
        )
    proposal = propose(folder)
    if not options.dry_run:
        write_atomically(path, proposal.text)
        load_config(path)
    if options.format == "json":
        content = {"file": str(path), "written": not options.dry_run}
        show(json.dumps({**content, **asdict(proposal)}, indent=2))
        return ExitCode.PASSED
    if options.dry_run:
        show(proposal.text, end="")
        return ExitCode.PASSED
    show(f"{path}: written for the platform {PLATFORM}")
    for line in proposal.lines():
        show(f"  {line}")
    for note in proposal.notes:
        show(f"note: {note}")
    show(f"Review it, then run: {command('run', PLATFORM)}")
    return ExitCode.PASSED
