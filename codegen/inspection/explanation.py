"""Why a function of torch is not generated, and what it calls."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

from codegen.aten import Function

# What composite functions called when the samples of OpInfo ran on the CPU, in
# `python -m tools.composites`.
COMPOSITES = Path(__file__).parents[1] / "composites.json"


def explain_function(function: Function) -> tuple[str, str]:
    """Why a function that is neither out= nor in-place is not generated: a word and a sentence."""
    outs = ", ".join(function.twins)
    if function.is_view:
        hint = f"; these write a copy: {outs}" if outs else ""
        return "view", f"its result is a view of its input, not written into an out{hint}"
    if outs:
        return "functional", f"infini.ops writes into its outs: see {outs}"
    if function.kind in ("mutable", "scratch"):
        return "mutable", "it writes into arguments, but has no out= overload"
    if not any(each.type.base == "Tensor" for each in function.schema.returns):
        return "no tensor", "it returns no tensor that infini.ops could write"
    if not function.is_composite:
        return "no out", "torch has no out= overload of it"
    calls = composite_calls(function)
    if calls is None:
        hint = "native_functions.yaml does not say which: `python -m codegen trace` records them"
        return "composite", f"it has no out= overload and calls other operators; {hint}"
    return "composite", f"it has no out= overload and calls other operators: {', '.join(calls)}"


def composite_calls(function: Function) -> list[str] | None:
    """The operators that a composite function calls, as recorded on the CPU; None if unknown."""
    if not function.is_composite:
        return None
    calls: dict[str, list[str]] = _composites()["calls"]
    return calls.get(function.schema.aten_name)


@functools.cache
def _composites() -> dict[str, Any]:
    recorded: dict[str, Any] = json.loads(COMPOSITES.read_text(encoding="utf-8"))
    return recorded
