"""The measures of a run: all that was done, and nothing of what failed."""

from __future__ import annotations

from typing import Any

import pytest

from ci.facts.measures import Quantity, amount, measure_key, measures_of, stage_and_quantity
from ci.model.results import BuildResult, PlatformResult, PytestResult, StageResult
from tests.ci.published import PUBLISHED, platform_result

BUILD = BuildResult(
    configure_s=0.5,
    compile_s=12.0,
    link_s=0.75,
    translation_units=13,
    wheel_bytes=1133561,
    generated_lines=53253,
)
INSTALLED = {"install.wall_s": 888.75, "install.cpu_s": 2678.5, "install.peak_bytes": 3.0 * 2**30}
BUILT = {
    "configure.wall_s": 0.5,
    "compile.wall_s": 12.0,
    "compile.units": 13.0,
    "link.wall_s": 0.75,
    "install.wheel_bytes": 1133561.0,
    "generate.lines": 53253.0,
}


def ran(**changes: Any) -> PlatformResult:
    return platform_result("NVIDIA", PUBLISHED[0][1:], **{"build": BUILD, **changes})


def with_exit_codes(*codes: int | None) -> tuple[StageResult, ...]:
    return tuple(
        stage.model_copy(
            update={"exit_code": code} | ({} if code is not None else {"seconds": None})
        )
        for stage, code in zip(ran().stages, codes, strict=True)
    )


def suite(**counts: int) -> PytestResult:
    pytest = ran().pytest
    assert pytest is not None
    return pytest.model_copy(update=counts)


def test_all_that_was_measured() -> None:
    times = {"pytest.wall_s": 182.125, "total.wall_s": 1074.0}
    found = measures_of(ran())
    assert found.pop("pytest.executed") == pytest.approx(9206 / (9206 + 8664))
    assert found == INSTALLED | BUILT | times


def test_an_image_counts_where_it_was_made() -> None:
    for built, seconds in ((True, 0.4), (False, None)):
        found = measures_of(ran(environment={"engine": {"image": {"built": built}}}))
        assert found.get("image.wall_s") == seconds


def test_cpu_seconds_of_the_total_need_those_of_all_stages() -> None:
    cpu = {"cpu_user_s": 2.0, "cpu_system_s": 1.0}
    stages = tuple(stage.model_copy(update=cpu) for stage in ran().stages)
    assert measures_of(ran(stages=stages))["total.cpu_s"] == 6.0


def test_a_build_that_failed_has_no_measure() -> None:
    result = ran(built=False, stages=with_exit_codes(0, 1, None), pytest=None, total_s=None)
    assert measures_of(result) == {}


@pytest.mark.parametrize(
    ("counts", "counted"),
    [
        ({"failed": 3, "errors": 2}, True),
        ({"failed": 181}, False),  # of 18,051, which is more than 1 %
        ({}, False),  # the suite failed without a failed test: the cause is unknown
    ],
)
def test_a_suite_counts_where_it_failed_little(counts: dict[str, int], counted: bool) -> None:
    found = measures_of(ran(stages=with_exit_codes(0, 0, 1), pytest=suite(**counts)))
    assert ("pytest.wall_s" in found, "total.wall_s" in found) == (counted, counted)
    assert found.items() >= (INSTALLED | BUILT).items()


@pytest.mark.parametrize("code", [2, 137, None])
def test_a_suite_that_did_not_get_to_its_end_has_no_measure(code: int | None) -> None:
    result = ran(stages=with_exit_codes(0, 0, code), pytest=suite(failed=1), total_s=None)
    assert measures_of(result) == INSTALLED | BUILT


def test_a_stage_with_the_name_of_a_part_of_the_build_replaces_it() -> None:
    stage = StageResult(name="compile", seconds=40.0, exit_code=0, in_total=True)
    found = measures_of(ran(stages=(*ran().stages, stage)))
    assert found["compile.wall_s"] == 40.0
    assert found["compile.units"] == 13.0


def test_the_way_of_the_sources_is_no_measure() -> None:
    stage = StageResult(name="sync", seconds=4.0, exit_code=0, in_total=False)
    assert measures_of(ran(stages=(*ran().stages, stage))) == measures_of(ran())


def test_names_of_measures_are_read_back() -> None:
    for quantity in Quantity:
        assert stage_and_quantity(measure_key("build.all", quantity)) == ("build.all", quantity)
    exact = [it for it in Quantity if not it.is_noisy]
    assert exact == ["executed", "wheel_bytes", "lines", "units"]


@pytest.mark.parametrize(
    ("value", "step", "text"),
    [
        (1.0, 0.0, "1.0 CPU-s"),
        (1.0, 0.08, "1.00 CPU-s"),
        (1.08, 0.08, "1.08 CPU-s"),
        (0.01, 0.0008, "0.010 CPU-s"),
        (12.0, 0.96, "12.0 CPU-s"),
        (174.0, 30.0, "174 CPU-s"),
    ],
)
def test_seconds_have_the_decimals_that_show_a_difference(
    value: float, step: float, text: str
) -> None:
    assert amount(value, Quantity.CPU, step=step) == text


@pytest.mark.parametrize(
    ("measure", "values", "text"),
    [
        ("bench.lower:s:a", (1.2300e-5, 1.2339e-5), "12.30 us, 12.34 us"),
        ("bench.higher:MB/s:a", (812.1, 811.7), "812.1 MB/s, 811.7 MB/s"),
        ("bench.lower:s:a", (1.23e-5, 2e-5), "12.3 us, 20 us"),
        ("install.peak_bytes", (100 * 2.0**20, 100.02 * 2**20), "100.00 MiB, 100.02 MiB"),
        ("pytest.executed", (0.975, 0.9875), "97.5 %, 98.8 %"),
    ],
)
def test_amounts_have_the_digits_that_show_a_step(
    measure: str, values: tuple[float, float], text: str
) -> None:
    quantity, step = stage_and_quantity(measure)[1], abs(values[1] - values[0])
    assert ", ".join(amount(it, quantity, step=step) for it in values) == text
