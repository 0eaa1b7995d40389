"""The measures of a run, from which series are made: ``<stage>.<quantity>`` to a number."""

from __future__ import annotations

import math
from enum import StrEnum

from ci.model.results import PlatformResult, StageResult

TOTAL = "total"
IMAGE = "image"
ENVIRONMENT = "environment"  # how people read it where the engine has no images
SYNC = "sync"  # not a measure: the transfer of the sources to the engine
# Share of the tests. A suite with many failures takes another time, mostly a shorter one.
MOST_FAILURES = 0.01


class Quantity(StrEnum):
    """A measured quantity of a stage, with its unit."""

    WALL = "wall_s"
    CPU = "cpu_s"  # user and system
    PEAK_MEMORY = "peak_bytes"
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


def measure_key(stage: str, quantity: Quantity) -> str:
    return f"{stage}.{quantity.value}"


def stage_and_quantity(name: str) -> tuple[str, Quantity]:
    """Split a measure's name; the name of a stage may contain dots."""
    stage, _, quantity = name.rpartition(".")
    return stage, Quantity(quantity)


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
    for stage in result.stages:
        if stage.name != SYNC and _is_measurable(stage, result):
            named |= {
                measure_key(stage.name, Quantity.WALL): stage.seconds,
                measure_key(stage.name, Quantity.CPU): _cpu(stage),
                measure_key(stage.name, Quantity.PEAK_MEMORY): stage.peak_rss_bytes,
            }
    in_total = [stage for stage in result.stages if stage.in_total]
    if result.total_s is not None and all(_is_measurable(stage, result) for stage in in_total):
        named[measure_key(TOTAL, Quantity.WALL)] = result.total_s
        cpu = [seconds for stage in in_total if (seconds := _cpu(stage)) is not None]
        if cpu and len(cpu) == len(in_total):
            named[measure_key(TOTAL, Quantity.CPU)] = sum(cpu)
    return {name: float(value) for name, value in named.items() if value is not None}


def _is_measurable(stage: StageResult, result: PlatformResult) -> bool:
    """Whether a stage did its work; so did a pytest stage with few failures."""
    if stage.name == IMAGE:  # finding an existing image says nothing about the time to build one
        return result.facts("engine", "image").get("built") is True
    pytest = result.pytest
    if stage.exit_code != 1 or pytest is None or pytest.summary is None:
        return stage.exit_code == 0
    # pytest's exit code 1: accept it if few tests failed.
    tests = pytest.bad + pytest.passed + pytest.skipped + pytest.xfailed
    return 0 < pytest.bad <= MOST_FAILURES * tests


def _cpu(stage: StageResult) -> float | None:
    if stage.cpu_user_s is None or stage.cpu_system_s is None:
        return None
    return stage.cpu_user_s + stage.cpu_system_s


# For people


LABELS = {
    Quantity.WALL: "wall",
    Quantity.CPU: "CPU",
    Quantity.PEAK_MEMORY: "peak memory",
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
_CERTAIN = 0.999  # a probability is printed with three digits
_SIZES = ((2**20, "MiB"), (2**10, "KiB"))


def percent(share: float, sign: str = "") -> str:
    """``21 %``, ``4.2 %``, ``0 %``; the sign ``+`` always shows a sign."""
    digits = 0 if abs(share) >= _WHOLE_PERCENT or not share else 1
    return f"{100 * share:{sign},.{digits}f} %"


def certain(probability: float) -> str:
    """``probability 0.967``, or ``probability over 0.999``."""
    shown = f"over {_CERTAIN}" if probability > _CERTAIN else f"{probability:.3f}"
    return f"probability {shown}"


def amount(value: float, quantity: Quantity, sign: str = "", *, step: float = 0.0) -> str:
    """``38 s``, ``4 units``; the sign ``+`` always shows a sign.

    Seconds have as many decimals as it takes to show a difference of ``step``.
    """
    if quantity in _BYTES:
        for size, unit in _SIZES:
            if abs(value) >= size or not value:
                return f"{value / size:{sign},.1f} {unit}"
        return f"{value:{sign},.0f} bytes"
    if quantity in _SECONDS:
        digits = 0 if abs(value) >= _WHOLE_SECONDS else 1
        needed = -math.floor(math.log10(step)) if step > 0 else 0
        digits = max(digits, min(needed, _MOST_DECIMALS))
        return f"{value:{sign},.{digits}f} {_SECONDS[quantity]}"
    return f"{value:{sign},.0f} {quantity.value}"


def growth(before: float, after: float, quantity: Quantity) -> str:
    """``+38 s (+21 %)``."""
    relative = f" ({percent(after / before - 1, '+')})" if before else ""
    return f"{amount(after - before, quantity, '+')}{relative}"


def measure_name(measure: str) -> str:
    """``install``, ``install CPU``."""
    stage, quantity = stage_and_quantity(measure)
    return stage if quantity is Quantity.WALL else f"{stage} {LABELS[quantity]}"


def headline(measure: str, before: float, after: float) -> str:
    """``compile +38 s (+21 %)``."""
    stage, quantity = stage_and_quantity(measure)
    what = {Quantity.WHEEL: "wheel", Quantity.PEAK_MEMORY: f"{stage}'s peak memory"}
    return f"{what.get(quantity, stage)} {growth(before, after, quantity)}"
