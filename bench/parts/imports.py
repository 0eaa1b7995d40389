"""``import infini.ops`` in fresh processes that have imported torch."""

from __future__ import annotations

import json
from collections.abc import Iterator

from bench.context import Context
from bench.rows import Measurement, Table
from bench.statistics import summarize

PROCESSES = 11
SHOWN = 10
_IMPORT = """
import time, torch
wall, cpu = time.perf_counter(), time.process_time()
import infini.ops
print([time.perf_counter() - wall, time.process_time() - cpu])
"""


def measure(context: Context) -> Iterator[Measurement]:
    """The median over fresh processes; the first one, which compiles to bytecode, left out."""
    command = [context.python, "-c", _IMPORT]
    environment = context.library_environment
    times = [json.loads(context.run(command, environment).stdout) for _ in range(PROCESSES + 1)][1:]
    wall, cpu = (summarize(seconds) for seconds in zip(*times, strict=True))
    command = [context.python, "-X", "importtime", "-c", "import torch, infini.ops"]
    yield Measurement(
        key="import",
        value=wall.median,
        note=f"95 % of {PROCESSES} processes {wall.low:.3f} to {wall.high:.3f} s; "
        f"{cpu.median:.3f} CPU-s",
        detail={"processes": [{"wall_s": wall, "cpu_s": cpu} for wall, cpu in times]},
        tables=(import_table(context.run(command, environment).stderr),),
    )


def import_table(report: str) -> Table:
    """The most expensive modules after torch, from the report of ``-X importtime``."""
    lines = report.splitlines()
    (torch,) = (index for index, line in enumerate(lines) if line.endswith("| torch"))
    rows = [
        [cell.strip() for cell in line.removeprefix("import time:").split("|")]
        for line in lines[torch + 1 :]
    ]
    dearest = sorted(rows, key=lambda row: -int(row[0]))[:SHOWN]
    return Table(
        title="Import, after torch [µs]",
        columns=("module", "itself", "with what it imports"),
        rows=tuple((module, own, cumulative) for own, cumulative, module in dearest),
    )
