"""The measures of a run that series are made of: ``<stage>.<quantity>`` to a number."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from ci.results import PlatformResult, PytestResult, StageResult

TOTAL = "total"
IMAGE = "image"
SYNC = "sync"  # no part of what is measured: the sources on their way to the engine
# Of the tests: a suite that fails as a whole takes another time, mostly a shorter one.
MOST_FAILURES = 0.01


class Quantity(StrEnum):
    """What is measured of a stage, with its unit."""

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
        """Whether the same sources give another value every time."""
        return self.is_time or self is Quantity.PEAK_MEMORY


def measure(stage: str, quantity: Quantity) -> str:
    return f"{stage}.{quantity.value}"


def stage_and_quantity(name: str) -> tuple[str, Quantity]:
    """The parts of a measure's name; a stage may have dots in its own."""
    stage, _, quantity = name.rpartition(".")
    return stage, Quantity(quantity)


def measures_of(result: PlatformResult) -> dict[str, float]:
    """Every measure of a platform's run; what failed, or was not done, has none.

    A stage has its name in ``ci.yaml``; one that is called as a part of the build is here, such as
    ``compile``, stands for that part.
    """
    named = {**dict(_of_build(result)), **dict(_of_stages(result))}
    return {name: float(value) for name, value in named.items() if value is not None}


def _of_build(result: PlatformResult) -> Iterator[tuple[str, float | None]]:
    if result.built and (build := result.build):  # one that failed compiled a part
        yield measure("configure", Quantity.WALL), build.configure_s
        yield measure("compile", Quantity.WALL), build.compile_s
        yield measure("link", Quantity.WALL), build.link_s
        yield measure("compile", Quantity.UNITS), build.translation_units
        yield measure("install", Quantity.WHEEL), build.wheel_bytes
        yield measure("generate", Quantity.LINES), build.generated_lines


def _of_stages(result: PlatformResult) -> Iterator[tuple[str, float | None]]:
    for stage in result.stages:
        if stage.name != SYNC and _counts(stage, result):
            yield from _of_stage(stage)
    counted = [stage for stage in result.stages if stage.in_total]
    if result.total_s is not None and all(_counts(stage, result) for stage in counted):
        yield measure(TOTAL, Quantity.WALL), result.total_s
        yield measure(TOTAL, Quantity.CPU), _sum(map(_cpu, counted))


def _counts(stage: StageResult, result: PlatformResult) -> bool:
    """Whether it did what it was to do: a pytest with few failures took its time all the same."""
    if stage.name == IMAGE:  # finding one takes no time, and says nothing about making it
        return result.facts("engine", "image").get("built") is True
    return stage.exit_code == 0 or (stage.exit_code == 1 and _failed_little(result.pytest))


def _failed_little(pytest: PytestResult | None) -> bool:
    """Whether some tests failed, and few; then no stage after pytest has begun."""
    if pytest is None or pytest.summary is None:
        return False
    bad = pytest.failed + pytest.errors
    return 0 < bad <= MOST_FAILURES * (bad + pytest.passed + pytest.skipped + pytest.xfailed)


def _of_stage(stage: StageResult) -> Iterator[tuple[str, float | None]]:
    yield measure(stage.name, Quantity.WALL), stage.seconds
    yield measure(stage.name, Quantity.CPU), _cpu(stage)
    yield measure(stage.name, Quantity.PEAK_MEMORY), stage.peak_rss_bytes


def _cpu(stage: StageResult) -> float | None:
    if stage.cpu_user_s is None or stage.cpu_system_s is None:
        return None
    return stage.cpu_user_s + stage.cpu_system_s


def _sum(values: Iterator[float | None]) -> float | None:
    found = list(values)
    known = [value for value in found if value is not None]
    return sum(known) if found and len(known) == len(found) else None
