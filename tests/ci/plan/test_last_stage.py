"""The stages of a run that ends with one of them, or with a part of the build."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ci.plan.planning import RunOptions
from tests.ci import made_plans

BENCH = {"kind": "benchmark", "benchmarks": "out.json"}


@pytest.mark.parametrize(
    ("last", "left_out"),
    [
        ("fast", ["tests", "deep"]),
        ("deep", ["tests", "fast"]),
        ("tests", ["fast", "deep"]),
    ],
)
def test_neither_tests_nor_other_benchmarks_run_before_a_benchmark(
    last: str, left_out: list[str]
) -> None:
    stages: list[dict[str, str]] = [
        {"name": "build", "command": "make"},
        {"name": "tests", "command": "python -m pytest", "kind": "pytest"},
        {"name": "fast", "command": "make fast", **BENCH},
        {"name": "deep", "command": "make deep", **BENCH},
    ]
    options = RunOptions(last_stage=last)
    config = {"project": "tiny", "platforms": {"cpu": {}}, "stages": stages}
    plan = made_plans.plan(config, inputs=replace(made_plans.INPUTS, options=options))
    assert [it.name for it in plan.stages if it.left_out] == left_out


@pytest.mark.parametrize(
    ("last", "left_out"),
    [
        (None, []),
        ("build", ["size", "tests"]),
        ("size", ["tests"]),
        ("tests", []),
        ("compile", ["size", "tests"]),
    ],
)
def test_the_stages_after_the_last_one_are_left_out(last: str | None, left_out: list[str]) -> None:
    options = RunOptions(last_stage=last)
    plan = made_plans.plan(inputs=replace(made_plans.INPUTS, options=options))
    assert [it.name for it in plan.stages] == ["build", "size", "tests"]
    assert [it.name for it in plan.stages if it.left_out] == left_out
