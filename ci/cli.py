"""The command line: ``python -m ci``."""

from __future__ import annotations

import argparse
import errno
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from types import ModuleType

from ci import __version__
from ci.errors import CiError, ExitCode
from ci.util.invocation import INSTALLED_NAME, PROGRAM_NAME, command, remember_options
from ci.util.terminal import complain, discard_output, show_error, workflow_commands_stopped
from ci.util.text import near_match, os_reason

EXIT_CODES = """exit codes:
  0    every requested platform was built and passed its tests
  1    product failure: build or tests; with gate: a rule of the release failed
  2    wrong command line or configuration
  3    infrastructure failure (engine, image, network, a missing program), or an internal error of
       this program
  4    a regression, with compare --fail-on or history --check; an alarm that rerun-alarm confirms;
       with gate: nothing but regressions stands against the release
  130  interrupted
  141  the reader of the output has ended
"""


# Each is a module of ``ci.commands``. Only the requested one is imported: all take 0.5 s.
COMMANDS: Mapping[str, str] = {
    "init": "write ci.yaml for a project",
    "run": "build and test platforms",
    "bundle": "pack platforms into a file to run them offline",
    "report": "show the results of a run or a commit",
    "gate": "decide whether a release may be published",
    "compare": "show what changed between runs or platforms",
    "contract": "write the expected outcomes of a platform's tests",
    "history": "show what the runs of a platform cost over time",
    "alarms": "list the alarms of all platforms, or set the state of one",
    "accept": "accept a rise of cost",
    "withdraw": "no longer accept a rise of cost",
    "flaky": "show the flaky tests of a platform",
    "dashboard": "write the history as pages to look at in a browser",
    "capacity": "estimate how long commits wait for hosts, and what they cost",
    "shell": "open a shell in the environment of a run",
    "rerun": "run the tests of a run again, or one of them, in its environment",
    "bisect": "find the commit that made a stage slower or a test fail",
    "rerun-alarm": "run both sides of an alarm of `history` again",
    "import": "import runs from other machines",
    "export": "write runs as tables for pandas or DuckDB",
    "platforms": "list the configured platforms",
    "matrix": "list the platforms with the CI runners that they need",
    "manifest": "print the jobs of platforms for Kubernetes or Slurm",
    "doctor": "check that this machine has what runs need",
    "gc": "remove leftovers of earlier runs by age and size",
    "schema": "print the JSON schema of ci.yaml or of a file of results",
    "completion": "print a script with which a shell completes command lines",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    words = _present_spelling(sys.argv[1:] if arguments is None else arguments)
    try:
        options = _parse_options(words)
    except CiError as error:  # imports read ci/platforms
        show_error(error)
        return error.exit_code
    with remember_options(options), workflow_commands_stopped(os.environ):
        return _execute(options)


def _present_spelling(words: Sequence[str]) -> Sequence[str]:
    """Return ``accept cpu RUN`` for ``history cpu --accept RUN``, which is an earlier spelling."""
    for place, word in enumerate(words):
        option, _, value = word.partition("=")
        if words[0] == "history" and option in ("--accept", "--withdraw", "--flaky"):
            end = place + (1 if value or option == "--flaky" else 2)
            run = [value] if value else words[place + 1 : end]
            return [option.removeprefix("--"), *words[1:place], *words[end:], *run]
    return words


def _execute(options: argparse.Namespace) -> int:
    try:
        code = int(options.execute(options))
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        discard_output(sys.stdout)  # else the flush at the end fails, too
        return ExitCode.OUTPUT_CLOSED
    except CiError as error:
        show_error(error)
        return error.exit_code
    except OSError as error:  # a full disk, a folder without permission
        is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        room = f"Make room there: `{command('gc')}` removes leftovers of earlier runs."
        show_error(os_reason(error), room if is_full else None)
        return ExitCode.INFRASTRUCTURE
    except KeyboardInterrupt:
        complain("interrupted")
        return ExitCode.INTERRUPTED


def _parse_options(words: Sequence[str]) -> argparse.Namespace:
    """Parse the command line; exits with 2 and a hint at a wrong word."""
    parser = argparse.ArgumentParser(
        prog=PROGRAM_NAME,
        description="Build and test a project on its platforms, and report the results.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"{INSTALLED_NAME} {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, help_text in COMMANDS.items():
        commands.add_parser(name, help=help_text, allow_abbrev=False)
    asked = next((word for word in words if not word.startswith("-")), None)
    chosen = parser
    if asked is not None:
        if asked not in COMMANDS:
            expected = f"expected one of {', '.join(COMMANDS)}{near_match(asked, COMMANDS)}"
            parser.error(f"unknown command '{asked}', {expected}")
        module, chosen = command_module(asked), commands.choices[asked]
        module.add_options(chosen)
        chosen.set_defaults(execute=module.execute)
    known = re.findall(r"--?[a-z-]+", chosen.format_usage())
    if asked is None and (unknown := [word for word in words if word not in (*known, "--help")]):
        parser.error("; ".join(_unknown_word(word, ["--help"]) for word in unknown))
    options, unknown = parser.parse_known_args(words)
    if unknown:
        chosen.error("; ".join(_unknown_word(word, known) for word in unknown))
    return options


def command_module(name: str) -> ModuleType:
    """The module of a command, with its options and what it does."""
    return import_module(f"ci.commands.{name.replace('-', '_')}")


def _unknown_word(word: str, known: Iterable[str]) -> str:
    kind = "option" if word.startswith("-") else "argument"
    return f"unknown {kind} '{word}'{near_match(word.partition('=')[0], known)}"
