"""``python -m ci export``."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from pathlib import Path

from ci.commands.options import add_choice, add_results, choice_of, platform_name
from ci.commands.reading import reading_store
from ci.errors import ExitCode, UsageError
from ci.model.platforms import PLATFORMS
from ci.store.exporting import TABLES, WRITERS, export
from ci.store.folder import make_folder
from ci.util.terminal import show
from ci.util.text import counted


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add all options of the command."""
    parser.description = (
        "Write the runs of the store as flat tables for pandas, DuckDB or a spreadsheet, one file"
        " per table. Join tables on `run_id` and `platform`. Column names end with their units:"
        " `_s` for seconds, `_bytes` for bytes. Times are UTC."
    )
    add_choice(parser, "--format", WRITERS, required=True, help="file format")
    parser.add_argument(
        "--output", type=Path, metavar="FOLDER", required=True, help="folder to write the files to"
    )
    parser.add_argument(
        "--table",
        action="append",
        type=choice_of(TABLES),
        metavar="TABLE",
        help=f"one of {', '.join(TABLES)}. Repeatable (default: all; `tests` is by far the"
        " largest)",
    )
    parser.add_argument(
        "--run", action="append", metavar="RUN", help="run id. Repeatable (default: all)"
    )
    parser.add_argument(
        "--since",
        type=_parse_time,
        metavar="TIME",
        help="only runs that began at this time or later: 2026-01-31, 2026-01-31T12:00+08:00. UTC"
        " unless it has a zone",
    )
    parser.add_argument(
        "--platform",
        action="append",
        type=_parse_platform,
        metavar="PLATFORM",
        help="only results of this platform. Repeatable (default: all)",
    )
    add_results(parser)


def _parse_platform(text: str) -> str:
    return choice_of(PLATFORMS)(platform_name(text))


def _parse_time(text: str) -> datetime:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        message = f"got '{text}', expected a date or time such as 2026-01-31"
        raise argparse.ArgumentTypeError(message) from None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def execute(options: argparse.Namespace) -> int:
    """Export the selected runs, oldest first, and print the files that were written."""
    with reading_store(options.results) as store:
        named = {store.load(run).run_id for run in options.run or ()}
        run_ids = [
            head.run_id
            for head in reversed(store.heads())
            if (not named or head.run_id in named)
            and (not options.since or head.started_at >= options.since)
            and (not options.platform or set(options.platform) & set(head.platforms))
        ]
        if not run_ids:
            message = "export: no run matches --run, --since and --platform"
            raise UsageError(message, remedy="Leave out --since or --platform.")
        make_folder(options.output, "--output")
        files = {
            options.output / f"{name}.{options.format}": TABLES[name]
            for name in options.table or TABLES
        }
        written = export(store, run_ids, files, options.platform or ())
    count = len(run_ids) - len(store.skipped)
    for path, rows in written.items():
        show(f"{path}: {counted(rows, 'row')} of {counted(count, 'run')}")
    return ExitCode.INFRASTRUCTURE if store.skipped else ExitCode.PASSED
