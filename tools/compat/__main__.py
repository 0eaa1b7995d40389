"""Checks which versions of Python and torch the library works with: ``nox -s compat``.

``pythons``, the default, checks every interpreter that it finds. ``torches`` downloads several
versions of torch. The machine's own Pythons stay unchanged: each Python and each torch gets a
folder of its own in ``--work-dir``, which the next run uses again.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from tools.compat.interpreters import find_interpreters, places
from tools.compat.pythons import PythonOutcome, check_python, supported_versions
from tools.compat.steps import Step
from tools.compat.torches import TorchOutcome, check_torch

OLD = ("2.4.1", "2.5.1", "2.6.0")
NEW = ("2.14.1",)
TORCH_STEPS = ("compiled", "imported", "smoke", "suite")
PYTHON_STEPS = ("syntax", "built", "imported", "native")
WITH_TORCH_STEPS = ("built-torch", "native-torch", "smoke-torch", "suite-torch")


def main(arguments: Sequence[str] | None = None) -> int:
    """Check every Python or torch; return 0 if all that were checked passed, else 1."""
    options = _parser().parse_args(arguments)
    return _pythons(options) if options.what == "pythons" else _torches(options)


def _pythons(options: argparse.Namespace) -> int:
    """Check the Pythons; a missing one fails the run if it was named, or if all are missing."""
    work_dir = options.work_dir.resolve()
    outcomes: list[PythonOutcome] = []
    for version in options.versions or supported_versions():
        interpreters = find_interpreters(version)
        if not interpreters:
            note = f"no python{version} in {', '.join(places())}"
            outcomes.append(PythonOutcome(python=version, note=note))
        for interpreter in interpreters:
            outcomes.append(
                check_python(
                    interpreter, work_dir, with_torch=not options.without_torch, full=options.full
                )
            )
            _print_failures(f"Python {interpreter.version}", outcomes[-1].failed())
    steps_shown = (*PYTHON_STEPS, *WITH_TORCH_STEPS)
    headings = ("Python", "interpreter", *steps_shown, "CPU-s", "failed", "note")
    _write("pythons", _table(headings, map(_python_row, outcomes)), outcomes, options.work_dir)
    missing = [outcome.python for outcome in outcomes if not outcome.steps]
    if missing:
        print(f"not checked: Python {', '.join(missing)}", file=sys.stderr)
    unchecked = bool(missing and options.versions) or len(missing) == len(outcomes)
    return 1 if unchecked or any(outcome.failed() for outcome in outcomes) else 0


def _torches(options: argparse.Namespace) -> int:
    outcomes: list[TorchOutcome] = []
    for version in options.versions:
        headers_only = options.headers_only or version in OLD
        folder = options.work_dir.resolve() / version
        outcome = check_torch(version, folder, headers_only=headers_only, full=options.full)
        outcomes.append(outcome)
        _print_failures(f"torch {version}", outcome.failed())
    headings = ("torch", "operators", "overloads", "skipped", "CPU-s", *TORCH_STEPS, "failed")
    _write("torches", _table(headings, map(_torch_row, outcomes)), outcomes, options.work_dir)
    return 0 if all(not outcome.failed() for outcome in outcomes) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="nox -s compat --", description=__doc__.partition("\n")[0], allow_abbrev=False
    )
    parser.add_argument(
        "--work-dir",
        type=Path,
        required=True,
        metavar="DIR",
        help="folder for environments, versions of torch, builds, logs and results",
    )
    commands = parser.add_subparsers(dest="what", metavar="{pythons,torches}")
    defaults = {"what": "pythons", "versions": [], "without_torch": False, "full": False}
    parser.set_defaults(**defaults)  # for a command line without a subcommand
    pythons = commands.add_parser(
        "pythons", help="check this machine's interpreters, without and with torch (the default)"
    )
    pythons.add_argument(
        "versions",
        nargs="*",
        type=_python_version,
        metavar="VERSION",
        help=f"one of {', '.join(supported_versions())} (default: all); "
        "the run fails if one of them is missing",
    )
    pythons.add_argument(
        "--without-torch",
        action="store_true",
        help="leave out the checks with torch, which take most of the time",
    )
    torches = commands.add_parser(
        "torches", help="check other versions of torch, with the Python of this environment"
    )
    torches.add_argument(
        "versions",
        nargs="*",
        type=_torch_version,
        default=[*OLD, *NEW],
        metavar="VERSION",
        help=f"a release of torch, like 2.13.0 (default: {' '.join((*OLD, *NEW))})",
    )
    torches.add_argument(
        "--headers-only",
        action="store_true",
        help=f"compile against the headers and install nothing; always on for {', '.join(OLD)}",
    )
    for command in (pythons, torches):
        command.add_argument("--full", action="store_true", help="run the whole operator suite")
    return parser


def _python_version(text: str) -> str:
    if text not in supported_versions():
        raise argparse.ArgumentTypeError(
            f"got '{text}', expected a supported Python: {', '.join(supported_versions())}"
        )
    return text


def _torch_version(text: str) -> str:
    if not re.fullmatch(r"\d+(\.\w+)+", text):
        raise argparse.ArgumentTypeError(f"got '{text}', expected a release of torch, like 2.13.0")
    return text


def _print_failures(what: str, failed: Sequence[Step]) -> None:
    for step in failed:
        print(f"\n{what}: {step.name} failed; see {step.log}:\n{step.last_lines}\n")


def _write(
    name: str,
    table: Sequence[str],
    outcomes: Sequence[PythonOutcome] | Sequence[TorchOutcome],
    folder: Path,
) -> None:
    text = "\n".join(table) + "\n"
    print(text)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.md").write_text(text)
    content = json.dumps([asdict(outcome) for outcome in outcomes], indent=1, default=str)
    (folder / f"{name}.json").write_text(content + "\n")
    print(f"results and logs: {folder}")


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [f"| {' | '.join(cells)} |" for cells in (headings, *rows)]
    return [lines[0], "|---" * len(headings) + "|", *lines[1:]]


def _torch_row(outcome: TorchOutcome) -> list[str]:
    steps = {step.name: step for step in outcome.steps}
    counts = (outcome.operators, outcome.overloads, outcome.skipped)
    return [
        outcome.torch,
        *("" if count is None else f"{count:,}" for count in counts),
        f"{steps['compiled'].cpu_s:.1f}" if "compiled" in steps else "",
        *(_cell(steps.get(name)) for name in TORCH_STEPS),
        ", ".join(step.name for step in outcome.failed()),
    ]


def _python_row(outcome: PythonOutcome) -> list[str]:
    steps = {step.name: step for step in outcome.steps}
    return [
        outcome.python,
        str(outcome.executable or "missing"),
        *(_cell(steps.get(name)) for name in (*PYTHON_STEPS, *WITH_TORCH_STEPS)),
        f"{sum(step.cpu_s for step in outcome.steps):.0f}" if steps else "",
        ", ".join(step.name for step in outcome.failed()),
        outcome.note,
    ]


def _cell(step: Step | None) -> str:
    if step is None:
        return "not run"
    return step.summary or ("yes" if step.exit_code == 0 else "no")


if __name__ == "__main__":
    sys.exit(main())
