"""The measures of a run, from which series are made: ``<stage>.<quantity>`` to a number.

Of a benchmark the quantity is ``<direction>:<unit>:<name>``: with another unit or direction it is
another series.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import ClassVar, TypeAlias

from ci.model.results import BenchmarkResult, Direction, PlatformResult, StageResult
from ci.util.lines import LARGEST_INTEGER

TOTAL = "total"
IMAGE = "image"
ENVIRONMENT = "environment"  # how people read it where the engine has no images
SYNC = "sync"  # not a measure: the transfer of the sources to the engine
REFERENCE = "reference.cpu_s"
"""The measure of a job that never changes: how fast the machine was when the run began."""
MISSES = "cache_misses.units"
"""The translation units that the compiler cache did not have."""
CONDITIONS = frozenset({REFERENCE, MISSES})
"""What explains other measures, and is not judged by itself."""
# Share of the tests. A suite with many failures takes another time, mostly a shorter one.
MOST_FAILURES = 0.01


class Quantity(StrEnum):
    """A measured quantity of every stage, with its unit."""

    WALL = "wall_s"
    CPU = "cpu_s"  # user and system
    PEAK_MEMORY = "peak_bytes"
    EXECUTED = "executed"  # share of the collected tests that were not skipped
    WHEEL = "wheel_bytes"
    LINES = "lines"  # generated
    UNITS = "units"  # translation units

    @property
    def is_time(self) -> bool:
        return self in (Quantity.WALL, Quantity.CPU)

    @property
    def is_noisy(self) -> bool:
        """Whether equal sources give different values."""
        return self.is_time or self is Quantity.PEAK_MEMORY

    @property
    def grows(self) -> bool:
        """Whether most commits raise it a little, so that a small rise is no regression."""
        return self in (Quantity.WHEEL, Quantity.LINES, Quantity.UNITS)

    @property
    def direction(self) -> Direction:
        return Direction.HIGHER if self is Quantity.EXECUTED else Direction.LOWER

    @property
    def label(self) -> str:
        return _LABELS[self]

    @property
    def place(self) -> int:
        """Its place among the quantities of a stage."""
        return list(Quantity).index(self)


@dataclass(frozen=True)
class Benchmark:
    """What a benchmark measures: a quantity of its stage."""

    direction: Direction
    unit: str
    name: str

    is_time: ClassVar = False  # of a stage, which others may contain
    is_noisy: ClassVar = True
    grows: ClassVar = False
    place: ClassVar = len(Quantity)

    @property
    def value(self) -> str:
        """As in the name of the measure."""
        return f"{self.direction}:{self.unit}:{self.name}"

    @property
    def label(self) -> str:
        return self.name


AnyQuantity: TypeAlias = Quantity | Benchmark


def measure_key(stage: str, quantity: AnyQuantity) -> str:
    return f"{stage}.{quantity.value}"


# The name of a stage may contain dots, and that of a benchmark anything.
_BENCHMARK = re.compile(r"(?:(.*?)\.)?(lower|higher):([^\s:]*):(.+)", re.DOTALL)


@lru_cache(maxsize=1 << 14)  # a report asks for each many times
def stage_and_quantity(name: str) -> tuple[str, AnyQuantity]:
    """Split a measure's name; raises ``ValueError`` if it has no known quantity."""
    if found := _BENCHMARK.fullmatch(name):
        stage, direction, unit, benchmark = found.groups()
        return stage or "", Benchmark(Direction(direction), unit, benchmark)
    stage, _, quantity = name.rpartition(".")
    return stage, Quantity(quantity)


def read_quantity(text: str) -> AnyQuantity:
    """Read a quantity as in the name of a measure; raises ``ValueError`` for another text."""
    stage, quantity = stage_and_quantity(text)
    if stage:
        raise ValueError(f"got {text!r:.100}, expected a quantity without a stage")
    return quantity


def is_benchmark(name: str) -> bool:
    """Whether a measure is that of a benchmark."""
    return isinstance(stage_and_quantity(name)[1], Benchmark)


def is_of(measure: str, stage: str | None, text: str | None) -> bool:
    """Whether a measure is of a stage, and its quantity contains a text in any case."""
    of, quantity = stage_and_quantity(measure)
    return stage in (None, of) and (text is None or text.casefold() in quantity.label.casefold())


def is_worse(measure: str, before: float, after: float) -> bool:
    """Whether the second value is worse; of most measures, the higher one is."""
    higher = stage_and_quantity(measure)[1].direction is Direction.HIGHER
    return after < before if higher else after > before


def measures_of(result: PlatformResult) -> dict[str, float]:
    """Return every measure of a platform's run; failed and skipped stages have none.

    Stages have their names in ``ci.yaml``. A stage with the name of a part of the build, such as
    ``compile``, replaces that part.
    """
    named: dict[str, float | None] = {}
    if result.built and (build := result.build):  # a failed build compiled only a part
        named |= {
            measure_key("configure", Quantity.WALL): build.configure_s,
            measure_key("compile", Quantity.WALL): build.compile_s,
            measure_key("link", Quantity.WALL): build.link_s,
            measure_key("compile", Quantity.UNITS): build.translation_units,
            measure_key("install", Quantity.WHEEL): build.wheel_bytes,
            measure_key("generate", Quantity.LINES): build.generated_lines,
        }
    measurable = {stage.name for stage in result.stages if _is_measurable(stage, result)}
    for stage in result.stages:
        if stage.name != SYNC and stage.name in measurable:
            named |= {
                measure_key(stage.name, Quantity.WALL): stage.seconds,
                measure_key(stage.name, Quantity.CPU): _cpu(stage),
                measure_key(stage.name, Quantity.PEAK_MEMORY): stage.peak_rss_bytes,
            }
    for name in pytest_stages(result) & measurable:
        if result.pytest:
            named[measure_key(name, Quantity.EXECUTED)] = result.pytest.executed_share
    named |= {benchmark_key(it): it.value for it in result.benchmarks if it.stage in measurable}
    in_total = [stage for stage in result.stages if stage.in_total]
    if result.total_s is not None and all(stage.name in measurable for stage in in_total):
        named[measure_key(TOTAL, Quantity.WALL)] = result.total_s
        cpu = [seconds for stage in in_total if (seconds := _cpu(stage)) is not None]
        if cpu and len(cpu) == len(in_total):
            named[measure_key(TOTAL, Quantity.CPU)] = sum(cpu)
    known = {name: float(value) for name, value in named.items() if value is not None}
    reference = result.facts("machine").get("reference_cpu_s")
    if known and isinstance(reference, float) and reference > 0:
        known[REFERENCE] = reference
    misses = result.facts("compiler_cache").get("misses")
    if known and type(misses) is int and 0 <= misses <= LARGEST_INTEGER:
        known[MISSES] = float(misses)
    return known


def benchmark_key(result: BenchmarkResult) -> str:
    """The name of the measure of a benchmark."""
    return measure_key(result.stage, Benchmark(result.direction, result.unit, result.name))


def pytest_stages(result: PlatformResult) -> set[str]:
    """The stage that runs the tests, whatever its name; empty if it was not measured.

    A build that takes as many seconds comes before it.
    """
    as_long = [it.name for it in result.stages if it.seconds and it.seconds == result.pytest_s]
    return {*as_long[-1:]}


def _is_measurable(stage: StageResult, result: PlatformResult) -> bool:
    """Whether a stage did its work; so did a pytest stage with few failures."""
    if stage.name == IMAGE:  # finding an existing image says nothing about the time to build one
        return result.facts("engine", "image").get("built") is True
    pytest = result.pytest
    if stage.exit_code != 1 or pytest is None or pytest.summary is None:
        return stage.exit_code == 0
    # pytest's exit code 1: accept it if few tests failed.
    return 0 < pytest.bad <= MOST_FAILURES * pytest.tests


def _cpu(stage: StageResult) -> float | None:
    if stage.cpu_user_s is None or stage.cpu_system_s is None:
        return None
    return stage.cpu_user_s + stage.cpu_system_s


# For people


_LABELS = {
    Quantity.WALL: "wall",
    Quantity.CPU: "CPU",
    Quantity.PEAK_MEMORY: "peak memory",
    Quantity.EXECUTED: "executed tests",
    Quantity.WHEEL: "wheel",
    Quantity.LINES: "generated lines",
    Quantity.UNITS: "translation units",
}
_SECONDS = {Quantity.WALL: "s", Quantity.CPU: "CPU-s"}
_BYTES = (Quantity.PEAK_MEMORY, Quantity.WHEEL)
# From these values on no decimal is shown, so that a value that rounds to 10 has none either.
_WHOLE_SECONDS = 9.95
_MOST_DECIMALS = 3  # as many as clocks of CPU time have, or more
_WHOLE_PERCENT = 0.0995
_WHOLE = 99.5  # from here on, three digits are a whole number
_CERTAIN = 0.999  # a probability is printed with three digits
_SIZES = ((2**20, "MiB"), (2**10, "KiB"))
_DURATIONS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}  # as tools name them


def percent(share: float, sign: str = "") -> str:
    """``21 %``, ``4.2 %``, ``0 %``; the sign ``+`` always shows a sign."""
    digits = 0 if abs(share) >= _WHOLE_PERCENT or not share else 1
    return f"{100 * share:{sign},.{digits}f} %"


def certain(probability: float) -> str:
    """``probability 0.967``, or ``probability over 0.999``."""
    shown = f"over {_CERTAIN}" if probability > _CERTAIN else f"{probability:.3f}"
    return f"probability {shown}"


def amount(value: float, quantity: AnyQuantity, sign: str = "", *, step: float = 0.0) -> str:
    """``38 s``, ``4 units``, ``97.5 %``; the sign ``+`` always shows a sign.

    It has as many decimals as it takes to show a difference of ``step``.
    """
    if isinstance(quantity, Benchmark):
        return _benchmark_amount(value, quantity.unit, sign, step)
    if quantity is Quantity.EXECUTED:  # the difference of two shares is no share
        return f"{100 * value:{sign},.1f} {'points' if sign else '%'}"
    if quantity in _BYTES:
        for size, unit in _SIZES:
            if abs(value) >= size or not value:
                return f"{value / size:{sign},.{max(1, _decimals(step / size))}f} {unit}"
        return f"{value:{sign},.0f} bytes"
    if quantity in _SECONDS:
        digits = 0 if abs(value) >= _WHOLE_SECONDS else 1
        return f"{value:{sign},.{max(digits, _decimals(step))}f} {_SECONDS[quantity]}"
    return f"{value:{sign},.0f} {quantity.value}"


def _decimals(step: float) -> int:
    """The decimals that show a difference of ``step``."""
    return min(max(-math.floor(math.log10(step)), 0), _MOST_DECIMALS) if step > 0 else 0


def _benchmark_amount(value: float, unit: str, sign: str, step: float) -> str:
    """``306 ns``, ``1.25 images/s``: three digits, of a duration in the unit that fits."""
    if (scale := _DURATIONS.get(unit)) is not None and value:
        seconds = value * scale
        unit = next((it for it, size in _DURATIONS.items() if abs(seconds) >= size), "ns")
        value = seconds / _DURATIONS[unit]
        step *= scale / _DURATIONS[unit]
    if decimals := _decimals(step):
        return f"{value:{sign},.{decimals}f} {unit}".rstrip()
    digits = ",.0f" if abs(value) >= _WHOLE else ".3g"
    return f"{value:{sign}{digits}} {unit}".rstrip()


def growth(before: float, after: float, quantity: AnyQuantity) -> str:
    """``+38 s (+21 %)``."""
    relative = f" ({percent(after / before - 1, '+')})" if before else ""
    return f"{amount(after - before, quantity, '+')}{relative}"


def measure_name(measure: str) -> str:
    """``install``, ``install CPU``, ``bench: test_sum``."""
    stage, quantity = stage_and_quantity(measure)
    if isinstance(quantity, Benchmark):
        return f"{stage}: {quantity.name}"
    return stage if quantity is Quantity.WALL else f"{stage} {quantity.label}"


def headline(measure: str, before: float, after: float) -> str:
    """``compile +38 s (+21 %)``."""
    stage, quantity = stage_and_quantity(measure)
    what: dict[AnyQuantity, str] = {
        Quantity.WHEEL: "wheel",
        Quantity.PEAK_MEMORY: f"{stage}'s peak memory",
        Quantity.EXECUTED: measure_name(measure),
    }
    name = measure_name(measure) if isinstance(quantity, Benchmark) else what.get(quantity, stage)
    return f"{name} {growth(before, after, quantity)}"
