"""The report of a kit: the outcomes of its steps, their summary, and one file to bring back."""

from __future__ import annotations

import tarfile
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from ci.report.document import Table
from ci.store.folder import DATABASE, LOCK_FILE
from ci.upkeep.kit.document import KitDocument
from ci.upkeep.kit.steps import KitStep, KitStepOutcome
from ci.util.files import files_below, open_for_replacement, write_atomically

OUTCOMES = "steps.json"
SUMMARY = "summary.md"
_OUTCOMES = TypeAdapter(tuple[KitStepOutcome, ...])
# An import needs neither: its own store gets the rows.
NOT_PACKED = (DATABASE, LOCK_FILE)


def read_outcomes(report: Path) -> tuple[KitStepOutcome, ...]:
    """Return the outcomes of earlier steps; none if there is no report, or a damaged one."""
    try:
        return _OUTCOMES.validate_json((report / OUTCOMES).read_bytes())
    except (OSError, ValidationError):
        return ()


def write_outcomes(report: Path, outcomes: Sequence[KitStepOutcome]) -> None:
    """Write the outcomes, so that an interrupted kit has those of the finished steps."""
    write_atomically(report / OUTCOMES, _OUTCOMES.dump_json((*outcomes,), indent=1).decode())


def with_outcome(
    earlier: Sequence[KitStepOutcome], outcome: KitStepOutcome, steps: Sequence[KitStep]
) -> tuple[KitStepOutcome, ...]:
    """Return the newest outcome of each step, in the order of ``steps``."""
    newest = {it.step: it for it in (*earlier, outcome)}
    return tuple(newest[it.name] for it in steps if it.name in newest)


def summary(outcomes: Sequence[KitStepOutcome]) -> Table:
    """Return the table of all steps."""
    return Table(
        headings=("Step", "Result", "Exit code", "Seconds", "Note"),
        rows=[
            (it.step, it.result, str(it.exit_code), f"{it.seconds:.0f}", it.note) for it in outcomes
        ],
        numbers=("Exit code", "Seconds"),
    )


def pack_report(report: Path, kit: KitDocument, now: datetime) -> Path:
    """Pack the regular files of a report beside it; return the file."""
    name = f"report-{kit.platform}-{now:%Y%m%dT%H%M%SZ}"
    path = report.parent / f"{name}.tar.gz"
    with open_for_replacement(path) as file, tarfile.open(fileobj=file, mode="w:gz") as archive:
        for each in files_below(report):
            if each.name not in NOT_PACKED:
                archive.add(each, f"{name}/{each.relative_to(report)}", recursive=False)
    return path
