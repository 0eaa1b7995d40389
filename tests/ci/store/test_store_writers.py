"""Several orchestrators write into one store at once, and nothing is lost."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

from sqlalchemy import func, select

from ci.model.details import Details
from ci.model.outcomes import Outcome
from ci.model.results import RunResult
from ci.store.connect import connect, read_transaction
from ci.store.store import Store
from ci.store.tables import BLOBS, PLATFORMS
from tests.ci.made_results import made_test
from tests.ci.postgresql_server import Server, connected

WRITERS = 4
RUNS = 3  # of each
PLATFORM = "moore"
FORK = multiprocessing.get_context("fork")  # starts at once; no connection is open yet


def suite(*failed: int) -> Details:
    ends = (Outcome.FAILED if n in failed else Outcome.PASSED for n in range(500))
    return Details(tests=[made_test(f"t::{n:03}", outcome) for n, outcome in enumerate(ends)])


def named(run: RunResult, name: str, n: int = 0) -> RunResult:
    started = run.started_at + timedelta(seconds=n)
    return run.model_copy(update={"run_id": name, "started_at": started})


def at_once(write: Callable[[int], None]) -> None:
    """Let all writers begin together, and all of them end well."""
    barrier = FORK.Barrier(WRITERS)
    writers = [FORK.Process(target=_begin, args=(barrier, write, n)) for n in range(WRITERS)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * WRITERS


def _begin(barrier: Any, write: Callable[[int], None], writer: int) -> None:
    barrier.wait()
    write(writer)


def save_own(url: str, run: RunResult, writer: int) -> None:
    """What one orchestrator saves; half of its outcomes are those of all others."""
    with Store(url) as store:
        for n in range(RUNS):
            own = named(run, f"run-{writer}-{n}", n)
            store.save(own, {PLATFORM: suite(n), "nvidia": suite(writer, n)})


def save_same(url: str, run: RunResult, writer: int) -> None:
    changed = run.model_copy(update={"engine": f"engine-{writer}"})
    for _ in range(RUNS):
        with Store(url) as store:
            store.save(changed, {PLATFORM: suite(writer)})


def test_runs_of_several_writers_are_all_there(published: RunResult, store_url: str) -> None:
    at_once(partial(save_own, store_url, published))  # the first of them makes the tables
    with Store(store_url) as store:
        names = {f"run-{writer}-{n}" for writer in range(WRITERS) for n in range(RUNS)}
        assert {head.run_id for head in store.heads()} == names
        assert len(store.measured(PLATFORM, store.heads())) == len(names)
        for name in names:
            _, writer, n = name.split("-")
            assert store.load(name) == named(published, name, int(n))
            assert store.tests(name, PLATFORM) == suite(int(n)).tests
            assert store.tests(name, "nvidia") == suite(int(writer), int(n)).tests
    with connected(store_url) as connection:
        pairs = {frozenset((writer, n)) for writer in range(WRITERS) for n in range(RUNS)}
        outcomes = pairs | {frozenset((n,)) for n in range(RUNS)}
        # One list of node ids, and each list of outcomes once.
        stored = connection.scalar(select(func.count()).select_from(BLOBS))
        assert stored == 1 + len(outcomes)


def test_a_reader_sees_one_state(published: RunResult, postgresql: Server) -> None:
    """With SQLite, a writer waits until all readers have ended."""
    url = postgresql.new_store()
    engine = connect(url)
    with Store(url) as store:
        store.save(published, {PLATFORM: suite()})
        with read_transaction(engine) as connection:
            before = connection.execute(select(PLATFORMS.c.id)).all()
            store.save(published, {PLATFORM: suite(1)})
            assert connection.execute(select(PLATFORMS.c.id)).all() == before
        with read_transaction(engine) as connection:
            assert connection.execute(select(PLATFORMS.c.id)).all() != before
    engine.dispose()


def test_one_run_of_several_writers_is_that_of_one_of_them(
    published: RunResult, store_url: str
) -> None:
    at_once(partial(save_same, store_url, published))
    with Store(store_url) as store:
        found = store.load(published.run_id)
        writer = int(found.engine.removeprefix("engine-"))
        assert found == published.model_copy(update={"engine": f"engine-{writer}"})
        assert store.tests(published.run_id, PLATFORM) == suite(writer).tests
        assert len(store.measured(PLATFORM, store.heads())) == 1
