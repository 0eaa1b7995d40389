"""``python -m ci completion``, and the answers to a shell that completes a command line.

Importing the commands takes up to a second, too long for a key press. So the answers come from
``ci/options.json``, which ``python -m tests.docs`` generates from the parsers of all commands.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from ci.commands.options import add_choice
from ci.errors import ExitCode
from ci.util.invocation import INSTALLED_NAME, RESULTS, RESULTS_VARIABLE
from ci.util.terminal import show

SHELLS = ("bash", "zsh", "fish")
OPTIONS_FILE = Path(__file__).parents[1] / "options.json"
PLATFORM_FILES = OPTIONS_FILE.parent / "platforms"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add all options of the command."""
    name = INSTALLED_NAME
    parser.description = (
        f"Print a script with which a shell completes the command lines of `{name}`: commands,"
        " options, choices, platforms, runs and files. To load it at each start of the shell, add"
        f' `eval "$({name} completion bash)"` to ~/.bashrc, or `eval "$({name} completion'
        f' zsh)"` to ~/.zshrc, after `compinit`, or `{name} completion fish | source` to'
        " ~/.config/fish/config.fish."
    )
    add_choice(parser, "shell", SHELLS, help="the shell")


def execute(options: argparse.Namespace) -> int:
    """Print the script."""
    from argcomplete.shell_integration import shellcode

    # By its name, it is found on PATH: a script that runs the typed word would run `./infini-ci`,
    # which may be a file of a repository.
    show(
        shellcode([INSTALLED_NAME], shell=options.shell, argcomplete_script=INSTALLED_NAME), end=""
    )
    return ExitCode.PASSED


def answer_shell() -> None:
    """Write the completions that a shell asks for, and end this process."""
    from argcomplete import autocomplete

    parser = argparse.ArgumentParser(prog=INSTALLED_NAME, allow_abbrev=False)
    commands = parser.add_subparsers()
    for name, command in json.loads(OPTIONS_FILE.read_text(encoding="utf-8")).items():
        known = commands.add_parser(name, help=command["help"], allow_abbrev=False)
        for argument in command["arguments"]:
            values = argument.pop("values", ())
            action: Any = known.add_argument(*argument.pop("names"), **argument)
            action.completer = _completer(values)
    autocomplete(parser, always_complete_options=False)


def _completer(values: str | Sequence[str]) -> Callable[..., Iterable[str]]:
    """Return what finds the values of an argument."""
    from argcomplete.completers import DirectoriesCompleter, FilesCompleter

    def names(*, parsed_args: argparse.Namespace, **_: object) -> Iterable[str]:
        match values:
            case "platforms":
                return sorted(path.stem for path in PLATFORM_FILES.glob("*.toml"))
            case "runs":
                return _runs(getattr(parsed_args, "results", None))
        return values

    match values:
        case "files":
            return FilesCompleter()
        case "folders":
            return DirectoriesCompleter()
    return names


def _runs(results: str | None) -> list[str]:
    """Return ``latest`` and the runs in a folder of results, the newest first.

    Their names begin with a time. An imported run has no ``request.json``.
    """
    folder = Path(results or os.environ.get(RESULTS_VARIABLE) or RESULTS)
    return sorted({path.parent.name for path in folder.glob("*/re*s*t*.json")}, reverse=True)
