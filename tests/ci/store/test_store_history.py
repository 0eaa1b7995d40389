"""Queries over many runs of the store, and the data beside their rows."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import text

from ci.errors import InfrastructureError
from ci.facts.acceptance import accept_level
from ci.facts.environment_key import environment_key
from ci.facts.measures import Benchmark, measure_key, measures_of
from ci.model.details import BuildDetails, Details, Rerun, Unit, UnitKind
from ci.model.outcomes import Outcome, TestOutcome
from ci.model.results import BuildResult, Direction, RunResult
from ci.store.rows import AlarmEvent, AlarmMessage, AlarmRecord, AlarmRise, AlarmState
from ci.store.store import Store
from tests.ci.postgresql_server import connected

ACCEPTED: Any = {"platform": "moore", "run": "run-1", "who": "a", "date": date(2026, 1, 2)}


def number(run: RunResult, n: int, **changes: object) -> RunResult:
    """The n-th run of a history."""
    started = run.started_at + timedelta(hours=n)
    return run.model_copy(update={"run_id": f"run-{n}", "started_at": started, **changes})


def ended(
    outcome: Outcome, name: str = "t::a", *, seconds: float = 0.25, reason: str | None = None
) -> TestOutcome:
    return TestOutcome(node_id=name, outcome=outcome, seconds=seconds, reason=reason)


def test_a_build_comes_back_as_it_was(published: RunResult, store: Store) -> None:
    made = BuildResult(compile_s=31.25, translation_units=15, wheel_bytes=1 << 40)
    platform = published.platforms[0].model_copy(update={"build": made})
    run = published.model_copy(update={"platforms": (platform,)})
    build = BuildDetails(
        units=(
            Unit(output="a.o", kind=UnitKind.COMPILE, seconds=1.5, cached=True),
            Unit(output="lib.so", kind=UnitKind.LINK, seconds=0.1),
        ),
        generated={"a.cc": 120},
        flags=("-O2", "-g"),
        traced={"Frontend": 3.5},
    )
    store.save(run, {platform.platform: Details(build=build)})
    assert store.load() == run
    assert store.build_details([run.run_id], platform.platform) == {run.run_id: build}
    assert store.build_details([run.run_id], "elsewhere") == {}
    store.save(number(published, 1), {})
    both = store.build_details([run.run_id, "run-1"], platform.platform)
    assert both == {run.run_id: build}
    assert store.tests(run.run_id, platform.platform) == []


def test_reruns_come_back_in_their_order(published: RunResult, store: Store) -> None:
    reruns = [
        Rerun(node_id="t::b", attempt=1, outcome=Outcome.FAILED, seconds=0.1, reason="no \0"),
        Rerun(node_id="t::a", attempt=1, outcome=Outcome.PASSED, seconds=0.123456789),
    ]
    store.save(published, {"moore": Details(reruns=reruns)})
    assert store.reruns(published.run_id, "moore") == reruns
    assert store.reruns(published.run_id, "nvidia") == []


def test_tests_are_kept_in_order_of_their_names_to_the_microsecond(
    published: RunResult, store: Store
) -> None:
    odd = ended(Outcome.FAILED, "t::b[\u2603\n]", seconds=86_400.0000014, reason="of \0 a kind")
    first = ended(Outcome.PASSED, "t::a", seconds=0.0)
    last = ended(Outcome.FAILED, "t::c", seconds=0.000017, reason="another")
    store.save(published, {"moore": Details(tests=[odd, first, last])})
    rounded = replace(odd, seconds=86_400.000001)
    assert store.tests(published.run_id, "moore") == [first, rounded, last]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seconds": float("nan")}, "cannot convert"),
        ({"seconds": float("inf")}, "cannot convert"),
        ({"seconds": 1e300}, "int too"),
        ({"node_id": "half a \udce9 character"}, "surrogates not allowed"),
    ],
)
def test_an_invalid_test_is_refused(
    changes: dict[str, Any], message: str, published: RunResult, store: Store
) -> None:
    test = replace(ended(Outcome.PASSED), **changes)
    message = f"the store cannot save run {published.run_id}: .*{message}"
    with pytest.raises(InfrastructureError, match=message):
        store.save(published, {"moore": Details(tests=[test])})


def test_runs_are_listed_the_newest_first(published: RunResult, store: Store) -> None:
    other = number(published, 1, project="other", platforms=())
    for run in (number(published, 2, commit=None, dirty=True), published, other):
        store.save(run, {})
    heads = store.heads()
    assert [head.run_id for head in heads] == ["run-2", "run-1", published.run_id]
    assert (heads[0].commit, heads[0].dirty) == (None, True)
    assert heads[0].started_at == published.started_at + timedelta(hours=2)
    assert heads[1].platforms == ()
    assert heads[2].platforms == ("ascend", "cambricon", "iluvatar", "metax", "moore", "nvidia")
    assert [head.run_id for head in store.heads(project="other")] == ["run-1"]
    assert [head.run_id for head in store.heads(last=1)] == ["run-2"]
    assert store.heads(project="elsewhere") == []


@pytest.mark.parametrize("name", ["a/b", "a b/ c", "/"])
def test_any_stored_name_of_a_platform_is_listed(
    name: str, published: RunResult, store: Store
) -> None:
    first, second, *_ = published.platforms
    odd = first.model_copy(update={"platform": name})
    store.save(published.model_copy(update={"platforms": (odd, second)}), {})
    [head] = store.heads()
    assert head.platforms == head.begun == tuple(sorted((name, second.platform)))


def test_results_of_all_runs_are_listed_the_oldest_first(
    published: RunResult, store: Store
) -> None:
    for n in (1, 0):
        store.save(number(published, n), {})
    store.save(number(published, 2, project="another"), {})
    found = store.result_heads(project=published.project)
    names = [it.platform for it in published.platforms]
    assert [(it.run_id, it.platform) for it in found] == [
        (f"run-{n}", name) for n in range(2) for name in names
    ]
    first = found[0]
    assert (first.label, first.product, first.built) == ("NVIDIA", "passed", True)
    assert (first.counts["passed"], first.tests) == (9206, 9206 + 8664)
    assert first.executed_share == pytest.approx(9206 / (9206 + 8664))
    assert first.build_install_s == published.platforms[0].build_install_s


def test_measures_come_in_the_order_of_the_runs(published: RunResult, store: Store) -> None:
    for run in (number(published, 2), number(published, 1, commit="c"), published):
        store.save(run, {})
    heads = store.heads()[::-1]
    found = store.measured("moore", heads)
    assert [run.run_id for run in found] == [published.run_id, "run-1", "run-2"]
    result = published.platform("moore")
    assert found[0].values == measures_of(result)
    assert store.environment_keys([found[0].key, "unknown"]) == {
        found[0].key: environment_key(result)
    }
    assert found[0].started_at == published.started_at
    [named] = store.measured("moore", heads[1:2])
    assert (named.run_id, named.commit, named.dirty) == ("run-1", "c", False)
    assert store.measured("moore", []) == store.measured("elsewhere", heads) == []


def test_measures_of_several_platforms_are_those_of_each(
    published: RunResult, store: Store
) -> None:
    for n in range(3):
        store.save(number(published, n), {})
    heads = store.heads()[::-1]
    asked = {"moore": heads[1:], "elsewhere": heads, "nvidia": heads[:1]}
    found = store.measured_on(asked)
    assert [*found] == [*asked]
    assert found == {name: store.measured(name, runs) for name, runs in asked.items()}
    assert [row.run_id for row in found["moore"]] == ["run-1", "run-2"]
    assert found["nvidia"][0].values == measures_of(published.platform("nvidia"))


def test_a_series_goes_on_where_instruction_sets_are_recorded_now(
    published: RunResult, store: Store
) -> None:
    old = published.platform("moore")
    facts = {**old.environment, "machine": {**old.facts("machine"), "instruction_sets": "AVX2"}}
    new = old.model_copy(update={"environment": facts})
    details = {"moore": Details(tests=(ended(Outcome.PASSED),))}
    for n, row in enumerate((old, new, new)):
        store.save(number(published, n, platforms=(row,)), details)
    key = environment_key(new).digest
    found = store.measured("moore", store.heads())
    assert [run.key for run in found] == [key] * 3
    assert key != environment_key(old).digest
    [group] = store.repeated_runs("moore", project="infini-ops")
    assert (group.key, group.run_ids) == (key, ("run-0", "run-1", "run-2"))


def test_what_replaces_a_platform_replaces_its_measures(published: RunResult, store: Store) -> None:
    first = published.platforms[0]
    store.save(published, {first.platform: Details(tests=(ended(Outcome.PASSED),))})
    again = first.model_copy(update={"stages": (), "total_s": None})
    later = published.model_copy(update={"platforms": (again, *published.platforms[1:])})
    store.save(later, {})
    [found] = store.measured(first.platform, store.heads())
    assert found.values == {}
    [kept] = store.measured("moore", store.heads())
    assert kept.values == measures_of(published.platform("moore"))


def test_runs_of_one_commit_and_environment_are_found(published: RunResult, store: Store) -> None:
    passed, failed = (Details(tests=(ended(o),)) for o in (Outcome.PASSED, Outcome.FAILED))
    slower = Details(tests=(ended(Outcome.PASSED, seconds=9.0),))
    rerun = Rerun(node_id="t::a", attempt=1, outcome=Outcome.PASSED, seconds=0.1)
    tried_again = Details(tests=passed.tests, reruns=(rerun,))
    runs = [
        (number(published, 1), passed),
        (number(published, 2), slower),
        (number(published, 3, commit="b"), passed),
        (number(published, 4, commit="b"), failed),
        (number(published, 5, commit="c"), tried_again),
        (number(published, 6, commit="d"), passed),
        (number(published, 7, dirty=True), failed),
        (number(published, 8), Details()),
    ]
    for run, details in runs:
        store.save(run, {"moore": details})
    found = store.repeated_runs("moore", project="infini-ops")
    assert [(group.run_ids, group.rerun, group.differing) for group in found] == [
        (("run-1", "run-2"), (), False),
        (("run-3", "run-4"), (), True),
        (("run-5",), ("run-5",), False),
    ]
    assert found[0].commit == published.commit
    assert found[0].key == environment_key(published.platform("moore")).digest


def test_a_few_tests_of_many_runs_end_as_all_of_them_do(published: RunResult, store: Store) -> None:
    suites = {
        "run-1": [("c", Outcome.PASSED), ("a", Outcome.FAILED), ("b", Outcome.FAILED)],
        "run-2": [("b", Outcome.PASSED)],
        "run-3": [("d", Outcome.PASSED), ("a", Outcome.PASSED)],
        "run-4": [],
    }
    for n, suite in enumerate(suites.values(), 1):
        tests = [ended(outcome, name, reason="x") for name, outcome in suite]
        store.save(number(published, n), {"moore": Details(tests=tests)})
    found = store.outcomes_of_tests({"b", "a", "~"}, suites, "moore")
    assert {run_id: sorted(some.states) for run_id, some in found.items()} == {
        "run-1": ["a", "b"],
        "run-2": ["b"],
        "run-3": ["a"],
    }
    for run_id, some in found.items():
        states = store.outcomes(run_id, "moore").states
        assert some.states.items() <= states.items()
    assert sorted(found["run-1"].failures) == ["a", "b"]
    assert store.outcomes_of_tests({"a"}, suites, "nvidia") == {}


def test_the_copy_of_the_acceptances_is_replaced(store: Store) -> None:
    accepted = [
        accept_level("total.wall_s", 12.5, reason=reason, until=until, **ACCEPTED)
        for reason, until in (("new kernels", None), ("new kernels, measured", date(2026, 2, 3)))
    ]
    benchmark = measure_key("bench", Benchmark(Direction.HIGHER, "images/s", "n" * 300))
    accepted.append(accept_level(benchmark, 950.0, reason="a new format", **ACCEPTED))
    assert store.mirror_accepted("infini-ops", accepted[:1])
    assert store.mirror_accepted("infini-ops", accepted)
    assert not store.mirror_accepted("infini-ops", accepted)
    assert store.accepted("infini-ops") == accepted
    assert store.accepted("other") == []


def test_a_damaged_copy_of_an_acceptance_is_reported_and_replaced(
    store: Store, store_url: str
) -> None:
    accepted = [accept_level("total.wall_s", 12.5, reason="x", **ACCEPTED)]
    store.mirror_accepted("infini-ops", accepted)
    with connected(store_url) as connection:
        connection.execute(text("UPDATE accepted SET quantity = 'hours'"))
    message = "cannot read the acceptances of infini-ops: quantity: expected one of 'wall_s'"
    with pytest.raises(InfrastructureError, match=message) as caught:
        store.accepted("infini-ops")
    assert "import ci-accepted.yaml" in str(caught.value.remedy)
    store.mirror_accepted("infini-ops", accepted)
    assert store.accepted("infini-ops") == accepted


def test_alarms_are_kept_with_their_states_and_rises(store: Store) -> None:
    rise = AlarmRise(
        platform="cpu",
        measure="install.wall_s",
        before_run_id="run-1",
        run_id="run-2",
        before=10.0,
        level=12.5,
    )
    first = AlarmRecord(alarm_id="f0", kind="regression", rises=(rise,), seen_run_id="run-7")
    second = AlarmRecord(alarm_id="a1", kind="environment", rises=())
    store.save_alarms("infini-ops", [first, second])
    assert store.alarm_records("infini-ops") == [first, second]
    assert store.alarm_records("other") == []
    moore = replace(rise, platform="moore")
    stated = replace(
        first,
        rises=(replace(rise, run_id="run-3"), moore),
        state=AlarmState.FIXED,
        who="A. Developer",
        note="a cache",
        commit="c" * 40,
        stated_at=datetime(2026, 1, 2, 3, 4, tzinfo=UTC),
        link="https://h/7",
    )
    store.save_alarms("infini-ops", [stated])
    assert store.alarm_records("infini-ops") == [stated, second]


def test_the_last_message_is_kept_for_each_address(store: Store) -> None:
    new = AlarmMessage(
        alarm_id="f0",
        event=AlarmEvent.NEW,
        before_run_id="run-1",
        run_id="run-2",
        latest_run_id="run-7",
        decided=False,
        sent_at=datetime(2026, 1, 2, 3, 4, tzinfo=UTC),
    )
    resolved = replace(new, event=AlarmEvent.RESOLVED, decided=True)
    for message in (new, resolved):
        store.save_message("infini-ops", "a digest", message)
        assert store.alarm_messages("infini-ops", "a digest") == {"f0": message}
    assert store.alarm_messages("infini-ops", "another") == {}
    assert store.alarm_messages("other", "a digest") == {}
