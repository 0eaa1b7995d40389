"""``python -m bench.changes``: runs every method on every series; prints Markdown tables."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from multiprocessing import Pool
from pathlib import Path
from statistics import mean

from bench.changes.methods import Candidate, candidates, silent_method
from bench.changes.replay import LATE, PROMPT, Tally, replay
from bench.changes.series import (
    LabelledSeries,
    injected,
    machines,
    noise_scenarios,
    step_scenarios,
    tigerbeetle,
    turing,
)
from bench.rows import MeasurementError

# Number of series of each kind; slow methods get fewer.
STEPS, SILENCES = 400, 120
LEAST_STEPS, LEAST_SILENCES = 5, 2
OTHERS = 6  # methods in a table beside the first


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        real = tigerbeetle(options.otava)
        marked = list(turing(options.turing)) if options.turing else []
    except (MeasurementError, OSError) as error:
        print(f"bench.changes: {error}", file=sys.stderr)
        return 1
    chosen = [candidate for candidate in candidates() if re.search(options.only, candidate.name)]
    chosen += [silent_method()] if marked else []
    work = partial(_measure, real=real, marked=marked, scale=options.scale, series=options.series)
    measured: dict[str, dict[str, Tally]] = {}
    with Pool(options.jobs) as pool:
        for candidate, tallies in zip(chosen, pool.imap(work, chosen), strict=True):
            measured[candidate.name] = tallies
            print(f"{candidate.name}: {_summary(tallies)}", file=sys.stderr, flush=True)
    print("\n".join(tables(measured)))
    return 0


def _summary(tallies: Mapping[str, Tally]) -> str:
    whole = sum(tallies.values(), Tally())
    if not whole.runs:
        return "not installed"
    return f"{whole.runs:,} runs, {1000 * whole.seconds / whole.runs:.2f} CPU-ms each"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench.changes", description=__doc__)
    parser.add_argument(
        "--only", default="", help="only methods whose name matches this regular expression"
    )
    parser.add_argument(
        "--series", default="", help="only series whose name matches this regular expression"
    )
    parser.add_argument(
        "--scale", type=float, default=1.0, help="factor for the number of series (default: 1)"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument(
        "--otava", type=Path, help="path of apache_otava-0.8.0.tar.gz (default: download from PyPI)"
    )
    parser.add_argument(
        "--turing",
        type=Path,
        help="folder in the format of the Turing dataset: annotations.json and datasets/",
    )
    return parser


def _measure(
    candidate: Candidate,
    *,
    real: LabelledSeries,
    marked: list[LabelledSeries],
    scale: float,
    series: str,
) -> dict[str, Tally]:
    """The results of the method for each kind of series; empty if it is not installed."""
    try:
        method = candidate.method()
    except ImportError:
        return {}

    changing = [*step_scenarios(), *(injected(real, size) for size in (0.03, 0.05, 0.10))]
    counted = [(scenario, STEPS, LEAST_STEPS) for scenario in changing]
    counted += [(scenario, SILENCES, LEAST_SILENCES) for scenario in noise_scenarios()]
    for machine in machines():
        counted += [(machine.scenario(size), STEPS, LEAST_STEPS) for size in (0.10, 0.20)]
        counted.append((machine.scenario(), SILENCES, LEAST_SILENCES))
    kinds: dict[str, Iterable[LabelledSeries]] = {}
    for scenario, count, least in counted:
        seeds = range(max(round(count / scenario.cost * scale / candidate.cost), least))
        kinds[scenario.name] = map(scenario.series, seeds)
    kinds["TigerBeetle, as labelled"] = [real]
    if marked:
        kinds[f"--turing ({len(marked)} series)"] = marked
    return {
        name: sum((replay(method, member) for member in members), Tally())
        for name, members in kinds.items()
        if re.search(series, name)
    }


def _prompt(tally: Tally) -> str:
    return f"{tally.recall_within(PROMPT):.2f}" if tally.delays else ""


def _late(tally: Tally) -> str:
    return f"{tally.recall_within(LATE):.2f}" if tally.delays else ""


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
    """False alarms; only for series without a change, or with long levels around it."""
    long = tally.runs >= 30 * max(len(tally.delays), 1)
    return f"{1000 * tally.false_alarms / tally.runs:.1f}" if long else ""


CELLS = {
    "changes known within 5 runs": _prompt,
    "changes known within 10 runs": _late,
    "changes found, and precision": _found,
    "false alarms per 1,000 runs": _false,
    "F1 / covering of the whole series": _score,
}


def tables(measured: Mapping[str, Mapping[str, Tally]]) -> Iterator[str]:
    """Yield Markdown tables: a row for each kind of series, a column for each method.

    Each table has the first method beside some of the others, so that it fits on a page.
    """
    kinds = list(dict.fromkeys(kind for tallies in measured.values() for kind in tallies))
    first, *others = measured
    for title, cell in CELLS.items():
        for some in batched(others, OTHERS) if others else [()]:
            names = (first, *some)
            yield ""
            yield f"| {title} | {' | '.join(names)} |"
            yield "|---" + "|--:" * len(names) + "|"
            for kind in kinds:
                cells = [cell(measured[name].get(kind, Tally())) for name in names]
                if any(cells):
                    yield f"| {kind} | {' | '.join(cells)} |"


def batched(names: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    """As itertools has it from Python 3.12 on."""
    for start in range(0, len(names), size):
        yield names[start : start + size]


if __name__ == "__main__":
    sys.exit(main())
