"""Generators of the operator library."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from codegen.aten import load_schemas
from codegen.emit import (
    hand_written_bases,
    render_slot_header,
    render_torch,
    synchronize,
    write_if_changed,
)
from codegen.errors import GenerationError
from codegen.selection import check_known, load_allowlist
from codegen.torch_backend import make_library

_ROOT = Path(__file__).resolve().parent.parent
EXIT_OK = 0
EXIT_BAD_INPUT = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one generator; returns 0, or 2 with a message for bad input."""
    options = _parser().parse_args(arguments)
    try:
        options.run(options)
    except GenerationError as error:
        print(f"codegen: error: {error}", file=sys.stderr)
        return EXIT_BAD_INPUT
    except OSError as error:  # an output folder that is a file, or not ours
        print(f"codegen: error: {error.filename}: {error.strerror}", file=sys.stderr)
        return EXIT_BAD_INPUT
    return EXIT_OK


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m codegen", description=__doc__, allow_abbrev=False
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    torch = commands.add_parser(
        "torch", help="the PyTorch backend, from the installed torchgen", allow_abbrev=False
    )
    _add_output(torch, default=None)
    torch.add_argument(
        "--allowlist",
        type=Path,
        default=_ROOT / "codegen" / "torch_ops.yaml",
        metavar="FILE",
        help="ATen base names to generate (default: codegen/torch_ops.yaml)",
    )
    torch.add_argument(
        "--base-dir",
        type=Path,
        default=_ROOT / "src" / "base",
        metavar="DIR",
        help="hand-written base headers, which shadow generated ones (default: src/base)",
    )
    torch.add_argument(
        "--torch-root",
        type=Path,
        metavar="DIR",
        help="site-packages folder that has torch, where this Python does not",
    )
    torch.set_defaults(run=_run_torch)

    slots = commands.add_parser("slots", help="slot.h, from codegen/slots.py", allow_abbrev=False)
    _add_output(slots, default=_ROOT / "src" / "include" / "infini" / "ops")
    slots.set_defaults(run=_run_slots)
    return parser


def _add_output(parser: argparse.ArgumentParser, *, default: Path | None) -> None:
    parser.add_argument(
        "--output-dir", type=Path, default=default, required=default is None, metavar="DIR"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print what would be written; write nothing"
    )


def _run_torch(options: argparse.Namespace) -> None:
    if not options.base_dir.is_dir():
        raise GenerationError(f"--base-dir: {options.base_dir} is not a folder")
    allowlist = load_allowlist(options.allowlist)
    schemas = load_schemas(options.torch_root)
    check_known(allowlist, schemas.by_name)
    library = make_library(schemas, allowlist.names)
    files = render_torch(library, hand_written_bases(options.base_dir))
    changes = synchronize(files, options.output_dir, dry_run=options.dry_run)
    if options.dry_run:
        _print_changes("would write", changes.written)
        _print_changes("would remove", changes.removed)
    overloads = sum(len(operator.overloads) for operator in library.operators)
    print(
        f"torch {library.torch_version}: {len(library.operators)} operators, "
        f"{overloads} overloads, {len(library.skipped)} skipped; "
        f"{len(changes.written)} files {'to write' if options.dry_run else 'written'}, "
        f"{len(changes.unchanged)} unchanged, {len(changes.removed)} removed"
    )


def _run_slots(options: argparse.Namespace) -> None:
    path = options.output_dir / "slot.h"
    changed = write_if_changed(path, render_slot_header(), options.dry_run)
    if changed and options.dry_run:
        _print_changes("would write", (str(path),))


def _print_changes(verb: str, names: Sequence[str]) -> None:
    for name in names:
        print(f"{verb} {name}")
