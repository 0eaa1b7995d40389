"""The store gives back what it was given, and names what it cannot."""

from __future__ import annotations

import json
import zlib
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from sqlalchemy import Dialect, Update, func, select, update

from ci.errors import InfrastructureError, UsageError
from ci.facts.sentences.on_rows import reported
from ci.model.details import Details
from ci.model.outcomes import Outcome
from ci.model.results import BuildResult, OverloadCount, RunResult, StageResult
from ci.store.blobs import decode_names, find_names
from ci.store.connect import refill_remedy
from ci.store.folder import default_url
from ci.store.store import Store, save
from ci.store.tables import BLOBS, DETAILS, UtcDateTime
from tests.ci.made_results import made_test
from tests.ci.postgresql_server import connected


def ran(*node_ids: str) -> Details:
    return Details(tests=[made_test(node_id) for node_id in node_ids])


def stored_suites(url: str) -> int:
    with connected(url) as connection:
        return connection.scalar(select(func.count()).select_from(DETAILS)) or 0


def test_a_run_comes_back_as_it_was(published: RunResult, store: Store, store_url: str) -> None:
    store.save(published, {"moore": ran("a::b", "a::c")})
    assert store.load(published.run_id) == published
    assert store.load().to_json() == published.to_json()
    assert stored_suites(store_url) == 1


def test_every_field_of_a_result_comes_back(published: RunResult, store: Store) -> None:
    first = published.platforms[0]
    count = OverloadCount(
        slot=8, device="npu", active=3, executed=2, passed=2, simulated=True, kernels={"own": 2}
    )
    killed = StageResult(name="x", seconds=1e-9, exit_code=-9, in_total=False)
    full = first.model_copy(
        update={
            "build": BuildResult(compile_s=0.1, translation_units=3),
            "environment": {"a": {"b": [1, 2.5, None, "ünï", {}]}, "c": True},
            "findings": (reported("one"), reported("two\n'quoted'")),
            "artifacts": {"junit.xml": "nvidia/junit.xml"},
            "built": None,
            "simulated": True,
            "overloads": (count,),
            "stages": (*first.stages, killed),
        }
    )
    empty = published.platforms[1].model_copy(update={"pytest": None, "total_s": None})
    run = published.model_copy(update={"commit": None, "dirty": True, "platforms": (full, empty)})
    store.save(run, {})
    assert store.load().to_json() == run.to_json()


def test_times_come_back_in_utc(published: RunResult, store: Store) -> None:
    there = timezone(timedelta(hours=8))
    started, finished = (
        time.replace(microsecond=123_456).astimezone(there)
        for time in (published.started_at, published.finished_at)
    )
    run = published.model_copy(update={"started_at": started, "finished_at": finished})
    store.save(run, {})
    loaded = store.load()
    assert loaded == run
    assert loaded.started_at.tzinfo == loaded.finished_at.tzinfo == UTC


def test_saving_again_replaces(published: RunResult, store: Store, store_url: str) -> None:
    shorter = published.model_copy(update={"platforms": published.platforms[:2]})
    store.save(published, {"nvidia": ran("a::b", "a::c"), "moore": ran("a::b")})
    store.save(shorter, {"nvidia": ran("a::b")})
    assert store.load() == shorter
    assert stored_suites(store_url) == 1


def test_a_platform_brings_its_tests_once(published: RunResult, store: Store) -> None:
    first, second, *others = published.platforms
    changed = second.model_copy(update={"findings": (reported("judged again"),)})
    later = published.model_copy(update={"platforms": (first, changed, *others)})
    store.save(published, {name: ran("a::b") for name in (first.platform, second.platform)})
    assert store.holds(published.run_id, second)
    store.save(later, {})
    assert store.load() == later
    kept = [len(store.tests(later.run_id, p.platform)) for p in (first, second)]
    assert kept == [1, 0]  # the tests of a changed record are unknown
    assert not store.holds(published.run_id, second)


@pytest.mark.parametrize(
    ("run_id", "begun", "ended", "latest"),
    [
        ("z", timedelta(days=-1), timedelta(0), False),
        ("0", timedelta(0), timedelta(0, 0.001), True),
    ],
    ids=["begun earlier", "begun in the same second, ended later"],
)
def test_the_latest_run_is_the_default(
    run_id: str,
    begun: timedelta,
    ended: timedelta,
    latest: bool,
    published: RunResult,
    store: Store,
) -> None:
    times = {
        "started_at": published.started_at + begun,
        "finished_at": published.finished_at + ended,
    }
    other = published.model_copy(update={"run_id": run_id, **times})
    store.save(other, {})
    store.save(published, {})
    assert store.load().run_id == (run_id if latest else published.run_id)


def test_one_transaction_per_run(published: RunResult, store: Store, store_url: str) -> None:
    twice = {"nvidia": ran("a::b", "a::b")}
    store.save(published, {"nvidia": ran("a::b")})
    message = f"the store cannot save run {published.run_id}"
    with pytest.raises(InfrastructureError, match=message):
        store.save(published.model_copy(update={"project": "other"}), twice)
    assert store.load() == published
    assert stored_suites(store_url) == 1


def test_an_unknown_run_is_a_usage_error(published: RunResult, store: Store) -> None:
    with pytest.raises(UsageError, match="the store holds no run yet"):
        store.load()
    store.save(published, {})
    with pytest.raises(UsageError, match="the store holds no run 'x'") as caught:
        store.load("x")
    assert caught.value.remedy == f"The newest runs: {published.run_id}."
    with pytest.raises(UsageError, match=f"did you mean '{published.run_id}'"):
        store.load(published.run_id[:-1])


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    (tmp_path / "ci.db").write_text("this is not a database, and it is long enough to tell")
    with pytest.raises(InfrastructureError, match=r"ci\.db cannot be opened: file is not a") as it:
        Store(default_url(tmp_path))
    assert it.value.remedy == refill_remedy()


@pytest.mark.parametrize(
    "damage", [update(BLOBS).values(content=b"x"), update(DETAILS).values(durations=b"x")]
)
def test_a_damaged_list_of_tests_is_named(
    damage: Update, published: RunResult, store: Store, store_url: str
) -> None:
    store.save(published, {"nvidia": ran("a::b")})
    with connected(store_url) as connection:
        connection.execute(damage)
    with pytest.raises(InfrastructureError, match="the store is damaged: ") as it:
        store.tests(published.run_id, "nvidia")
    assert it.value.remedy == refill_remedy()


def test_reading_waits_for_no_writer(published: RunResult, store: Store, store_url: str) -> None:
    store.save(published, {})
    with connected(store_url) as connection:
        save(connection, published.model_copy(update={"project": "other"}), {})
        with Store(store_url) as reader:
            assert reader.load() == published


def test_tests_come_back_platform_by_platform(published: RunResult, store: Store) -> None:
    skipped = made_test("a::c", Outcome.SKIPPED, reason="x: y", skip_reason="no sample")
    tests = [made_test("a::b"), skipped]
    store.save(published, {"moore": Details(tests=tests), "metax": ran("a::b")})
    assert store.tests(published.run_id, "moore") == tests
    assert store.tests(published.run_id, "nvidia") == []


def test_the_latest_run_that_tested_a_platform(published: RunResult, store: Store) -> None:
    without_log = published.platforms[0].model_copy(update={"pytest": None})
    later = published.model_copy(
        update={
            "run_id": "later",
            "started_at": published.started_at.replace(year=2027),
            "platforms": (without_log, published.platforms[1]),
        }
    )
    with pytest.raises(UsageError, match="the store holds no run yet") as caught:
        store.load(platform="moore")
    assert caught.value.remedy == "Run one: python -m ci run moore"
    store.save(published, {})
    store.save(later, {})
    assert store.load(platform="nvidia") == published
    assert store.load(platform="iluvatar") == store.load("latest") == later
    with pytest.raises(UsageError, match="the store holds no run of cpu yet"):
        store.load(platform="cpu")


def test_a_time_with_a_zone_is_converted_and_one_without_is_utc() -> None:
    noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    for read in (noon.replace(tzinfo=None), noon.astimezone(timezone(timedelta(hours=8)))):
        assert UtcDateTime().process_result_value(read, Dialect()) == noon


def test_a_few_names_are_found_without_decoding_all() -> None:
    names = sorted(['t::a["b"]', "t::a", "t::b\\", 't::b,"c', "é[1,2]", "t::z\n", "x,", 't::","d'])
    content = zlib.compress(json.dumps(names, ensure_ascii=False, separators=(",", ":")).encode())
    assert decode_names(content) == names
    places = {name: place for place, name in enumerate(names)}
    assert find_names(content, names) == places
    assert find_names(content, ["t::", "d", "", '"']) == {}
