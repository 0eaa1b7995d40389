"""``python -m codegen trace``: records the operators that a script calls, as selections."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from codegen.aten import NativeFunctions, describe_functions
from codegen.errors import GenerationError, counted
from codegen.inspection.explanation import explain_function
from codegen.selection import ATEN

TORCHGEN_NAME = "selected_operators.yaml"
OWN_NAME = "selection.yaml"
_TRACER = Path(__file__).with_name("tracer.py")


@dataclass(frozen=True, kw_only=True)
class Trace:
    """What a script called, and how it ended."""

    script: str
    exit_code: int
    operators: Mapping[str, Sequence[str]]  # dtypes by name: aten::add.Tensor


def run_script(python: str, script: Path, arguments: Sequence[str]) -> Trace:
    """Run a script with ``python``, which has torch; raise ``GenerationError`` if it can't run."""
    if not script.is_file():
        raise GenerationError(f"{script}: no such file; expected a Python script")
    with tempfile.TemporaryDirectory() as folder:
        record = Path(folder, "record")
        try:
            code = subprocess.run(
                [python, str(_TRACER), str(record), str(script), *arguments], check=False
            ).returncode
        except OSError as error:
            raise GenerationError(f"--python {python}: {error.strerror}") from None
        lines = record.read_text(encoding="utf-8").splitlines() if record.exists() else []
    if not lines or lines[0] != "null":
        reason = json.loads(lines[0]) if lines else "it ended before"
        raise GenerationError(
            f"{python} can't import torch: {reason}. Pass --python PROGRAM, a Python that has torch"
        )
    operators: dict[str, set[str]] = {}
    for line in lines[1:]:
        name, dtypes = json.loads(line)
        operators.setdefault(name, set()).update(dtypes)
    return Trace(
        script=str(script),
        exit_code=128 - code if code < 0 else code,  # of a signal, as shells have it
        operators={name: sorted(dtypes) for name, dtypes in sorted(operators.items())},
    )


def render_torchgen(trace: Trace) -> str:
    """Render torchgen's selection. It has no key for dtypes of an operator but ``debug_info``."""
    rows = "".join(
        f"  {name}:\n    is_root_operator: true\n    include_all_overloads: false\n"
        f"    debug_info: [{', '.join(dtypes)}]\n"
        for name, dtypes in trace.operators.items()
    )
    empty = "" if rows else " {}"
    return (
        f"# Operators that {_quoted(trace)} called, and the dtypes of their tensors. Written by\n"
        f"# `python -m codegen trace`.\noperators:{empty}\n{rows}"
    )


def render_selection(trace: Trace, functions: NativeFunctions) -> tuple[str | None, str]:
    """Render our own selection, None if it is empty, and a summary."""
    called = {name.removeprefix(ATEN): name for name in trace.operators}
    described = describe_functions(functions, lambda each: str(each.func.name) in called)
    selected: set[str] = set()
    others: list[str] = []
    for function in described:
        outs = [twin for twin in function.twins if not twin.partition(".")[0].endswith("_")]
        if function.writes:
            selected.add(function.schema.aten_name)
        elif outs and not function.is_view:
            selected |= {out.partition(".")[0] for out in outs}
        else:
            others.append(f"{function.schema.full_name} ({explain_function(function)[0]})")
    known = {function.schema.full_name for function in described}
    others += [f"{called[name]} (not of this torch)" for name in called.keys() - known]
    head = f"# Operators of infini.ops for what {_quoted(trace)} called. Written by\n"
    head += "# `python -m codegen trace`.\n"
    for text in sorted(others):
        head += f"# Without an operator: {text}\n"
    names = "".join(f"  - {name}\n" for name in sorted(selected))
    summary = (
        f"{counted(len(called), 'overload')} called; {counted(len(selected), 'operator')} "
        f"selected, {counted(len(others), 'overload')} without one"
    )
    return (f"{head}operators:\n{names}" if selected else None), summary


def _quoted(trace: Trace) -> str:
    return " ".join(Path(trace.script).name.split())
