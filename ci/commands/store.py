"""``python -m ci store``."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from ci.commands.options import add_choice, add_format, add_results
from ci.errors import ExitCode, UsageError
from ci.store.folder import RESULTS_FILE, make_folder, open_existing_store, store_url
from ci.store.rows import LATEST
from ci.util.invocation import command
from ci.util.terminal import show
from ci.util.text import counted, join_names

BACKUP, RESTORE, VERIFY = ACTIONS = ("backup", "restore", "verify")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add all options of the command."""
    parser.description = (
        "Back up the store into one file, also while runs are saved; restore a backup into an empty"
        " store, SQLite or PostgreSQL; or verify that every run in the store can be read. The store"
        " is that of INFINI_CI_DB, else the one of --results."
    )
    add_choice(parser, "action", ACTIONS, help="what to do")
    parser.add_argument(
        "file", type=Path, nargs="?", metavar="FILE", help="the file of backup and restore"
    )
    add_results(parser)
    add_format(parser, "table", "json")


def execute(options: argparse.Namespace) -> int:
    """Do it, and print the number of runs; `verify` exits with 3 if anything is wrong."""
    action = options.action
    if (options.file is None) is not (action == VERIFY):
        got = "no FILE, expected one" if options.file is None else f"{options.file}, expected none"
        raise UsageError(f"store {action}: got {got}")
    # Imported here: SQLAlchemy takes 0.3 s, and --help needs none of it.
    from ci.store.backup import back_up, restore

    if action == VERIFY:
        return _verify(options.results, options.format)
    if action == BACKUP:
        open_existing_store(options.results).close()
        runs = back_up(store_url(options.results), options.file)
        done = f"{options.file}: {counted(runs, 'run')} backed up"
    else:
        make_folder(options.results)
        runs = restore(options.file, store_url(options.results))
        done = f"{options.file}: {counted(runs, 'run')} restored"
    if options.format == "json":
        show(json.dumps({"file": str(options.file), "runs": runs}, indent=2))
    else:
        show(done)
    return ExitCode.PASSED


def _verify(results: Path, form: str) -> int:
    from ci.store.backup import problems

    with open_existing_store(results) as store:
        known = {head.run_id for head in store.heads()}
    found = list(problems(store_url(results)))
    folders = {it.parent.name for it in results.glob(f"*/{RESULTS_FILE}")} - {LATEST}
    if missing := sorted(folders - known):
        remedy = command("import", results)
        found.append(
            f"{counted(len(missing), 'run')} in {results} but not in the store:"
            f" {join_names(missing)}. Store them: {remedy}"
        )
    without = len(known - folders)
    if form == "json":
        show(
            json.dumps({"runs": len(known), "without_folder": without, "problems": found}, indent=2)
        )
    else:
        show("\n".join(found) if found else f"{counted(len(known), 'run')}: all can be read")
        if without:
            show(
                f"{counted(without, 'run')} without a folder in {results}: the store alone has them"
            )
    return ExitCode.INFRASTRUCTURE if found else ExitCode.PASSED
