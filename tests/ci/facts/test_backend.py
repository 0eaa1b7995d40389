"""A green suite that ran on another device is distinguished from one on the requested device."""

from __future__ import annotations

from typing import Any

import pytest
from operator_log import FINISH, SIMULATED, compiled_only, lines

from ci.facts.operators import mismatches
from ci.facts.pytest_log import parse_log

CUDA = {"device": "cuda", "platform": "nvidia", "ran_platform": "nvidia"}


def found(
    *tests: list[str], platform: str = "nvidia", device: str = "cuda", simulated: bool = False
) -> tuple[str, ...]:
    log = parse_log([line for test in tests for line in test] + [FINISH])
    return mismatches(log, platform=platform, torch_device=device, simulated=simulated)


def on_ascend(*tests: list[str], simulated: bool) -> tuple[str, ...]:
    return found(*tests, platform="ascend", device="npu", simulated=simulated)


def test_all_is_well() -> None:
    skipped = lines("mul.out", "skipped", **CUDA, executed=0, reason="no sample")
    assert found(lines("add.out", **CUDA), skipped) == ()


def test_unknown_hardware_is_not_a_mismatch() -> None:
    assert found(lines("add.out", **{**CUDA, "ran_platform": None})) == ()


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"ran_device": "cpu"},
            "requested cuda; 1 of 2 executed tests ran on cpu: mul.out-float32-cuda-slot8",
        ),
        (
            {"ran_device": None},
            "requested cuda; 1 of 2 passed tests ran without recording their device:"
            " mul.out-float32-cuda-slot8",
        ),
        (
            {"ran_platform": "iluvatar"},
            "requested nvidia; 1 of 2 executed tests ran on iluvatar: mul.out-float32-cuda-slot8",
        ),
        (
            {"ran_slot": 0},
            "requested the slot of each test; 1 of 2 executed tests ran on slot 0, not 8:"
            " mul.out-float32-cuda-slot8",
        ),
        (
            {"platform": "metax"},
            "requested nvidia; 1 of 2 tests were made for metax: mul.out-float32-cuda-slot8",
        ),
    ],
)
def test_one_test_that_ran_elsewhere(changes: dict[str, Any], line: str) -> None:
    assert found(lines("add.out", **CUDA), lines("mul.out", **{**CUDA, **changes})) == (line,)


def test_a_failed_test_is_not_reported_a_second_time() -> None:
    failed = {**CUDA, "ran_device": None, "ran_platform": None}
    assert found(lines("add.out", **CUDA), lines("mul.out", "failed", **failed)) == ()
    elsewhere = lines("mul.out", "failed", **{**CUDA, "ran_device": "cpu", "ran_platform": None})
    assert found(lines("add.out", **CUDA), elsewhere) == (
        "requested cuda; 1 of 2 executed tests ran on cpu: mul.out-float32-cuda-slot8",
    )


def test_a_device_given_by_hand() -> None:
    by_hand = {**CUDA, "device": "cpu", "ran_device": "cpu", "ran_platform": None}
    assert found(lines("add.out", **by_hand)) == (
        "requested cuda; 1 of 1 tests were made for cpu: add.out-float32-cpu-slot8",
    )


@pytest.mark.parametrize("simulated", [True, False])
def test_a_suite_of_another_platform_is_one_line(simulated: bool) -> None:
    """Whatever else is wrong with its tests follows from that."""
    tests = [
        lines("add.out"),
        lines("mul.out", ran_slot=0),
        lines("sub.out", "skipped", executed=0, reason="no sample"),
        lines("div.out", "skipped", executed=0, ran_device=None, reason="slot not active"),
    ]
    assert on_ascend(*tests, simulated=simulated) == (
        "requested npu; 4 of 4 tests were made for cpu: add.out-float32-cpu-slot8,"
        " mul.out-float32-cpu-slot8, sub.out-float32-cpu-slot8, div.out-float32-cpu-slot8",
    )


def test_each_of_two_causes_has_its_tests() -> None:
    elsewhere = lines("mul.out", **{**CUDA, "ran_device": "cpu", "ran_platform": "cpu"})
    assert found(lines("add.out"), elsewhere) == (
        "requested cuda; 1 of 2 tests were made for cpu: add.out-float32-cpu-slot8",
        "requested cuda; 1 of 2 executed tests ran on cpu: mul.out-float32-cuda-slot8",
    )


REAL = {"device": "npu", "platform": "ascend", "ran_platform": "ascend"}


def test_a_simulated_device_that_was_requested() -> None:
    skipped = lines("mul.out", "skipped", **SIMULATED, executed=0, reason="no sample")
    assert on_ascend(lines("add.out", **SIMULATED), skipped, simulated=True) == ()
    assert on_ascend(lines("add.out", **REAL), simulated=False) == ()


def test_a_simulated_device_proves_nothing_about_a_real_one() -> None:
    skipped = lines("mul.out", "skipped", **SIMULATED, executed=0, reason="no sample")
    assert on_ascend(lines("add.out", **SIMULATED), skipped, simulated=False) == (
        "requested a real npu; 2 of 2 tests were on a simulated one: add.out-float32-npu-slot8,"
        " mul.out-float32-npu-slot8",
    )


def test_a_real_device_is_no_simulated_one() -> None:
    assert on_ascend(lines("add.out", **REAL), simulated=True) == (
        "requested a simulated npu; 1 of 1 tests were on one that is not simulated:"
        " add.out-float32-npu-slot8",
    )


@pytest.mark.parametrize("simulated", [True, False])
def test_a_run_on_both_kinds_of_device_is_a_run_on_neither(simulated: bool) -> None:
    [line] = on_ascend(lines("add.out", **REAL), lines("mul.out", **SIMULATED), simulated=simulated)
    wrong = "one that is not simulated: add" if simulated else "a simulated one: mul"
    assert f"; 1 of 2 tests were on {wrong}.out-float32-npu-slot8" in line


def test_a_simulated_request_needs_a_test_on_a_simulated_device() -> None:
    assert on_ascend(simulated=True) == ("requested a simulated npu; no test recorded its device",)
    unfinished = parse_log([])
    assert mismatches(unfinished, platform="ascend", torch_device="npu", simulated=True) == ()


def on_metax(*tests: list[str]) -> tuple[str, ...]:
    return found(*tests, platform="metax", device="cuda", simulated=True)


def test_nothing_runs_without_a_real_or_simulated_device() -> None:
    assert on_metax(compiled_only("add.out"), compiled_only("mul.out")) == ()


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"executed": 1}, "cuda to be compiled only; 1 of 2 tests executed a sample"),
        (
            {"reason": "no sample"},
            "cuda to be compiled only; 1 of 2 tests did not skip for lack of a device",
        ),
        (
            {"reason": "slot not active"},
            "cuda to be compiled only; 1 of 2 tests skipped: slot not active",
        ),
        (
            {"simulated": None},
            "cuda to be compiled only; 1 of 2 tests were on one that is not simulated",
        ),
        ({"platform": "nvidia"}, "metax; 1 of 2 tests were made for nvidia"),
        ({"device": "cpu"}, "cuda to be compiled only; 1 of 2 tests were made for cpu"),
    ],
)
def test_a_test_that_says_more_than_that_its_device_is_not_here(
    changes: dict[str, Any], line: str
) -> None:
    [reported] = on_metax(compiled_only("add.out"), compiled_only("mul.out", **changes))
    assert reported.startswith(f"requested {line}: mul.out-")


def test_what_is_compiled_only_needs_tests_that_say_so() -> None:
    assert on_metax() == ("requested cuda to be compiled only; no test recorded its device",)


@pytest.mark.parametrize("simulated", [True, False])
def test_no_device_is_no_excuse_where_there_has_to_be_one(simulated: bool) -> None:
    asked = {"device": "npu", "platform": "ascend", "simulated": simulated or None}
    ran = lines("add.out", **{**asked, "ran_platform": None})
    assert on_ascend(ran, compiled_only("mul.out", **asked), simulated=simulated) == (
        "requested npu; 1 of 2 tests skipped: no device: mul.out-float32-npu-slot8",
    )


def test_a_slot_that_is_not_there() -> None:
    missing = lines("mul.out", "skipped", **CUDA, executed=0, reason="slot not active")
    assert found(lines("add.out", **CUDA), missing) == (
        "requested cuda; 1 of 2 tests skipped: slot not active: mul.out-float32-cuda-slot8",
    )


def test_many_are_counted_and_the_first_named() -> None:
    tests = [lines(f"op{n}.out", **{**CUDA, "ran_device": "cpu"}) for n in range(1200)]
    [line] = found(*tests)
    assert line.startswith("requested cuda; 1,200 of 1,200 executed tests ran on cpu: op0.out-")
    assert line.endswith("op4.out-float32-cuda-slot8 and 1,195 more")


def test_a_suite_that_executes_nothing_proves_nothing() -> None:
    skipped = lines("add.out", "skipped", **CUDA, executed=0, reason="no sample")
    assert found(skipped, skipped) == ("no operator test executed a sample, of 1",)


def test_failures_and_crashes_are_reported_elsewhere() -> None:
    failed = lines("add.out", "failed", **{**CUDA, "executed": None})
    assert found(failed) == ()
    skipped = lines("add.out", "skipped", **CUDA, executed=0, reason="no sample")
    unfinished = parse_log(skipped)
    assert mismatches(unfinished, platform="nvidia", torch_device="cuda", simulated=False) == ()


def test_a_project_without_operator_tests_is_never_elsewhere() -> None:
    assert found() == ()
