"""Estimates of stages, from the runs in a real store."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from ci.facts.environment_key import EnvironmentKey
from ci.model.outcomes import Outcome, State, Suite
from ci.model.plan import ContractPlan, RunPlan, SelectionPlan
from ci.plan.planning import RunOptions
from ci.plan.project import load_project, plan_run
from ci.run.coordinator import expectation_of
from ci.run.estimates import similarity, stage_estimates, usual_seconds
from ci.run.records import Records
from ci.run.status import Expectation
from ci.store.rows import RunMeasures
from tests.ci.workplace import Workplace, new_workplace


@pytest.fixture
def workplace(tmp_path: Path) -> Workplace:
    return new_workplace(tmp_path)


@pytest.fixture
def plan(workplace: Workplace) -> RunPlan:
    source = workplace.folder / "source"
    [plan] = plan_run(
        load_project(source / "ci.yaml", {}),
        ("cpu",),
        run_id="next",
        source=source,
        results=workplace.results,
        options=RunOptions(engine="docker"),
    )
    return plan


def row(number: int, key: str = "a", **seconds: float) -> RunMeasures:
    return RunMeasures(
        run_id=f"run-{number}",
        commit=None,
        dirty=False,
        started_at=datetime(2026, 1, 1, tzinfo=UTC),
        key=key,
        values={f"{stage}.wall_s": time for stage, time in seconds.items()},
    )


def test_the_newest_runs_count(plan: RunPlan) -> None:
    rows = [row(number, build=time) for number, time in enumerate((900, 10, 30, 20, 50, 40))]
    assert usual_seconds(plan, rows, {"a": 5}) == {"build": 30}


def test_runs_of_the_most_similar_environment_count(plan: RunPlan) -> None:
    rows = [
        row(1, "warm", build=10, pytest=60),
        row(2, "cold", build=500),
        row(3, "cold", build=600, pytest=70),
        row(4, "unreadable", build=1, pytest=1),
    ]
    alike = {"warm": 5, "cold": 4}
    assert usual_seconds(plan, rows, alike) == {"build": 10, "pytest": 60}
    assert usual_seconds(plan, rows[1:], alike) == {"build": 550, "pytest": 70}


def test_stages_that_never_ran_have_no_estimate(plan: RunPlan) -> None:
    assert usual_seconds(plan, [row(1, other=1)], {"a": 5}) == {}


def test_similar_environments(plan: RunPlan) -> None:
    assert plan.image is not None
    same = EnvironmentKey(
        platform="cpu",
        machine="m",
        image=plan.image.tag,
        compiler="c",
        build_tools="b",
        python="p",
        torch="t",
        engine="docker engine",
        cache="warm compiler cache, half or more hits",
        selection="all operators",
    )
    assert similarity(same, plan, "docker") == 5
    for name in ("platform", "image", "engine", "selection"):
        assert similarity(replace(same, **{name: "other"}), plan, "docker") == 4
    assert similarity(replace(same, cache="cold compiler cache"), plan, "docker") == 4
    assert similarity(same, plan, "host") == 4


def test_estimates_come_from_the_store(workplace: Workplace, plan: RunPlan) -> None:
    records = Records(workplace.results / "next", workplace.open_store)
    assert records.estimates("tiny", plan, "docker") == {}  # not open yet
    first, _ = workplace.run()
    measured = {it.name: it.seconds for it in first.platforms[0].stages}
    with records:
        records.open()
        found = records.estimates("tiny", plan, "docker")
        assert found == {name: pytest.approx(measured[name]) for name in ("build", "pytest")}
        assert records.estimates("other", plan, "docker") == {}
        # The tests will take another time, and the build will not.
        stages = tuple(replace(it, shards=2) if it.name == "pytest" else it for it in plan.stages)
        shared = replace(plan, stages=stages)
        assert records.estimates("tiny", shared, "docker").keys() == {"build"}
    second, _ = workplace.run(shards=2)
    measured = {it.name: it.seconds for it in second.platforms[0].stages}
    with records:
        records.open()
        found = records.estimates("tiny", shared, "docker")
        assert found["pytest"] == pytest.approx(measured["pytest"])


def test_the_tests_of_the_contract_are_expected(plan: RunPlan) -> None:
    assert expectation_of(plan) == Expectation(stages=("build", "pytest"))
    counts = Counter({State(Outcome.PASSED): 3, State(Outcome.SKIPPED): 2})
    functions = {"t.py::a": counts, "t.py::b": counts}
    suite = Suite(device=None, operators={}, functions=functions, others=None)
    expected = expectation_of(replace(plan, contract=ContractPlan(suite=suite)))
    assert expected == Expectation(stages=("build", "pytest"), tests={"pytest": 10})
    assert expectation_of(replace(plan, contract=ContractPlan(suite=None))).tests == {}
    for operators, tests in ((None, {"pytest": 10}), ("smoke", {})):
        selection = SelectionPlan(variable="OPS", operators=operators)
        changed = replace(plan, contract=ContractPlan(suite=suite), selection=selection)
        assert expectation_of(changed).tests == tests


def test_a_damaged_store_gives_no_estimates(
    workplace: Workplace, plan: RunPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    workplace.run()
    with workplace.open_store() as store:
        assert stage_estimates(store, "tiny", plan, "docker")
        damaged = store.unreadable("run-1", "damaged")
        monkeypatch.setattr(store, "measured", lambda *_, **__: (_ for _ in ()).throw(damaged))
        assert stage_estimates(store, "tiny", plan, "docker") == {}
