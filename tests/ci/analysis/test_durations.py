"""What the time of a suite goes into."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ci.analysis.durations import OTHERS, Share, add_up_costs
from ci.errors import ExitCode
from ci.facts.suite import outcomes_of
from ci.model.details import Details
from ci.model.outcomes import Outcome
from ci.model.results import RunResult
from tests.ci.made_results import made_test
from tests.ci.operator_log import node_id
from tests.ci.stored_history import Project, expect

SECONDS = {
    node_id("fft_fft.out", "float32"): 4.0,
    node_id("fft_fft.out", "bool"): 2.0,
    node_id("fft_ifft"): 1.0,
    node_id("fft_rfft", slot=0): 1.0,
    node_id("_foreach_add.List_out"): 0.5,
    node_id("_foreach_mul_.List"): 0.25,
    node_id("_foreach_neg"): 0.25,
    node_id("add_.Tensor"): 0.125,
    node_id("is_same"): 0.125,
    "tests/test_api.py::TestA::test_a[x]": 0.5,
    "tests/test_api.py::TestA::test_a[y]": 0.25,
}
TESTS = [made_test(name, seconds=seconds) for name, seconds in SECONDS.items()]


def test_families_are_first_words_that_several_operators_share() -> None:
    costs = add_up_costs(outcomes_of(TESTS))
    assert costs.families == (
        Share("fft_", 4, 8.0),
        Share("foreach_", 3, 1.0),
        Share("tests/test_api.py", 2, 0.75),
        Share(OTHERS, 2, 0.25),
    )
    assert costs.seconds == 10.0
    assert costs.share(costs.families[:1]) == 0.8


def test_operators_have_their_overloads_dtypes_and_slots_together() -> None:
    costs = add_up_costs(outcomes_of(TESTS))
    assert costs.functions[:3] == (
        Share("fft_fft", 2, 6.0),
        Share("fft_ifft", 1, 1.0),
        Share("fft_rfft", 1, 1.0),
    )
    assert Share("tests/test_api.py::TestA::test_a", 2, 0.75) in costs.functions
    assert costs.tests[0] == Share(node_id("fft_fft.out", "float32"), 1, 4.0)
    assert len(costs.tests) == len(TESTS)


def test_a_suite_that_takes_no_time_has_no_shares() -> None:
    costs = add_up_costs(outcomes_of(()))
    assert (costs.seconds, costs.share(()), costs.families) == (0.0, 0.0, ())


@pytest.fixture
def project(tmp_path: Path, published: RunResult) -> Project:
    project = Project(folder=tmp_path)
    with project.open() as store:
        store.save(published, {published.platforms[0].platform: Details(tests=TESTS)})
    return project


def test_the_store_has_the_same_tests_as_columns(project: Project, published: RunResult) -> None:
    platform = published.platforms[0].platform
    with project.open() as store:
        outcomes = store.outcomes(published.run_id, platform)
        assert [*zip(outcomes.names, outcomes.seconds, strict=True)] == sorted(SECONDS.items())
        again = [replace(test, outcome=Outcome.FAILED, reason="why") for test in TESTS]
        store.save(published, {platform: Details(tests=again)})
        outcomes = store.outcomes(published.run_id, platform)
        assert outcomes.failures == dict.fromkeys(SECONDS, "why")
        assert store.outcomes("another", platform).names == []


def test_the_report(project: Project) -> None:
    shown = expect(project.ci("report", "--slowest", "2"))
    assert "nvidia: 11 tests took 10.0 s in total\n" in shown
    assert "The most expensive tests: 2 of 11 took 6.0 s (60 %)" in shown
    assert "The most expensive families: 2 of 4 took 9.0 s (90 %)" in shown
    assert "ascend" not in shown  # it has no tests
    assert "fft_rfft" not in shown


def test_a_run_without_tests(tmp_path: Path, published: RunResult) -> None:
    project = Project(folder=tmp_path)
    with project.open() as store:
        store.save(published, {})
    message = f"--slowest: run {published.run_id}: got no recorded tests, expected at least one"
    expect(project.ci("report", "--slowest"), message, code=ExitCode.USAGE)


def test_the_report_as_markdown_and_json(project: Project) -> None:
    command = ("report", "--slowest", "--format")
    expect(project.ci(*command, "markdown"), "| 4 | 8.00 | 80 % | fft\\_ |\n")
    nvidia = json.loads(expect(project.ci(*command, "json")))["platforms"]["nvidia"]
    assert (nvidia["tests"], nvidia["seconds"]) == (11, 10.0)
    assert nvidia["families"][0] == {"name": "fft_", "tests": 4, "seconds": 8.0}
    assert len(nvidia["slowest"]) == 10
