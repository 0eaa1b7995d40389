"""``python -m bench.changes``: every method on every series, as a table in Markdown."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from multiprocessing import Pool
from pathlib import Path
from statistics import mean

from bench.changes import data
from bench.changes.methods import Rival, nothing, rivals
from bench.changes.replay import Tally, replay
from bench.changes.scenarios import Labelled, Scenario, silences, steps
from bench.rows import MeasurementError

# Series of each kind, before a method's cost is taken into account.
STEPS, SILENCES = 400, 120
LEAST_STEPS, LEAST_SILENCES = 5, 2
LONG = "five levels"


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        real = data.tigerbeetle(options.otava)
        turing = [series for _, series in data.turing(options.turing)] if options.turing else []
    except (MeasurementError, OSError) as error:
        print(f"bench.changes: {error}", file=sys.stderr)
        return 1
    chosen = [rival for rival in rivals() if re.search(options.only, rival.name)]
    chosen += [nothing()] if turing else []
    work = partial(_measure, real=real, turing=turing, scale=options.scale, series=options.series)
    measured: dict[str, dict[str, Tally]] = {}
    with Pool(options.jobs) as pool:
        for rival, tallies in zip(chosen, pool.imap(work, chosen), strict=True):
            measured[rival.name] = tallies
            print(f"{rival.name}: {_summary(tallies)}", file=sys.stderr, flush=True)
    print("\n".join(tables(measured)))
    return 0


def _summary(tallies: Mapping[str, Tally]) -> str:
    whole = sum(tallies.values(), Tally())
    if not whole.runs:
        return "not installed"
    return f"{whole.runs:,} looks, {1000 * whole.seconds / whole.runs:.2f} CPU-ms each"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.changes", description=__doc__)
    parser.add_argument("--only", default="", help="methods whose name fits this regex")
    parser.add_argument("--series", default="", help="series whose name fits this regex")
    parser.add_argument("--scale", type=float, default=1.0, help="times as many series")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--otava", type=Path, help="apache_otava-0.8.0.tar.gz, else from PyPI")
    parser.add_argument("--turing", type=Path, help="folder with annotations.json and datasets/")
    return parser


def _measure(
    rival: Rival, *, real: Labelled, turing: Sequence[Labelled], scale: float, series: str
) -> dict[str, Tally]:
    """What the method makes of each kind of series; nothing, if it is not installed."""
    try:
        method = rival.load()
    except ImportError:
        return {}

    kinds: list[tuple[str, Iterable[Labelled]]] = []
    for scenario, count, least in _made(real):
        seeds = range(max(round(count * scale / rival.cost), least))
        kinds.append((scenario.name, map(scenario.series, seeds)))
    kinds.append(("TigerBeetle, as labelled", [real]))
    if turing:
        kinds.append((f"--turing ({len(turing)} series)", turing))
    return {
        name: sum((replay(method, member) for member in members), Tally())
        for name, members in kinds
        if re.search(series, name)
    }


def _made(real: Labelled) -> Iterator[tuple[Scenario, int, int]]:
    """Scenarios, how many series of each, and how many at least."""
    for scenario in (*steps(), *(data.injected(real, size) for size in (0.03, 0.05, 0.10))):
        yield scenario, STEPS // 8 if scenario.name.startswith(LONG) else STEPS, LEAST_STEPS
    yield from ((scenario, SILENCES, LEAST_SILENCES) for scenario in silences())


def tables(measured: Mapping[str, Mapping[str, Tally]]) -> Iterator[str]:
    """Markdown: a row for each kind of series, a column for each method."""
    yield from _table("changes known within 5 runs", measured, _prompt)
    yield from _table("changes found, and precision", measured, _found)
    yield from _table("false alarms per 1,000 runs", measured, _false)
    yield from _table("F1 / covering of the whole series", measured, _score)


def _table(
    title: str, measured: Mapping[str, Mapping[str, Tally]], cell: Callable[[Tally], str]
) -> Iterator[str]:
    yield from ("", f"| {title} | {' | '.join(measured)} |", "|---" + "|--:" * len(measured) + "|")
    for name in dict.fromkeys(name for tallies in measured.values() for name in tallies):
        cells = [cell(tallies.get(name, Tally())) for tallies in measured.values()]
        if any(cells):
            yield f"| {name} | {' | '.join(cells)} |"


def _prompt(tally: Tally) -> str:
    return f"{tally.prompt_recall:.2f}" if tally.delays else ""


def _found(tally: Tally) -> str:
    if not tally.delays:
        return ""
    precision = "-" if tally.precision is None else f"{tally.precision:.2f}"
    return f"{tally.recall:.2f} / {precision}"


def _score(tally: Tally) -> str:
    if not tally.scores:
        return ""
    f1 = mean(score.f1 for score in tally.scores)
    return f"{f1:.2f} / {mean(score.covering for score in tally.scores):.2f}"


def _false(tally: Tally) -> str:
    """Only of series that are long beside their changes: around a step nobody looks for long."""
    long = tally.runs >= 30 * max(len(tally.delays), 1)
    return f"{1000 * tally.false_alarms / tally.runs:.1f}" if long else ""


if __name__ == "__main__":
    sys.exit(main())
