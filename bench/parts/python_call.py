"""Python calls of the library against torch's own, operator by operator."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bench.context import Context
from bench.errors import MeasurementError
from bench.rows import Measurement, Table
from bench.statistics import Summary, medians_by_round, paired_ratios, summarize

_COLUMNS = (
    *("operator", "torch [ns]", "slot 8 [ns]", "no slot [ns]"),
    *("ratio", "95 % of rounds", "no slot"),
)


def measure(context: Context) -> Iterator[Measurement]:
    """The median ratio over all operators, through slot 8 and without naming one."""
    command = [context.python, "-m", "bench.python_worker", str(context.repeat)]
    cases = json.loads(context.run(command, context.library_environment).stdout)
    yield _measurement("python-call", "slot", cases, [_table(cases)])
    yield _measurement("python-call-default", "default", cases, [])


def _measurement(
    key: str, variant: str, cases: Sequence[Mapping[str, Any]], tables: Sequence[Table]
) -> Measurement:
    timed = [case for case in cases if "ns" in case]
    failed = [f"{case['operator']}: {case['error']}" for case in cases if "error" in case]
    if not timed:
        raise MeasurementError(f"no call could be timed; {failed[0]}")
    ratios = [_ratios(case, variant) for case in timed]
    overall = summarize(medians_by_round(ratios))
    by_operator = [summarize(values).median for values in ratios]
    faster = sum(ratio <= 1 for ratio in by_operator)
    return Measurement(
        key=key,
        value=summarize(by_operator).median,
        note=f"95 % of rounds {_interval(overall)}; {faster} of {len(timed)} operators "
        f"no slower than torch's own",
        error="\n".join((f"{len(failed)} operators failed:", *failed)) if failed else "",
        detail={"operators": list(cases)} if tables else {},
        tables=tuple(tables),
    )


def _ratios(case: Mapping[str, Any], variant: str) -> list[float]:
    return paired_ratios(case["ns"][variant], case["ns"]["reference"])


def _interval(summary: Summary) -> str:
    return f"{summary.low:.2f} to {summary.high:.2f}"


def _table(cases: Sequence[Mapping[str, Any]]) -> Table:
    return Table(title="Python calls", columns=_COLUMNS, rows=tuple(_row(case) for case in cases))


def _row(case: Mapping[str, Any]) -> tuple[str, ...]:
    if "error" in case:
        return (case["operator"], "error", *[""] * (len(_COLUMNS) - 2))
    nanoseconds = [
        f"{summarize(case['ns'][variant]).median:.0f}"
        for variant in ("reference", "slot", "default")
    ]
    ratio, default = (summarize(_ratios(case, variant)) for variant in ("slot", "default"))
    cells = (f"{ratio.median:.2f}", _interval(ratio), f"{default.median:.2f}")
    return (case["operator"], *nanoseconds, *cells)
