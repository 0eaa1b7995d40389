"""The closing lines of a run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from tally import closing_lines, report_properties

pytest_plugins = ["pytester"]


def entry(overload: str, outcome: str, **properties: object) -> dict[str, Any]:
    """Returns what a test of slot 8 on the CPU records."""
    outcomes = {"passed": outcome == "passed", "failed": outcome == "failed"}
    return {"overload": overload, "slot": 8, "device": "cpu", **outcomes, **properties}


def lines(*entries: dict[str, Any]) -> list[str]:
    return list(closing_lines(list(entries)))


def test_an_overload_is_executed_once_one_of_its_tests_executed_a_sample() -> None:
    assert lines(
        entry("abs.out", "passed", active=True, executed=2),
        entry("abs.out", "skipped", active=True, executed=0),
        entry("neg.out", "skipped", active=True, executed=0),
    ) == ["slot 8 on cpu: 1 of 2 active overloads executed (50.0 %), 1 passed"]


def test_an_overload_with_a_failure_is_executed_but_has_not_passed() -> None:
    assert lines(
        entry("abs.out", "passed", active=True, executed=2),
        entry("abs.out", "failed", active=True, executed=1),
    ) == ["slot 8 on cpu: 1 of 1 active overloads executed (100.0 %), 0 passed"]


def test_a_crash_counts_as_failed_and_its_overload_as_active() -> None:
    assert lines(
        entry("abs.out", "passed", active=True, executed=2),
        entry("abs.out", "failed"),
        entry("neg.out", "failed"),
    ) == ["slot 8 on cpu: 1 of 2 active overloads executed (50.0 %), 0 passed"]


def test_a_slot_that_is_not_active_counts_for_nothing() -> None:
    assert lines(entry("abs.out", "skipped", active=False)) == [
        "slot 8 on cpu: 0 of 0 active overloads executed (0.0 %), 0 passed"
    ]


def test_slots_and_devices_are_counted_apart_and_thousands_have_a_comma() -> None:
    many = [entry(f"{number}.out", "passed", active=True, executed=1) for number in range(1330)]
    other = entry("add", "passed", active=True, executed=1) | {"slot": 0, "device": "npu"}
    assert lines(*many, other) == [
        "slot 0 on npu: 1 of 1 active overloads executed (100.0 %), 1 passed",
        "slot 8 on cpu: 1,330 of 1,330 active overloads executed (100.0 %), 1,330 passed",
    ]


def test_a_run_without_operator_tests_says_so() -> None:
    assert lines() == ["no operator test ran: 0 overloads executed"]


def test_the_comparison_with_the_cpu_names_what_differs() -> None:
    compared = {"active": True, "executed": 1}
    assert lines(
        entry("abs.out", "passed", against_cpu="agrees", **compared),
        entry("neg.out", "passed", against_cpu="agrees", **compared),
        entry("neg.out", "passed", against_cpu="differs: out by 3", **compared),
        entry("rand.out", "passed", against_cpu="not comparable: random", **compared),
    )[1:] == ["against the CPU: 1 overloads agree, 1 differ: neg.out"]


def test_overloads_that_torch_gives_differently_each_time_are_named() -> None:
    ran = {"active": True, "executed": 1}
    assert lines(
        entry("abs.out", "passed", **ran),
        entry("pool.out", "passed", spread="out: 1 of 3 elements not compared", **ran),
        entry("pool.out", "passed", spread="out: 2 of 3 elements within torch's spread", **ran),
        entry("bag.out", "passed", spread="out2: 1 of 3 elements not compared", **ran),
    )[1:] == ["within torch's own spread, or uninitialized: 2 overloads: bag.out, pool.out"]


def test_the_lines_name_a_simulated_device_and_its_kinds_of_kernels() -> None:
    of_npu = {"device": "npu", "simulated": True, "active": True, "executed": 1}
    assert lines(
        entry("abs.out", "passed", kernel="own", against_cpu="agrees", **of_npu),
        entry("abs.out", "passed", kernel="own", **of_npu),
        entry("neg_", "passed", kernel="composite", **of_npu),
        entry("exp.out", "passed", kernel="fallback", **of_npu),
        entry("sin.out", "failed", kernel="own", **of_npu),
        entry("cos.out", "failed", device="npu", simulated=True),
    ) == [
        "slot 8 on npu (simulated): 4 of 5 active overloads executed (80.0 %), 3 passed, of which "
        "1 by its own kernels, 1 composite, 1 by the CPU fallback",
        "against the CPU (simulated): 1 overloads agree, 0 differ",
    ]


def test_the_lines_name_a_compiled_only_device() -> None:
    of_cuda = {"device": "cuda", "simulated": True, "active": True, "reason": "no device"}
    assert lines(
        entry("abs.out", "skipped", **of_cuda),
        entry("abs.out", "skipped", **of_cuda),
        entry("neg_", "skipped", **of_cuda),
    ) == ["slot 8 on cuda (no device): 0 of 2 active overloads executed, compiled only"]


SUITE = """
import pytest

@pytest.fixture
def broken_later():
    yield
    raise OSError("device lost")

def record(record_property, overload, executed):
    properties = {"overload": overload, "slot": 8, "device": "cpu", "active": True}
    for name, value in (properties | {"executed": executed}).items():
        record_property(name, value)

def test_passes(record_property):
    record(record_property, "abs.out", 2)

def test_fails(record_property):
    record(record_property, "neg.out", 1)
    assert False

def test_skips(record_property):
    record(record_property, "exp.out", 0)
    pytest.skip("no kernel")

def test_fails_after_the_call(record_property, broken_later):
    record(record_property, "sin.out", 1)
"""


@pytest.mark.full_suite
@pytest.mark.parametrize("options", [(), ("-q",), ("-n", "1"), ("-v", "-rA")])
def test_the_lines_come_right_before_the_last_line(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    pytester.makepyfile(SUITE)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
    pytester.makeconftest("from tally import pytest_terminal_summary")
    output = pytester.runpytest_subprocess("-p", "no:cacheprovider", *options).outlines
    assert output[-2].startswith("slot 8 on cpu: 3 of 4 active overloads executed")
    assert output[-2].endswith(", 1 passed")
    assert "1 failed" in output[-1]


def test_a_report_of_another_kind_records_nothing() -> None:
    assert report_properties([object()]) == []
