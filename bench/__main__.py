"""``python -m bench``: measures, writes JSON and Markdown, prints the table."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from bench.context import ROOT, Context
from bench.parts import (
    build,
    calls,
    capacity,
    dashboard,
    decoder,
    generate,
    history,
    kernels,
    pool,
    release,
)
from bench.report import BenchReport, describe_conditions, print_report, write_report
from bench.rows import GOALS, Measurement, MeasurementError
from ci.util.process import ProcessError

# In the order of the table. Installing comes first, because later parts use the library.
MEASURE: dict[str, Callable[[Context], Iterator[Measurement]]] = {
    "install": build.measure_install,
    "first-allowlist": build.measure_first_allowlist,
    "generate": generate.measure_torch,
    "backend-stubs": generate.measure_backend_stubs,
    "rebuild": build.measure_rebuild,
    "profile": build.measure_profile,
    "wheel": build.measure_wheel,
    "import": calls.measure_import,
    "python-call": calls.measure_python,
    "cpp-call": calls.measure_cpp,
    "kernels-cpu": kernels.measure_cpu,
    "kernels-cuda": kernels.measure_cuda,
    "decoder-cpu": decoder.measure,
    "release": release.measure,
    "history": history.measure,
    "dashboard": dashboard.measure,
    "capacity": capacity.measure,
    "pool": pool.measure,
}

EXIT_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the chosen parts; return 1 if something could not be measured."""
    settings = vars(_parser().parse_args(arguments))
    try:
        return run(settings.pop("only"), settings)
    except KeyboardInterrupt:
        print("bench: interrupted; nothing was written", file=sys.stderr)
        return EXIT_INTERRUPTED


def run(parts: Sequence[str], settings: Mapping[str, Any]) -> int:
    """Measure, print and write; ``settings`` are the fields of a ``Context``."""
    conditions = describe_conditions()  # before this run adds to the load
    with tempfile.TemporaryDirectory(prefix="infini-ops-bench-") as scratch:
        context = Context(scratch=Path(scratch), **settings)
        measurements = tuple(row for part in parts for row in measure_part(part, context))
    report = BenchReport(conditions=conditions, measurements=measurements)
    print_report(report, Console())
    for path in write_report(report, context.output_dir):
        print(path)
    return report_errors(measurements)


def measure_part(part: str, context: Context) -> list[Measurement]:
    """Measure all rows of one part; return an error row for each that could not be measured."""
    print(f"bench: {part}", file=sys.stderr)
    measured: list[Measurement] = []
    try:
        measured.extend(MEASURE[part](context))
    except Exception as error:  # errors here must not lose the figures of other parts
        explained = isinstance(error, MeasurementError | ProcessError)
        kind = "" if explained else f"{type(error).__name__}: "
        done = {measurement.key for measurement in measured}
        owed = [key for key, goal in GOALS.items() if goal.part == part and key not in done]
        measured += [Measurement(key=key, error=f"{kind}{error}") for key in owed]
    return measured


def report_errors(measurements: Sequence[Measurement]) -> int:
    """Print every failed measurement in full; return the exit code."""
    failed = [measurement for measurement in measurements if measurement.error]
    for measurement in failed:
        print(f"bench: error: {measurement.key}: {measurement.error}", file=sys.stderr)
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "--only",
        type=_parts,
        default=tuple(MEASURE),
        metavar="PART,…",
        help=f"measure these parts only: {', '.join(MEASURE)}",
    )
    parser.add_argument(
        "--repeat",
        type=_at_least(1),
        default=31,
        metavar="N",
        help="rounds of each interleaved timing (default: %(default)s)",
    )
    parser.add_argument(
        "--installed",
        action="store_true",
        help="measure calls and imports of the installed infini.ops instead of building one",
    )
    parser.add_argument(
        "--runs",
        type=_at_least(3),  # compares the first run, the last one and the one before
        default=2_000,
        metavar="N",
        help="runs in the generated history (default: %(default)s, which take 20 minutes to save)",
    )
    parser.add_argument(
        "--database",
        metavar="URL",
        help="an empty database for the generated history, such as postgresql+psycopg:///bench"
        " (default: a new SQLite database)",
    )
    parser.add_argument(
        "--slot-times",
        type=Path,
        metavar="FILE",
        help="write the times of kernels-cuda to FILE, codegen/slot_times.json for instance; then "
        "`python -m codegen headers` makes the fastest slots the default",
    )
    parser.add_argument(
        "--output-dir",
        type=Path,
        default=ROOT / "results" / "bench",
        metavar="DIR",
        help="folder for bench.json and bench.md (default: results/bench)",
    )
    return parser


def _parts(text: str) -> tuple[str, ...]:
    names = text.split(",")
    for name in names:
        if name not in MEASURE:
            raise argparse.ArgumentTypeError(
                f"'{name}' is not a part; expected some of {', '.join(MEASURE)}"
            )
    return tuple(name for name in MEASURE if name in names)


def _at_least(least: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if int(text) < least:
            raise argparse.ArgumentTypeError(f"expected at least {least}, got {int(text)}")
        return int(text)

    return number


if __name__ == "__main__":
    sys.exit(main())
