"""Generation by a decoder of the library's operators compared with torch's own of that model."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any

from bench.context import Context
from bench.rows import FigureTable, Measurement, paired_ratios, summarize

DTYPES = ("float32", "bfloat16")
OURS, EAGER, COMPILED = VARIANTS = ("infini.ops", "torch", "torch.compile")
ROUNDS = 7  # at most: one takes 3 to 4 s


def measure(context: Context) -> Iterator[Measurement]:
    """The ratio to the faster of torch's two, for each type."""
    variables = {"OMP_NUM_THREADS": "1", "TORCHINDUCTOR_CACHE_DIR": str(context.scratch / "torch")}
    environment = context.library_environment | variables
    command = [sys.executable, "-m", "bench.decoder_worker"]
    rounds = str(min(context.repeat, ROUNDS))
    cases = {
        dtype: json.loads(context.run([*command, dtype, rounds], environment).stdout)
        for dtype in DTYPES
    }
    details: dict[str, Any] = {"detail": {"types": cases}, "table": decoder_table(cases)}
    for dtype, case in cases.items():
        yield Measurement(key=f"decoder-cpu-{dtype}", **details, **ratio_of(case))
        details = {}


def ratio_of(case: Mapping[str, Any]) -> dict[str, Any]:
    """The fields ``value`` and ``note`` of a measurement, or its ``error``."""
    if "error" in case:
        return {"error": case["error"]}
    faster = min((EAGER, COMPILED), key=lambda name: median(case["seconds"][name]))
    ratio = summarize(paired_ratios(case["seconds"], OURS, faster))
    return {"value": ratio.median, "note": f"to {faster}; 95 % of rounds {ratio.interval()}"}


def decoder_table(cases: Mapping[str, Mapping[str, Any]]) -> FigureTable:
    """The tokens per second of each variant."""
    rows = [
        (dtype, *(f"{case['tokens'] / median(case['seconds'][name]):.0f}" for name in VARIANTS))
        for dtype, case in cases.items()
        if "error" not in case
    ]
    return FigureTable(
        title="Decode steps on one thread of the CPU [tokens/s]",
        columns=("type", *VARIANTS),
        rows=tuple(rows),
    )
