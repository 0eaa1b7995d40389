"""``python -m ci run-kit``."""

from __future__ import annotations

import argparse
import os
from datetime import UTC, datetime
from pathlib import Path

from ci.errors import ExitCode, UsageError
from ci.report.document import Heading, markdown, output, print_document
from ci.store.folder import make_folder
from ci.upkeep.bundle.unpack import open_bundle
from ci.upkeep.kit.carry_out import KitRun
from ci.upkeep.kit.document import BUNDLE, REPORT, read_kit
from ci.upkeep.kit.report import (
    SUMMARY,
    pack_report,
    read_outcomes,
    summary,
    with_outcome,
    write_outcomes,
)
from ci.upkeep.kit.steps import choose_steps, kit_exit_code, steps_of
from ci.util.files import write_atomically
from ci.util.interpreters import locate, read_interpreter
from ci.util.terminal import show


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add all options of the command."""
    parser.description = (
        "Carry out the steps of a kit on this machine: its file `run` does that after it has"
        " checked the kit. A step that fails does not stop the others."
    )
    parser.add_argument("kit", type=Path, metavar="KIT", help="a folder that `kit` made")
    parser.add_argument(
        "steps", nargs="*", metavar="STEP", help="the steps to carry out (default: all)"
    )
    parser.add_argument(
        "--python",
        metavar="PATH",
        help="the Python with the vendor's torch (default: the first known one that has torch)",
    )


def execute(options: argparse.Namespace) -> int:
    """Carry out the steps, print the summary and pack the report."""
    kit = options.kit.resolve()
    document = read_kit(kit)
    steps = steps_of(document)
    chosen = choose_steps(steps, options.steps)
    python = options.python and locate(options.python)
    if python and isinstance(wrong := read_interpreter(python), str):
        raise UsageError(f"--python: {wrong}", remedy="Name the Python with the vendor's torch.")
    report = kit / REPORT
    make_folder(report / "results")
    outcomes, done = read_outcomes(report), []
    with open_bundle(kit / BUNDLE, [document.platform]) as bundle:
        run = KitRun(kit=kit, document=document, bundle=bundle, report=report, python=python)
        for step in chosen:
            show(f"\n== {step.name}: {step.about}")
            done.append(run.carry_out(step, outcomes))
            outcomes = with_outcome(outcomes, done[-1], steps)
            write_outcomes(report, outcomes)
            if done[-1].exit_code == ExitCode.INTERRUPTED:
                break
    table = summary(outcomes)
    show()
    print_document([[table]], output())
    title = Heading(1, f"{document.project} on {document.platform}")
    write_atomically(report / SUMMARY, markdown([[title, table]]))
    packed = pack_report(report, document, datetime.now(UTC))
    show(f"\nbring back: {os.path.relpath(packed)}")
    return kit_exit_code(done)
