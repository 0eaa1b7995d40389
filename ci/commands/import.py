"""``python -m ci import``."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from ci.commands.options import add_format, add_results
from ci.errors import CiError, ExitCode, InfrastructureError
from ci.model.results import RunResult
from ci.plan.load import load_accepted
from ci.report.table import ResultsReport
from ci.store.folder import make_folder, open_store
from ci.store.importing import Importer, ImportOutcome, find_run_folders, is_delegated
from ci.util.invocation import ACCEPTED_FILE
from ci.util.terminal import show, show_error
from ci.util.text import counted, os_reason

if TYPE_CHECKING:  # it imports SQLAlchemy
    from ci.store.store import Store


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add all options of the command."""
    parser.description = (
        "Import runs from other machines, or unpacked artifacts of a CI system, and the acceptances"
        " in a project's file ci-accepted.yaml. Importing a run again changes nothing, unless"
        " --resume has completed more of it since: then the run is updated. `latest` remains the"
        " run that began last. The files of Jobs that `manifest` printed here are judged first."
    )
    parser.add_argument(
        "folders",
        nargs="+",
        type=Path,
        metavar="DIR",
        help="the folder of a run (results/<run id>), or a folder that contains several; the report"
        " of a kit, a file .tar.gz; or a file ci-accepted.yaml",
    )
    parser.add_argument(
        "--replace",
        action="store_true",
        help="if a run is already here with other results, replace them with those of DIR",
    )
    add_format(parser, "table", "json")
    add_results(parser)


def execute(options: argparse.Namespace) -> int:
    """Import every valid run; report each refused one and continue with the others."""
    errors: list[CiError] = []
    taken: Counter[ImportOutcome] = Counter()
    listed, accepted = [], []
    files = [it for it in options.folders if it.name == ACCEPTED_FILE and not it.is_dir()]
    named = [it for it in options.folders if it not in files]
    make_folder(options.results)
    with (
        open_store(options.results) as store,
        ExitStack() as unpacked,
        Importer(
            results=options.results,
            store=store,
            render=lambda run: ResultsReport(run).markdown(),
            replace=options.replace,
        ) as importer,
    ):
        for path in files:
            try:
                accepted.append(_import_accepted(path, store, options.format))
            except CiError as error:
                errors.append(_report_refusal(path, error))
        for folder in _folders(named, unpacked, errors):
            try:
                if is_delegated(options.results, folder):
                    run, outcome, notes = _judge_jobs(folder, options.results)
                else:
                    run, outcome, notes = importer.import_run(folder)
            except (CiError, OSError) as error:
                errors.append(_report_refusal(folder, error))
                continue
            taken[outcome] += 1
            verdicts = {it.platform: it.verdict.product for it in run.platforms}
            data = {"run_id": run.run_id, "change": outcome, "platforms": verdicts, "notes": notes}
            listed.append(data)
            if options.format == "table":
                products = ", ".join(f"{platform} {how}" for platform, how in verdicts.items())
                show(f"{run.run_id}: {outcome}: {products}")
                for note in notes:
                    show(f"  {note}")
    if options.format == "json":
        show(json.dumps({"runs": listed, "accepted": accepted, "refused": len(errors)}, indent=2))
    elif taken.total() + len(errors) > 1:  # 3 runs imported, 1 run already here, 1 refused
        parts = [f"{counted(taken[it], 'run')} {it}" for it in ImportOutcome if taken[it]]
        show(", ".join([*parts, *([f"{len(errors)} refused"] if errors else [])]))
    return max((error.exit_code for error in errors), default=ExitCode.PASSED)


def _judge_jobs(folder: Path, results: Path) -> tuple[RunResult, ImportOutcome, list[str]]:
    """Judge what the Jobs of a run wrote."""
    from ci.run.delegated import judge_jobs  # plans the run again; other imports do not

    earlier, now = judge_jobs(folder, results)
    is_same = earlier.platforms == now.platforms
    return now, ImportOutcome.UNCHANGED if is_same else ImportOutcome.NEW, []


def _import_accepted(path: Path, store: Store, form: str) -> dict[str, object]:
    """Replace the store's copy of a project's acceptances; return the data for JSON."""
    file = load_accepted(path)
    is_new = store.mirror_accepted(file.project, file.accepted)
    count = counted(len(file.accepted), "acceptance")
    if form == "table":
        here = "imported" if is_new else "already here"
        show(f"{path}: {count} of {file.project} {here}")
    return {"project": file.project, "count": len(file.accepted), "changed": is_new}


def _folders(named: Sequence[Path], unpacked: ExitStack, errors: list[CiError]) -> Iterator[Path]:
    for path in named:
        try:
            yield from find_run_folders(_unpacked(path, unpacked))
        except (CiError, OSError) as error:
            errors.append(_report_refusal(path, error))


def _report_refusal(folder: Path, error: CiError | OSError) -> CiError:
    """Print why a folder was not imported; return the error with its exit code."""
    if not isinstance(error, CiError):
        error = InfrastructureError(f"{folder}: {os_reason(error)}")
    show_error(error)
    return error


def _unpacked(path: Path, stack: ExitStack) -> Path:
    """Return the folder of a report, until ``stack`` ends; other paths as they are."""
    if path.is_dir() or not path.name.endswith((".tar.gz", ".tgz")):
        return path
    from ci.upkeep.kit.archive import unpack_report  # other imports need no engines

    return stack.enter_context(unpack_report(path))
