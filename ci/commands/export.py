"""``python -m ci export``."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ci.commands.options import add_choice, add_results, choice_of, platform_name
from ci.commands.reading import reading_store
from ci.errors import ExitCode, UsageError
from ci.facts.contract import load_contract
from ci.facts.operator_pairs import is_proof
from ci.model.platforms import PLATFORMS
from ci.report.capabilities import (
    CapabilityDocument,
    PlatformCapabilities,
    from_contract,
    from_run,
    of_platforms,
)
from ci.store.exporting import TABLES, WRITERS, export
from ci.store.folder import make_folder
from ci.util.files import write_atomically
from ci.util.terminal import show
from ci.util.text import counted

if TYPE_CHECKING:  # it imports SQLAlchemy
    from ci.store.rows import RunHead
    from ci.store.store import Store


CAPABILITIES = "capabilities"
SUPPORT_MATRIX = "support-matrix"
DOCUMENTS = {CAPABILITIES: "capabilities.json", SUPPORT_MATRIX: "support-matrix.html"}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add all options of the command."""
    parser.description = (
        "Write the runs of the store as flat tables for pandas, DuckDB or a spreadsheet, one file"
        " per table. Join tables on `run_id` and `platform`. Column names end with their units:"
        " `_s` for seconds, `_bytes` for bytes. Times are UTC. The formats capabilities and"
        " support-matrix have the data types with which each platform passes each operator in its"
        " newest run: a JSON document, and a page."
    )
    formats = (*WRITERS, *DOCUMENTS)
    add_choice(parser, "--format", formats, required=True, help="format of the files")
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
    parser.add_argument(
        "--contract",
        action="append",
        type=Path,
        metavar="FILE",
        help="with capabilities and support-matrix: read this contract of a platform instead of the"
        " runs. Repeatable",
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
    if options.format in DOCUMENTS:
        return _write_document(options)
    if options.contract:
        message = f"--contract: got --format {options.format}, expected {' or '.join(DOCUMENTS)}"
        raise UsageError(message, remedy="Leave out --contract.")
    with reading_store(options.results) as store:
        run_ids = [head.run_id for head in reversed(_selected_heads(store, options))]
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


def _selected_heads(store: Store, options: argparse.Namespace) -> list[RunHead]:
    """The selected runs, newest first; raises ``UsageError`` if there is none."""
    named = {store.load(run).run_id for run in options.run or ()}
    heads = [
        head
        for head in store.heads()
        if (not named or head.run_id in named)
        and (not options.since or head.started_at >= options.since)
        and (not options.platform or set(options.platform) & set(head.platforms))
    ]
    if not heads:
        message = "export: no run matches --run, --since and --platform"
        raise UsageError(message, remedy="Leave out --since or --platform.")
    return heads


def _write_document(options: argparse.Namespace) -> int:
    """Write what the platforms pass, and print the file."""
    if options.table:
        message = f"--table: got --format {options.format}, expected {' or '.join(WRITERS)}"
        raise UsageError(message, remedy="Leave out --table.")
    skipped = False
    if options.contract:
        found = _of_contracts(options)
    else:
        with reading_store(options.results) as store:
            found = _of_runs(store, options)
            skipped = bool(store.skipped)
    make_folder(options.output, "--output")
    path = options.output / DOCUMENTS[options.format]
    if options.format == CAPABILITIES:
        text = found.to_json()
    else:
        from ci.report.dashboard.support import support_page  # Jinja2: 0.1 s

        text = support_page(found)
    write_atomically(path, text)
    show(f"{path}: {counted(len(found.platforms), 'platform')}")
    return ExitCode.INFRASTRUCTURE if skipped else ExitCode.PASSED


def _of_contracts(options: argparse.Namespace) -> CapabilityDocument:
    if options.run or options.since:
        message = "--contract: got --run or --since, expected no selection of runs"
        raise UsageError(message, remedy="Leave out --contract, or the others.")
    contracts = [load_contract(file) for file in options.contract]
    chosen = [it for it in contracts if not options.platform or it.platform in options.platform]
    if not chosen:
        message = "export: no contract is of a --platform"
        raise UsageError(message, remedy="Leave out --platform.")
    return of_platforms([from_contract(it) for it in chosen])


def _of_runs(store: Store, options: argparse.Namespace) -> CapabilityDocument:
    """The newest run of each platform that proves what it passes, of the newest run's project."""
    heads = [head for head in _selected_heads(store, options) if head.asked_by is None]
    project = heads[0].project if heads else None
    found: dict[str, PlatformCapabilities] = {}
    for head in heads:
        wanted = {it for it in head.whole if not options.platform or it in options.platform}
        if head.project != project or wanted <= found.keys():
            continue
        if (run := store.load_or_skip(head.run_id)) is None:
            continue
        for result in run.platforms:
            if result.platform not in wanted - found.keys() or not is_proof(result.verdict):
                continue
            outcomes = store.outcomes(run.run_id, result.platform)
            if outcomes.device is not None:
                found[result.platform] = from_run(run, result, outcomes)
    if not found:
        message = "export: no selected run has complete operator tests of all operators"
        remedy = "Run a platform of a suite with operator tests, or pass its --contract."
        raise UsageError(message, remedy=remedy)
    return of_platforms([*found.values()], project)
