"""``ci/options.json``, from which shells complete command lines: the options of all commands."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping
from typing import Any

from ci import cli
from ci.model.plan import EngineKind
from ci.store.exporting import TABLES

# By the name that the help has for a value. What it has no name for here cannot be completed.
VALUES: Mapping[str, object] = {
    "BASE": "runs",
    "DIR": "folders",
    "ENGINE": [*EngineKind],
    "FILE": "files",
    "FOLDER": "folders",
    "HEAD": "runs",
    "PATH": "files",
    "PLATFORM": "platforms",
    "RUN": "runs",
    "TABLE": [*TABLES],
}


def text() -> str:
    """Return the file, with a line for each argument."""
    made = [_command(name, about) for name, about in cli.COMMANDS.items()]
    return "{\n" + ",\n".join(made) + "\n}\n"


def _command(name: str, about: str) -> str:
    parser = argparse.ArgumentParser(add_help=False)
    cli.command_module(name).add_options(parser)
    shown = [it for it in parser._actions if it.help != argparse.SUPPRESS]
    arguments = ",\n".join(f"  {json.dumps(_argument(it))}" for it in shown)
    return f'{json.dumps(name)}: {{"help": {json.dumps(about)}, "arguments": [\n{arguments}\n]}}'


def _argument(action: argparse.Action) -> dict[str, Any]:
    shown = str(action.metavar)
    values = shown[1:-1].split(",") if shown.startswith("{") else VALUES.get(shown)
    settings = {
        "names": action.option_strings or [action.dest],
        "help": _short(action.help or ""),
        "action": "store_true" if action.nargs == 0 else None,
        "nargs": action.nargs or None,
        "values": values,
    }
    return {name: value for name, value in settings.items() if value is not None}


def _short(text: str) -> str:
    """Return a help text up to its first stop, as a shell shows one line."""
    return re.split(r"[.:;,]? \(|[:;.] ", text)[0].replace("%%", "%").replace("%", "%%")
