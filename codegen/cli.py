"""Generators of the operator library."""

from __future__ import annotations

import argparse
import functools
import os
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from inspect import getdoc
from pathlib import Path
from typing import Any

from codegen import backend, inspection, native, triton
from codegen.aten import find_torch, load_schemas, native_functions
from codegen.devices import platforms
from codegen.errors import GenerationError, counted, record_fault
from codegen.generation import generate
from codegen.inputs import SELECTION_VARIABLE, Inputs
from codegen.output import SyncResult, differs, write

_ROOT = Path(__file__).resolve().parent.parent
BASES = _ROOT / "src" / "base"
PROGRAM = "python -m codegen"
EXIT_OK = 0
EXIT_BAD_INPUT = 2
EXIT_FAULT = 3
EXIT_INTERRUPTED = 130
_OLDEST_TARGET = 80  # oldest target with variants in src/triton/ops


def main(arguments: Sequence[str] | None = None, *, program: str = PROGRAM) -> int:
    """Run one generator. Returns its exit code: 0, or 2 or 3 after a message."""
    try:
        options = _parser(program).parse_args(arguments)
        code: int | None = options.run(options)
        sys.stdout.flush()
        return code or EXIT_OK
    except BrokenPipeError:  # the reader closed the pipe: `inspect | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_OK
    except GenerationError as error:
        message = str(error)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except ModuleNotFoundError as error:
        message = (
            f"{sys.executable} has no module '{error.name}'; expected jinja2, pyyaml and what "
            f"torchgen imports. Run: {sys.executable} -m pip install jinja2 pyyaml "
            f"typing_extensions{'' if sys.version_info >= (3, 11) else ' tomli'}"
        )
    except Exception as error:
        # Of the errors of the system, those that name a file are the user's: an output folder that
        # is a file or not writable.
        if not isinstance(error, OSError) or error.filename is None:
            print(f"codegen: error: {record_fault(error)}", file=sys.stderr)
            return EXIT_FAULT
        message = f"{error.filename}: {error.strerror}"
    print(f"codegen: error: {message}", file=sys.stderr)
    return EXIT_BAD_INPUT


class _PrintCMakeDir(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(_ROOT / "codegen" / "cmake")  # in one line, which the action "version" would wrap
        parser.exit()


def _parser(program: str = PROGRAM) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=program, description=__doc__, allow_abbrev=False)
    parser.add_argument(
        "--cmake-dir",
        action=_PrintCMakeDir,
        nargs=0,
        help="print the folder of the CMake package InfiniOpsCodegen and exit",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    add = functools.partial(
        commands.add_parser,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    _declare_torch(add("torch", help="generate the PyTorch backend from the installed torchgen"))
    _declare_backend_stubs(
        add("backend-stubs", help="generate a device backend outside of torch from its YAML file")
    )
    _declare_registry(
        add(
            "registry",
            help="list the hand-written implementations of a build and their slots",
        )
    )
    _declare_triton(
        add("triton", help="compile the Triton kernels of src/triton/ops ahead of time")
    )
    _declare_hand_written(
        add(
            "hand-written",
            help=f"list the operators of src/base that {SELECTION_VARIABLE} selects, for CMake",
        )
    )
    _declare_headers(add("headers", help="generate the C++ headers of codegen/slots.py"))
    _declare_platforms(add("platforms", help="write the platforms for C++ and for CMake"))
    _declare_inspect(
        add("inspect", help="show how the generator handles each operator of the installed torch")
    )
    _declare_trace(add("trace", help="record the operators that a script calls, as a selection"))
    return parser


def _declare_trace(parser: argparse.ArgumentParser) -> None:
    parser.description = getdoc(_run_trace)
    parser.set_defaults(run=_run_trace)
    _add_output(parser, required=True)
    parser.add_argument(
        "--python",
        default=sys.executable,
        metavar="PROGRAM",
        help="a Python that has torch, to run the script (default: this one)",
    )
    _add_torch_root(parser)
    parser.add_argument("script", type=Path, metavar="SCRIPT", help="a Python script")
    parser.add_argument(
        "arguments", nargs=argparse.REMAINDER, metavar="ARGUMENT", help="its arguments"
    )


def _declare_torch(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=_run_torch)
    _add_output(parser, required=True)
    _add_inputs(parser)
    parser.add_argument(
        "--registry",
        type=Path,
        metavar="FILE",
        help="native_ops_metadata.json of the build; its operators are added to the stub",
    )


def _declare_backend_stubs(parser: argparse.ArgumentParser) -> None:
    """Also accept the option spellings of torchgen/gen_backend_stubs.py."""
    parser.description = backend.__doc__
    parser.set_defaults(run=_run_backend_stubs)
    parser.add_argument(
        "-s",
        *("--source-yaml", "--source_yaml"),
        type=Path,
        required=True,
        metavar="FILE",
        help="the YAML file that lists the kernels of the backend",
    )
    parser.add_argument(
        "-o",
        *("--output-dir", "--output_dir"),
        type=Path,
        required=True,
        metavar="DIR",
        help="folder for the generated files",
    )
    parser.add_argument(
        *("--impl-path", "--impl_path"),
        type=Path,
        metavar="PATH",
        help="a C++ file or a folder of C++ files; check that they define each kernel as declared",
    )
    parser.add_argument(
        "--dialect",
        choices=backend.DIALECT_NAMES,
        default="auto",
        help="the form of the YAML file (default: auto, by its top level)",
    )
    _add_dry_run(parser, "--dry_run")
    _add_torch_root(parser)


def _declare_registry(parser: argparse.ArgumentParser) -> None:
    parser.description = native.__doc__
    parser.set_defaults(run=_run_registry)
    _add_output(parser, required=True)
    parser.add_argument(
        "--accelerator",
        choices=["", *(each.enumerator for each in platforms() if each.name != "cpu")],
        metavar="ENUMERATOR",
        default="",
        help="C++ enumerator of the build's accelerator, such as kNvidia (default: none)",
    )
    parser.add_argument(
        "--unselected",
        nargs="*",
        default=(),
        type=Path,
        metavar="SOURCE",
        help=f"sources that {SELECTION_VARIABLE} leaves out of the build",
    )
    parser.add_argument(
        "sources", nargs="*", type=Path, metavar="SOURCE", help="sources of the build"
    )


def _declare_triton(parser: argparse.ArgumentParser) -> None:
    parser.description = triton.__doc__
    parser.set_defaults(run=_run_triton)
    _add_output(parser, required=True)
    parser.add_argument(
        "--targets",
        type=_targets,
        default=(80, 90),
        metavar="LIST",
        help="compute capabilities to compile for (default: 80,90)",
    )
    parser.add_argument(
        "--jobs",
        type=int,
        default=len(os.sched_getaffinity(0)),
        metavar="N",
        help="number of compiler processes (default: one for each processor)",
    )
    parser.add_argument(
        "--without",
        type=lambda text: frozenset(filter(None, map(str.strip, text.split(",")))),
        default=frozenset(),
        metavar="LIST",
        help="operators to leave out, separated by commas (default: none)",
    )
    parser.add_argument(
        "--python",
        default=sys.executable,
        metavar="PROGRAM",
        help="a Python that has Triton (default: this one)",
    )


def _targets(text: str) -> tuple[int, ...]:
    """Parse compute capabilities; sort them, so that their order in the option has no effect."""
    if not re.fullmatch(r"\d+(,\d+)*", text):
        raise argparse.ArgumentTypeError(
            f"got {text!r}; expected compute capabilities separated by commas, such as 80,90"
        )
    targets = {int(target) for target in text.split(",")}
    if min(targets) < _OLDEST_TARGET:
        raise argparse.ArgumentTypeError(f"got {min(targets)}; expected {_OLDEST_TARGET} or later")
    return tuple(sorted(targets))


def _declare_hand_written(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=_run_hand_written)
    parser.add_argument(
        "--unselected", action="store_true", help="print the operators that it does not select"
    )
    parser.add_argument(
        "--without-torch",
        action="store_true",
        help="the build has no generated operators to select",
    )


def _declare_headers(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=_run_headers)
    folder = _ROOT / "src" / "include" / "infini" / "ops"
    is_checkout = (_ROOT / "CMakeLists.txt").exists()
    _add_output(parser, **({"default": folder} if is_checkout else {"required": True}))


def _declare_platforms(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(run=_run_platforms)
    _add_output(parser, required=True)


def _declare_inspect(parser: argparse.ArgumentParser) -> None:
    parser.description = inspection.__doc__
    parser.set_defaults(run=_run_inspect)
    parser.add_argument(
        "pattern",
        nargs="?",
        default="*",
        metavar="PATTERN",
        help="a name, such as torch.add or conv2d, or a pattern, such as 'fft_*' (default: all)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    _add_output(
        parser, help="write inspect.txt or inspect.json into this folder instead of printing it"
    )
    _add_inputs(parser)


def _add_output(parser: argparse.ArgumentParser, **options: Any) -> None:
    described = {"help": "folder for the generated files", **options}
    parser.add_argument("--output-dir", type=Path, metavar="DIR", **described)
    _add_dry_run(parser)


def _add_dry_run(parser: argparse.ArgumentParser, *spellings: str) -> None:
    parser.add_argument(
        *("--dry-run", *spellings),
        action="store_true",
        help="print what would be written; write nothing",
    )


def _add_torch_root(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--torch-root",
        type=Path,
        metavar="DIR",
        help="site-packages folder that contains torch, if this Python has none",
    )


def _add_inputs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--selection",
        type=Path,
        default=_ROOT / "codegen" / "torch_ops.yaml",
        metavar="FILE",
        help="which operators to generate (default: codegen/torch_ops.yaml); the environment "
        f"variable {SELECTION_VARIABLE} narrows it: ATen names and patterns separated by "
        "commas, a predefined selection (smoke), or another selection file",
    )
    _add_torch_root(parser)


def _variable() -> str:
    return os.environ.get(SELECTION_VARIABLE, "").strip()


def _inputs(options: argparse.Namespace) -> Inputs:
    return Inputs(
        torch=find_torch(options.torch_root),
        selection=options.selection,
        variable=_variable(),
        base_dir=BASES,
        registry=getattr(options, "registry", None),
    )


def _run_torch(options: argparse.Namespace) -> None:
    _report(options, generate(_inputs(options), options.output_dir, dry_run=options.dry_run))


def _run_backend_stubs(options: argparse.Namespace) -> None:
    # Imported here because it needs Jinja2 and PyYAML, which the other commands do not.
    from codegen.backend.emit import generate_backend

    outcome = generate_backend(
        options.source_yaml,
        options.output_dir,
        find_torch(options.torch_root),
        implementation=options.impl_path,
        dialect=options.dialect,
        dry_run=options.dry_run,
    )
    _report(options, outcome)


def _run_registry(options: argparse.Namespace) -> None:
    bases = native.read_bases(BASES)

    def read(sources: Sequence[Path]) -> native.Registry:
        paths = [source.resolve() for source in sources]
        paths = [path.relative_to(_ROOT) if path.is_relative_to(_ROOT) else path for path in paths]
        return native.read_registry(paths, bases, options.accelerator or None, _ROOT)

    registry = replace(read(options.sources), unselected=read(options.unselected).implementations)
    _write(options, native.METADATA_NAME, registry.render())
    _write(options, native.SIGNATURES_NAME, registry.render_signatures())
    print(
        f"registry: {counted(len(registry.operators), 'operator')}, "
        f"{counted(len(registry.implementations), 'implementation')}"
    )


def _run_hand_written(options: argparse.Namespace) -> None:
    from codegen.selection import select_hand_written

    known = [path.stem for path in BASES.glob("*.h")]
    selected = select_hand_written(_variable(), known, alone=options.without_torch)
    print(";".join(sorted(set(known).difference(selected)) if options.unselected else selected))


def _run_triton(options: argparse.Namespace) -> None:
    from codegen.triton.compiler import default_folder
    from codegen.triton.generation import Request, generate

    request = Request(
        targets=options.targets,
        workers=max(1, options.jobs),
        cache=default_folder(),
        python=options.python,
        without=options.without,
        others=frozenset(path.stem for path in BASES.glob("*.h")),
    )
    _report(options, generate(request, options.output_dir, dry_run=options.dry_run))


def _report(options: argparse.Namespace, outcome: SyncResult) -> None:
    for note in outcome.notes:
        print(f"codegen: note: {note}", file=sys.stderr)
    for verb, names in (("write", outcome.written), ("remove", outcome.removed)):
        for name in names if options.dry_run else ():
            print(f"would {verb} {name}")
    print(
        f"{outcome.summary}; {'' if outcome.written or outcome.removed else 'nothing changed: '}"
        f"{counted(len(outcome.written), 'file')} {'to write' if options.dry_run else 'written'}, "
        f"{len(outcome.unchanged)} unchanged, {len(outcome.removed)} removed"
    )


def _run_inspect(options: argparse.Namespace) -> None:
    from codegen.inspection.lookup import inspect
    from codegen.inspection.render import render_json, render_text
    from codegen.inspection.surroundings import find_surroundings
    from codegen.selection import choose_operators

    inputs = _inputs(options)
    with native_functions(inputs.torch) as functions:
        schemas = load_schemas(inputs.torch)
        found = inspect(
            schemas,
            choose_operators(inputs, schemas),
            options.pattern,
            native.read_bases(BASES),
            None if options.pattern == "*" else find_surroundings(functions),
        )
    to_terminal = options.output_dir is None and sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if to_terminal else None
    text = render_json(found) if options.json else render_text(found, width)
    if options.output_dir is None:
        print(text, end="")
    else:
        _write(options, "inspect.json" if options.json else "inspect.txt", text)


def _run_trace(options: argparse.Namespace) -> int:
    """Runs SCRIPT and records which ATen overloads it calls, and with tensors of which dtypes. The
    options of this command come before SCRIPT.

    Writes selected_operators.yaml, torchgen's selection form with the overloads as called, and
    selection.yaml, the operators of infini.ops that do the same: for add.Tensor, it is add. The
    comments in it list the overloads without an operator. --selection and INFINI_OPS_TORCH_OPS take
    both files.

    Operators are recorded where a backend sees them: conv2d is convolution. Threads of the script
    are recorded, other processes are not. The exit code is that of SCRIPT. If it fails, what it
    called until then is written.
    """
    from codegen.trace import (
        OWN_NAME,
        TORCHGEN_NAME,
        render_selection,
        render_torchgen,
        run_script,
    )

    torch = find_torch(options.torch_root)
    trace = run_script(options.python, options.script, options.arguments)
    with native_functions(torch) as functions:
        selection, summary = render_selection(trace, functions)
    _write(options, TORCHGEN_NAME, render_torchgen(trace))
    if selection is not None:
        _write(options, OWN_NAME, selection)
    elif (stale := options.output_dir / OWN_NAME).exists() and not options.dry_run:
        stale.unlink()
    print(f"trace: {summary}")
    if trace.exit_code:
        verb = "would be" if options.dry_run else "was"
        print(
            f"codegen: error: {options.script}: ended with exit code {trace.exit_code}; what it "
            f"called until then {verb} written to {options.output_dir}",
            file=sys.stderr,
        )
    return trace.exit_code


def _run_headers(options: argparse.Namespace) -> None:
    from codegen.emit import render_headers

    for name, text in render_headers().items():
        _write(options, name, text)


def _run_platforms(options: argparse.Namespace) -> None:
    from codegen.emit import render_platforms

    for name, text in render_platforms().items():
        _write(options, name, text)


def _write(options: argparse.Namespace, name: str, text: str) -> None:
    path = options.output_dir / name
    if differs(path, text):
        if options.dry_run:
            print(f"would write {path}")
        else:
            write(path, text)
