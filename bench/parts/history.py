"""The cost of years of runs: the store's size, saving a run, and queries about any of them.

The history is generated (``bench.generated_history``) and saved like any other run. The queries are
the commands that a user runs, each in a process of its own.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from sqlalchemy import create_engine, text

from bench.context import Context
from bench.generated_history import Scale, history
from bench.rows import Measurement, summarize
from ci.store.folder import default_url
from ci.store.store import Store
from ci.util.process import STORE_VARIABLE

PROCESSES = 7  # after a first one, which compiles bytecode
EXPORTED_RUNS = 20  # so many that starting the process is a small part


def measure(context: Context) -> Iterator[Measurement]:
    """Save the history, then query it."""
    folder = context.scratch / "history"
    folder.mkdir()
    url = context.database or default_url(folder)
    scale = Scale(runs=context.runs)
    run_ids, seconds, cpu_seconds, branch = [], [], [], "main"
    with Store(url) as store:
        for run, details in history(scale):
            start, cpu_start = time.perf_counter(), time.process_time()
            store.save(run, details)
            seconds.append(time.perf_counter() - start)
            cpu_seconds.append(time.process_time() - cpu_start)
            run_ids.append(run.run_id)
            if run.lineage.target:
                branch = run.lineage.branch or branch
    size = _size(url)
    per_run = size / scale.runs
    note = f"{size / 1e9:.2f} GB of {scale.runs:,} runs, {per_run / 1e3:.0f} kB each"
    yield Measurement(key="history-size", value=per_run * Scale().runs / 1e9, note=note)
    note = f"median {median(seconds):.2f} s, of which {median(cpu_seconds):.2f} CPU-s"
    yield Measurement(key="history-save", value=max(seconds), note=note)
    first, *_, before, last = run_ids
    questions = {
        "history-compare": ("compare", before, last),
        "history-compare-far": ("compare", first, last),
        "history-branch": ("compare", "main", branch),
        "history-history": ("history", "cpu"),
        "history-all": ("history",),
        "history-report": ("report", last),
    }
    for key, words in questions.items():
        times = [_seconds(context, url, words) for _ in range(PROCESSES + 1)][1:]
        found = summarize(times)
        note = f"95 % of {PROCESSES} processes {found.interval()} s"
        yield Measurement(key=key, value=found.median, note=note, detail={"seconds": times})
    exported = run_ids[-EXPORTED_RUNS:]
    export = ["export", "--format", "csv", "--table", "tests"]
    export += ["--output", str(context.scratch / "exported")]
    taken = _seconds(context, url, [*export, *(f"--run={run_id}" for run_id in exported)])
    tests = len(exported) * len(scale.platforms) * scale.tests
    note = f"{tests / taken / 1e6:.2f} million tests/s, as CSV"
    yield Measurement(key="history-export", value=taken / len(exported), note=note)


def _size(url: str) -> int:
    engine = create_engine(url)
    if engine.dialect.name == "sqlite":
        database = Path(str(engine.url.database))
        return sum(path.stat().st_size for path in database.parent.glob(f"{database.name}*"))
    with engine.connect() as connection:
        return int(connection.scalar(text("SELECT pg_database_size(current_database())")) or 0)


def _seconds(context: Context, url: str, words: Sequence[str]) -> float:
    command = [sys.executable, "-m", "ci", *words, "--results", str(context.scratch / "history")]
    return context.run(command, os.environ | {STORE_VARIABLE: url}).seconds
