"""Generators of the operator library."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from codegen.aten import find_torch, load_schemas
from codegen.errors import GenerationError
from codegen.generation import generate
from codegen.inputs import SELECTION_VARIABLE, Inputs
from codegen.manual import INSPECT, counted
from codegen.output import differs, write

_ROOT = Path(__file__).resolve().parent.parent
EXIT_OK = 0
EXIT_BAD_INPUT = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one generator; returns 0, or 2 with a message for bad input."""
    options = _parser().parse_args(arguments)
    try:
        options.run(options)
        sys.stdout.flush()
        return EXIT_OK
    except BrokenPipeError:  # the reader has seen enough: `inspect | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK
    except GenerationError as error:
        message = str(error)
    except OSError as error:  # an output folder that is a file, or not ours
        message = f"{error.filename}: {error.strerror}"
    except ModuleNotFoundError as error:
        message = (
            f"{sys.executable} has no module '{error.name}'; expected jinja2, pyyaml and what "
            f"torchgen imports. Run: {sys.executable} -m pip install jinja2 pyyaml "
            "typing_extensions"
        )
    print(f"codegen: error: {message}", file=sys.stderr)
    return EXIT_BAD_INPUT


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m codegen", description=__doc__, allow_abbrev=False
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    torch = commands.add_parser(
        "torch", help="the PyTorch backend, from the installed torchgen", allow_abbrev=False
    )
    _add_output(torch, required=True)
    _add_inputs(torch)
    torch.set_defaults(run=_run_torch)

    headers = commands.add_parser(
        "headers",
        help="the C++ headers of codegen/slots.py and codegen/devices.py",
        allow_abbrev=False,
    )
    _add_output(headers, default=_ROOT / "src" / "include" / "infini" / "ops")
    headers.set_defaults(run=_run_headers)

    inspect = commands.add_parser(
        "inspect",
        help="what becomes of the operators of the installed torch",
        description=INSPECT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    inspect.add_argument("pattern", nargs="?", default="*", metavar="PATTERN")
    inspect.add_argument("--json", action="store_true", help="print JSON")
    _add_output(inspect, help="write inspect.txt or inspect.json there instead of printing it")
    _add_inputs(inspect)
    inspect.set_defaults(run=_run_inspect)
    return parser


def _add_output(
    parser: argparse.ArgumentParser,
    *,
    default: Path | None = None,
    required: bool = False,
    help: str | None = None,
) -> None:
    parser.add_argument(
        "--output-dir", type=Path, default=default, required=required, metavar="DIR", help=help
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print what would be written; write nothing"
    )


def _add_inputs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--selection",
        type=Path,
        default=_ROOT / "codegen" / "torch_ops.yaml",
        metavar="FILE",
        help="which operators to generate (default: codegen/torch_ops.yaml); the environment "
        f"variable {SELECTION_VARIABLE} narrows it: ATen names and patterns with commas between "
        "them, or another such file",
    )
    parser.add_argument(
        "--torch-root",
        type=Path,
        metavar="DIR",
        help="site-packages folder that has torch, where this Python does not",
    )


def _inputs(options: argparse.Namespace) -> Inputs:
    return Inputs(
        torch=find_torch(options.torch_root),
        selection=options.selection,
        variable=os.environ.get(SELECTION_VARIABLE, "").strip(),
        base_dir=_ROOT / "src" / "base",
    )


def _run_torch(options: argparse.Namespace) -> None:
    outcome = generate(_inputs(options), options.output_dir, dry_run=options.dry_run)
    for note in outcome.notes:
        print(f"codegen: note: {note}", file=sys.stderr)
    changes = outcome.changes
    if options.dry_run:
        for name in changes.written:
            print(f"would write {name}")
        for name in changes.removed:
            print(f"would remove {name}")
    print(
        f"{outcome.summary}; {'' if changes.written or changes.removed else 'nothing changed: '}"
        f"{counted(len(changes.written), 'file')} {'to write' if options.dry_run else 'written'}, "
        f"{len(changes.unchanged)} unchanged, {len(changes.removed)} removed"
    )


def _run_inspect(options: argparse.Namespace) -> None:
    from codegen.inspection import inspect, render_json, render_text
    from codegen.selection import choose_for

    inputs = _inputs(options)
    schemas = load_schemas(inputs.torch)
    inspection = inspect(schemas, choose_for(inputs, schemas), options.pattern)
    if options.json:
        text = render_json(inspection)
    else:
        to_terminal = options.output_dir is None and sys.stdout.isatty()
        text = render_text(inspection, shutil.get_terminal_size().columns if to_terminal else None)
    if options.output_dir is None:
        print(text, end="")
        return
    _write(options, "inspect.json" if options.json else "inspect.txt", text)


def _run_headers(options: argparse.Namespace) -> None:
    from codegen.emit import render_headers

    for name, text in render_headers().items():
        _write(options, name, text)


def _write(options: argparse.Namespace, name: str, text: str) -> None:
    path = options.output_dir / name
    if not differs(path, text):
        return
    if options.dry_run:
        print(f"would write {path}")
    else:
        write(path, text)
