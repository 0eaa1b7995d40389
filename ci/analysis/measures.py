"""The measures of a run that series are made of: ``<stage>.<quantity>`` to a number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum

from ci.results import PlatformResult, StageResult

TOTAL = "total"
IMAGE = "image"


class Quantity(StrEnum):
    """What is measured of a stage, with its unit."""

    WALL = "wall_s"
    CPU = "cpu_s"  # user and system
    PEAK_MEMORY = "peak_bytes"
    WHEEL = "wheel_bytes"
    LINES = "lines"  # generated
    UNITS = "units"  # translation units

    @property
    def is_noisy(self) -> bool:
        """Whether the same sources give another value every time."""
        return self in (Quantity.WALL, Quantity.CPU, Quantity.PEAK_MEMORY)


def measure(stage: str, quantity: Quantity) -> str:
    return f"{stage}.{quantity.value}"


def stage_and_quantity(name: str) -> tuple[str, Quantity]:
    """The parts of a measure's name; a stage may have dots in its own."""
    stage, _, quantity = name.rpartition(".")
    return stage, Quantity(quantity)


def measures_of(result: PlatformResult) -> dict[str, float]:
    """Every measure of a platform's run that got far enough to be compared with others."""
    return {name: float(value) for name, value in _measures(result) if value is not None}


def _measures(result: PlatformResult) -> Iterator[tuple[str, float | None]]:
    for stage in result.stages:
        if _counts(stage, result):
            yield from _of_stage(stage)
    if build := result.build:
        yield measure("configure", Quantity.WALL), build.configure_s
        yield measure("compile", Quantity.WALL), build.compile_s
        yield measure("link", Quantity.WALL), build.link_s
        yield measure("compile", Quantity.UNITS), build.translation_units
        yield measure("install", Quantity.WHEEL), build.wheel_bytes
        yield measure("generate", Quantity.LINES), build.generated_lines
    counted = [stage for stage in result.stages if stage.in_total]
    if result.total_s is not None and all(_counts(stage, result) for stage in counted):
        yield measure(TOTAL, Quantity.WALL), result.total_s
        yield measure(TOTAL, Quantity.CPU), _sum(map(_cpu, counted))


def _counts(stage: StageResult, result: PlatformResult) -> bool:
    """Whether it came to its end: a pytest whose tests failed took its time all the same."""
    if stage.name == IMAGE:  # finding one takes no time, and says nothing about making it
        return _image(result).get("built") is True
    whole_suite = result.pytest is not None and result.pytest.summary is not None
    return stage.exit_code == 0 or (stage.exit_code == 1 and bool(result.built) and whole_suite)


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


def _image(result: PlatformResult) -> Mapping[str, object]:
    engine = result.environment.get("engine")
    image = engine.get("image") if isinstance(engine, dict) else None
    return image if isinstance(image, dict) else {}
