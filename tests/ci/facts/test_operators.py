"""The records of operator tests, invalid records of other projects, and counts of overloads."""

from __future__ import annotations

import importlib.util
import json
from typing import Any

import pytest

from ci.facts.operators import operator_record, overload_counts, recorded_properties
from ci.facts.pytest_log import parse_log
from ci.model.outcomes import SKIP_REASONS, OperatorRecord, PytestLog
from ci.model.results import OverloadCount
from ci.util.invocation import REPOSITORY
from tests.ci import operator_log
from tests.ci.operator_log import FINISH, SIMULATED, lines, properties


def log(*tests: list[str]) -> PytestLog:
    return parse_log([line for test in tests for line in test] + [FINISH])


def counts(*tests: list[str]) -> list[OverloadCount]:
    return list(overload_counts(log(*tests).tests))


def count(active: int, executed: int, passed: int, **place: Any) -> OverloadCount:
    fields = {"slot": 8, "device": "cpu", **place}
    return OverloadCount(active=active, executed=executed, passed=passed, **fields)


def test_a_record_is_read_as_it_was_written() -> None:
    [test] = log(lines("add.out", against_cpu="agrees")).tests
    assert test.operator == OperatorRecord(
        overload="add.out",
        dtype="float32",
        slot=8,
        device="cpu",
        platform="cpu",
        active=True,
        executed=2,
        ran_device="cpu",
        ran_slot=8,
        ran_platform="cpu",
        against_cpu="agrees",
    )


@pytest.mark.parametrize(
    "properties",
    [
        *(
            None,
            [],
            {},
            "overload",
            7,
            [["overload"]],
            [[]],
            [["overload", 7]],
            [["overload", None]],
        ),
        *([["slot", 8]], [None], [[["overload"], "x"]], [["overload", "a", "b"]]),
    ],
)
def test_a_test_that_says_nothing_is_no_operator_test(properties: object) -> None:
    assert operator_record(recorded_properties({"user_properties": properties})) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("slot", True),
        ("slot", "8"),
        ("active", 1),
        ("simulated", "true"),
        ("executed", 1.5),
        ("reason", ["x"]),
    ],
)
def test_what_cannot_be_read_is_left_open(name: str, value: object) -> None:
    properties = [["overload", "add.out"], [name, value], ["color", "red"]]
    record = operator_record(recorded_properties({"user_properties": properties}))
    assert record == OperatorRecord(overload="add.out")


def test_a_second_attempt_replaces_what_the_first_recorded() -> None:
    again = [line.replace('"passed"', '"rerun"') for line in lines("add.out", executed=0)]
    assert [
        test.operator and test.operator.executed for test in log(again, lines("add.out")).tests
    ] == [2]


def test_the_vocabulary_is_that_of_the_operator_tests() -> None:
    path = REPOSITORY / "tests" / "ops" / "reasons.py"
    spec = importlib.util.spec_from_file_location("reasons_of_the_suite", path)
    assert spec is not None
    assert spec.loader is not None
    reasons = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(reasons)
    assert set(SKIP_REASONS) == {reason.value for reason in reasons.SkipReason}


@pytest.mark.parametrize(
    ("recorded", "message", "reason"),
    [
        ({"reason": "no sample"}, "whatever", "no sample"),
        ({}, "no sample: no call of add.out is recorded", "no sample"),
        ({}, "no sample", "no sample"),
        ({}, "vendor defect X-1: wrong", "vendor defect X-1"),
        ({"reason": "vendor defect", "quarantine": "X-1"}, "", "vendor defect X-1"),
        ({"reason": "vendor defect"}, "vendor defect torch 2.13: adds", "vendor defect torch 2.13"),
        ({"reason": "vendor defect"}, "whatever", "vendor defect"),
        ({"reason": "dtype unsupported", "quarantine": "X-1"}, "", "dtype unsupported"),
        ({"reason": "too hot"}, "no sample: x", "too hot"),
        ({}, "needs a network", None),
        ({}, "", None),
    ],
)
def test_why_a_test_skipped(recorded: dict[str, Any], message: str, reason: str | None) -> None:
    [test] = log(lines("add.out", "skipped", message, **recorded)).tests
    assert test.skip_reason == reason


def test_a_reason_is_kept_of_what_skipped_only() -> None:
    [test] = log(lines("add.out", reason="no sample")).tests
    assert test.skip_reason is None


def test_overloads_are_counted_once_whatever_their_dtypes() -> None:
    found = counts(
        lines("add.out"),
        lines("add.out", dtype="int64"),
        lines("mul.out", "skipped", executed=0, reason="no sample"),
        lines("sub.out", "failed"),
        lines("div.out", dtype="int64"),
        lines("div.out", "failed", dtype="bool"),
        lines("neg.out", "skipped", active=False, executed=None, reason="slot not active"),
    )
    assert found == [count(active=4, executed=3, passed=1)]


def test_a_skip_beside_a_pass_takes_nothing_away() -> None:
    skip = lines("add.out", "skipped", dtype="bool", executed=0, reason="dtype unsupported")
    assert counts(lines("add.out"), skip) == [count(active=1, executed=1, passed=1)]


def test_a_test_that_did_not_come_to_ask_counts_as_active() -> None:
    crashed = lines("add.out", "failed", active=None, executed=None, ran_device=None)
    assert counts(crashed) == [count(active=1, executed=0, passed=0)]


def test_what_ran_elsewhere_counts_there() -> None:
    found = counts(
        lines("add.out", device="cuda"), lines("mul.out", device="cuda", ran_device="cpu")
    )
    assert found == [
        count(active=0, executed=1, passed=1),
        count(active=2, executed=1, passed=1, device="cuda"),
    ]


def test_a_simulated_device_is_counted_apart_with_what_its_kernels_are() -> None:
    found = counts(
        lines("add.out", kernel="own", **SIMULATED),
        lines("add.out", kernel="own", dtype="int64", **SIMULATED),
        lines("mul.out", kernel="fallback", **SIMULATED),
        lines("neg.out", "failed", kernel="own", **SIMULATED),
        lines("abs.out", **SIMULATED),
        lines("sub.out", device="npu"),
    )
    kernels = {"own": 1, "composite": 0, "fallback": 1}
    assert found == [
        count(active=1, executed=1, passed=1, device="npu"),
        count(active=4, executed=4, passed=3, device="npu", simulated=True, kernels=kernels),
    ]


def test_slots_are_counted_apart() -> None:
    found = counts(lines("add", slot=0, ran_slot=0), lines("add.out"))
    assert [(one.slot, one.executed) for one in found] == [(0, 1), (8, 1)]


def test_a_project_without_operators_has_no_counts() -> None:
    plain = [line.replace(json.dumps(properties()), "[]") for line in lines("add.out")]
    assert counts(plain) == []
    assert operator_log.node_id("add.out") == log(plain).tests[0].node_id
