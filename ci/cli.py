"""The command line: ``python -m ci``."""

from __future__ import annotations

import argparse
import errno
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ci.commands.options import add_config, add_results, add_source
from ci.errors import CiError, ExitCode
from ci.invocation import command, under_way
from ci.store import existing_store

EXIT_CODES = """exit codes:
  0    every requested platform was built and passed its tests
  1    product failure: build or tests
  2    wrong command line or configuration
  3    infrastructure failure (engine, image, network, a program that is missing here), or a
       fault of this program
  4    a regression, where compare or history was told to fail on one
  130  interrupted
"""


@dataclass(frozen=True, kw_only=True)
class Command:
    """One command, which is imported when its options are added."""

    help: str
    add_options: Callable[[argparse.ArgumentParser], None]


def _run(parser: argparse.ArgumentParser) -> None:
    from ci.commands import run

    run.add_options(parser)


def _bundle(parser: argparse.ArgumentParser) -> None:
    from ci.bundle import command

    command.add_options(parser)
    add_source(parser)
    add_config(parser)


def _report(parser: argparse.ArgumentParser) -> None:
    from ci.commands import report

    report.add_options(parser)


def _compare(parser: argparse.ArgumentParser) -> None:
    from ci.comparison import command

    command.add_options(parser, existing_store)
    add_results(parser)


def _contract(parser: argparse.ArgumentParser) -> None:
    from ci.commands import contract

    contract.add_options(parser)


def _history(parser: argparse.ArgumentParser) -> None:
    from ci.history import command

    command.add_options(parser, existing_store)
    add_results(parser)


def _import(parser: argparse.ArgumentParser) -> None:
    from ci.exchange import import_command

    import_command.add_options(parser)
    add_results(parser)


def _export(parser: argparse.ArgumentParser) -> None:
    from ci.exchange import export_command

    export_command.add_options(parser, existing_store)
    add_results(parser)


def _platforms(parser: argparse.ArgumentParser) -> None:
    from ci.commands import platforms

    platforms.add_options(parser)


def _doctor(parser: argparse.ArgumentParser) -> None:
    from ci.doctor import add_doctor

    add_doctor(parser)
    add_config(parser)
    add_results(parser)


def _gc(parser: argparse.ArgumentParser) -> None:
    from ci.gc import add_gc

    add_gc(parser)
    add_config(parser)
    add_results(parser)


def _schema(parser: argparse.ArgumentParser) -> None:
    from ci.commands import schema

    schema.add_options(parser)


COMMANDS: Mapping[str, Command] = {
    "run": Command(help="build and test platforms", add_options=_run),
    "bundle": Command(help="pack platforms into a file, to run them offline", add_options=_bundle),
    "report": Command(help="show the results of a run", add_options=_report),
    "compare": Command(help="show what changed between runs or platforms", add_options=_compare),
    "contract": Command(
        help="write what a platform's tests are expected to do", add_options=_contract
    ),
    "history": Command(help="show what a platform's runs cost over time", add_options=_history),
    "import": Command(help="take over runs that were made elsewhere", add_options=_import),
    "export": Command(help="write runs as tables, for pandas or DuckDB", add_options=_export),
    "platforms": Command(help="list the configured platforms", add_options=_platforms),
    "doctor": Command(help="check what runs of platforms need", add_options=_doctor),
    "gc": Command(help="remove what earlier runs left, by age and size", add_options=_gc),
    "schema": Command(help="print the JSON schema of ci.yaml", add_options=_schema),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    options = _parsed(words)
    with under_way(options):
        return _carry_out(options)


def _carry_out(options: argparse.Namespace) -> int:
    try:
        return int(options.command(options))
    except CiError as error:
        from ci.network import mask_credentials  # with the models of the configuration: 0.1 s

        print(f"error: {mask_credentials(str(error))}", file=sys.stderr)
        if error.remedy:
            print(error.remedy, file=sys.stderr)
        return error.exit_code
    except OSError as error:  # a full disk, a folder that is not ours
        print(f"error: {error}", file=sys.stderr)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            remedy = f"Make room there; `{command('gc')}` removes what earlier runs have left."
            print(remedy, file=sys.stderr)
        return ExitCode.INFRASTRUCTURE
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return ExitCode.INTERRUPTED


def _parsed(words: Sequence[str]) -> argparse.Namespace:
    """Parse the command line; a wrong word gets a hint. Exits with 2 where there is one."""
    asked = next((word for word in words if not word.startswith("-")), None)
    parser, command = _parsers(asked)
    if asked is not None and command is None:
        parser.error(f"unknown command '{asked}', {_expected(asked, COMMANDS)}")
    known = re.findall(r"--?[a-z-]+", (command or parser).format_usage())
    if asked is None and (unknown := [word for word in words if word not in (*known, "--help")]):
        parser.error("; ".join(_unknown(word, ["--help"]) for word in unknown))
    options, unknown = parser.parse_known_args(words)
    if unknown:
        (command or parser).error("; ".join(_unknown(word, known) for word in unknown))
    return options


def _unknown(word: str, known: Iterable[str]) -> str:
    from ci.text import near_match

    kind = "option" if word.startswith("-") else "argument"
    return f"unknown {kind} '{word}'{near_match(word.partition('=')[0], known)}"


def _expected(name: str, known: Iterable[str]) -> str:
    from ci.text import near_match

    return f"expected one of {', '.join(known)}{near_match(name, known)}"


def _parsers(
    asked: str | None,
) -> tuple[argparse.ArgumentParser, argparse.ArgumentParser | None]:
    """Only the command that is asked for has options, and is imported: all take 0.5 s."""
    parser = argparse.ArgumentParser(
        prog="python -m ci",
        description="Build and test a project on its platforms, and report the results.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    chosen = None
    for name, known in COMMANDS.items():
        added = commands.add_parser(name, help=known.help, allow_abbrev=False)
        if name == asked:
            known.add_options(added)
            chosen = added
    return parser, chosen
