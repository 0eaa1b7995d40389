"""A green suite that ran elsewhere is told from one that ran where it was asked to."""

from __future__ import annotations

from typing import Any

import pytest
from operator_log import FINISH, lines

from ci.analysis.backend import mismatches
from ci.pytest_log import parse_log

CUDA = {"device": "cuda", "platform": "nvidia", "ran_platform": "nvidia"}


def found(*tests: list[str], platform: str = "nvidia", device: str = "cuda") -> tuple[str, ...]:
    log = parse_log([line for test in tests for line in test] + [FINISH])
    return mismatches(log, platform=platform, torch_device=device)


def test_all_is_well() -> None:
    skipped = lines("mul.out", "skipped", **CUDA, executed=0, reason="no sample")
    assert found(lines("add.out", **CUDA), skipped) == ()


def test_hardware_that_nobody_can_name_is_no_mismatch() -> None:
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
            "requested cuda; 1 of 2 executed tests ran without saying where:"
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


def test_a_device_given_by_hand() -> None:
    by_hand = {**CUDA, "device": "cpu", "ran_device": "cpu", "ran_platform": None}
    assert found(lines("add.out", **by_hand)) == (
        "requested cuda; 1 of 1 executed tests ran on cpu: add.out-float32-cpu-slot8",
        "requested cuda; 1 of 1 tests were made for cpu: add.out-float32-cpu-slot8",
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


def test_failures_and_crashes_are_told_elsewhere() -> None:
    failed = lines("add.out", "failed", **{**CUDA, "executed": None})
    assert found(failed) == ()
    skipped = lines("add.out", "skipped", **CUDA, executed=0, reason="no sample")
    unfinished = parse_log(skipped)
    assert mismatches(unfinished, platform="nvidia", torch_device="cuda") == ()


def test_a_project_without_operator_tests_is_never_elsewhere() -> None:
    assert mismatches(parse_log([FINISH]), platform="nvidia", torch_device="cuda") == ()
