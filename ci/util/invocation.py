"""Commands for messages, spelled so that the user can paste them."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TypeVar

from ci.util.files import IS_INSTALLED, PROGRAM_ROOT

# The project that commands are about if they name no other.
REPOSITORY = Path.cwd() if IS_INSTALLED else PROGRAM_ROOT
INSTALLED_NAME = "infini-ci"  # of the distribution, and of its command
PROGRAM_NAME = INSTALLED_NAME if IS_INSTALLED else "python -m ci"
NOX_VARIABLE = "INFINI_CI_NOX"  # set by noxfile.py: how the user started nox
# Sessions named as their commands; those of `run` are not.
SESSIONS = ("report", "compare", "history", "dashboard")
RESULTS_VARIABLE = "INFINI_CI_RESULTS"
RESULTS = Path("results")
CONFIG_FILE = "ci.yaml"
ACCEPTED_FILE = "ci-accepted.yaml"  # beside it
# Commands to which an option of the current command line is passed on.
SOURCE_COMMANDS = ("run", "bundle", "kit", "bisect", "blame", "rerun-alarm", "manifest", "gate")
CONFIG_COMMANDS = (
    *("run", "bundle", "kit", "bisect", "blame", "rerun-alarm", "doctor", "gc", "contract"),
    *("platforms", "manifest", "gate"),
)
RESULTS_COMMANDS = (
    *("run", *SESSIONS, "shell", "rerun", "bisect", "blame", "rerun-alarm", "contract", "import"),
    *("export", "doctor", "capacity", "gc", "gate", "attest", "store"),
)

Value = TypeVar("Value")
_options: ContextVar[argparse.Namespace | None] = ContextVar("_options", default=None)
_elsewhere: ContextVar[bool] = ContextVar("_elsewhere", default=False)


@contextmanager
def _set(variable: ContextVar[Value], value: Value) -> Iterator[None]:
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def remember_options(options: argparse.Namespace) -> AbstractContextManager[None]:
    """Repeat the options of the current command line in the commands that messages name."""
    return _set(_options, options)


def naming_commands_for_others() -> AbstractContextManager[None]:
    """Name commands as a reader on another machine types them: without folders of this one."""
    return _set(_elsewhere, True)


def command(name: str, *words: object) -> str:
    """Return ``python -m ci NAME WORDS``, or another command that does it; quoted for a shell."""
    arguments = [str(word) for word in words]
    if _elsewhere.get():
        return shlex.join([*PROGRAM_NAME.split(), name, *arguments])
    arguments += _same_options(name, arguments)
    nox = os.environ.get(NOX_VARIABLE)
    if nox is None:
        return _python_path() + shlex.join([*_python(), name, *arguments])
    if name == "run":
        platform = arguments and not arguments[0].startswith("-")
        session = f"build-{arguments.pop(0)}" if platform else "release"
    elif name in SESSIONS:
        session = name
    else:  # no session for it: use the Python of the current session
        python = Path(sys.executable)
        shell = Path(os.environ.get("PWD") or Path.cwd()).resolve()  # nox changes the folder
        here = python.is_relative_to(PROGRAM_ROOT) and shell == PROGRAM_ROOT
        shown = python.relative_to(PROGRAM_ROOT) if here else python
        text = shlex.join([str(shown), "-m", "ci", name, *arguments])
        return text if here else f"cd {shlex.quote(str(PROGRAM_ROOT))} && {text}"
    return f"{nox} -s {session}" + (f" -- {shlex.join(arguments)}" if arguments else "")


def _same_options(name: str, arguments: list[str]) -> Iterator[str]:
    """Yield options of the current command line that the command takes too."""
    options = _options.get()
    config: Path | None = getattr(options, "config", None)
    source: Path = getattr(options, "source", None) or REPOSITORY
    if name in CONFIG_COMMANDS and not {"--config", "--resume"} & set(arguments):
        if source != REPOSITORY and name in SOURCE_COMMANDS:
            yield from ("--source", str(source))
        elif source != REPOSITORY and config is None:
            config = source / CONFIG_FILE
        if config is not None:
            yield from ("--config", str(config))
    if name == "history" and source != REPOSITORY and "--source" not in arguments:
        yield from ("--source", str(source))
    if name in RESULTS_COMMANDS and "--results" not in arguments:
        yield from map(str, results_option(getattr(options, "results", RESULTS)))


def results_option(results: Path) -> tuple[str | Path, ...]:
    """Return ``--results FOLDER``; empty for the default folder."""
    usual = results == RESULTS and not os.environ.get(RESULTS_VARIABLE)
    return () if usual else ("--results", results)


def _python() -> list[str]:
    """Return the command line up to the name of a command, as the user typed it."""
    typed = sys.orig_argv
    for position in range(1, len(typed) - 1):
        if typed[position : position + 2] == ["-m", "ci"]:
            return typed[: position + 2]
    return PROGRAM_NAME.split()


def _python_path() -> str:
    """Return ``PYTHONPATH=... ``, if only this variable makes ``ci`` importable.

    That is the case for the program of a bundle.
    """
    value = os.environ.get("PYTHONPATH", "")
    folders = [Path(folder).resolve() for folder in value.split(os.pathsep) if folder]
    needed = PROGRAM_ROOT in folders and Path.cwd() != PROGRAM_ROOT
    return f"PYTHONPATH={shlex.quote(value)} " if needed else ""
