"""Tells which torches the library works with: ``nox -s compat``.

Nothing of the machine's own Python is touched: every torch gets a folder of its own in
``--work-dir``, which the next run uses again.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from tests.compat.torches import Outcome, Step, check_torch

OLD = ("2.4.1", "2.5.1", "2.6.0")
NEW = ("2.14.1",)
HEADINGS = ("torch", "operators", "overloads", "skipped", "CPU-s")
STEPS = ("compiled", "imported", "smoke", "suite")


def main(arguments: Sequence[str] | None = None) -> int:
    """Checks every torch; returns 0 if all of them passed, else 1."""
    options = _parser().parse_args(arguments)
    outcomes: list[Outcome] = []
    for version in options.versions:
        headers_only = options.headers_only or version in OLD
        folder = options.work_dir.resolve() / version
        outcome = check_torch(version, folder, headers_only=headers_only, full=options.full)
        outcomes.append(outcome)
        for step in outcome.failed():
            print(f"\ntorch {version}: {step.name} failed; {step.log}:\n{step.last_lines}\n")
    _write(outcomes, options.work_dir)
    return 0 if all(not outcome.failed() for outcome in outcomes) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="nox -s compat --", description=__doc__.partition("\n")[0], allow_abbrev=False
    )
    parser.add_argument(
        "versions",
        nargs="*",
        type=_version,
        default=[*OLD, *NEW],
        metavar="VERSION",
        help=f"a release of torch, like 2.13.0 (default: {' '.join((*OLD, *NEW))})",
    )
    parser.add_argument(
        "--headers-only",
        action="store_true",
        help=f"compile against the headers, install nothing; always so for {', '.join(OLD)}",
    )
    parser.add_argument("--full", action="store_true", help="run the operator suite too")
    parser.add_argument(
        "--work-dir",
        type=Path,
        required=True,
        metavar="DIR",
        help="where torches, builds, logs and results lie",
    )
    return parser


def _version(text: str) -> str:
    if not re.fullmatch(r"\d+(\.\w+)+", text):
        raise argparse.ArgumentTypeError(
            f"'{text}' is no release of torch; expected one like 2.13.0"
        )
    return text


def _write(outcomes: Sequence[Outcome], folder: Path) -> None:
    table = "\n".join(_table(outcomes)) + "\n"
    print(table)
    (folder / "results.md").write_text(table)
    content = json.dumps([asdict(outcome) for outcome in outcomes], indent=1, default=str)
    (folder / "results.json").write_text(content + "\n")
    print(f"results and logs: {folder}")


def _table(outcomes: Sequence[Outcome]) -> Iterator[str]:
    headings = (*HEADINGS, *STEPS, "failed")
    yield f"| {' | '.join(headings)} |"
    yield "|---" * len(headings) + "|"
    for outcome in outcomes:
        yield f"| {' | '.join(_cells(outcome))} |"


def _cells(outcome: Outcome) -> Iterator[str]:
    steps = {step.name: step for step in outcome.steps}
    counts = (outcome.operators, outcome.overloads, outcome.skipped)
    yield outcome.torch
    yield from ("" if count is None else f"{count:,}" for count in counts)
    yield f"{steps['compiled'].cpu_s:.1f}" if "compiled" in steps else ""
    yield from (_cell(steps.get(name)) for name in STEPS)
    yield ", ".join(step.name for step in outcome.failed())


def _cell(step: Step | None) -> str:
    if step is None:
        return "not run"
    return step.summary or ("yes" if step.exit_code == 0 else "no")


if __name__ == "__main__":
    sys.exit(main())
