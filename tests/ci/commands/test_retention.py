"""``retention:``: which runs ``gc`` removes from the store, and what it never removes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from ci.engines.leftovers import Item, Scope
from ci.errors import ExitCode, InfrastructureError
from ci.facts.acceptance import Acceptance
from ci.facts.measures import Quantity
from ci.model.results import RunResult
from ci.plan.retention import RetentionConfig
from ci.store.backup import problems
from ci.store.rows import AlarmRecord, AlarmRise, RunHead
from ci.store.store import Store
from ci.upkeep.retention import kept_runs, retained_items
from tests.ci.attested_runs import decision_about
from tests.ci.attested_runs import write_run as write_attested_run
from tests.ci.store.test_store_writers import FORK, PLATFORM, named, suite
from tests.ci.stored_history import Project, expect, git

NOW = datetime(2026, 6, 1, tzinfo=UTC)
CONFIG = """\
project: tiny
platforms: {cpu: {}, nvidia: {}}
test: python -m pytest
"""
SECTION = "retention: {days: 30, newest: 1, tags: v*}\n"


def head(number: int, *platforms: str, days: float = 100, **more: Any) -> RunHead:
    moment = NOW - timedelta(days=days)
    return RunHead(
        run_id=f"run-{number}",
        project="tiny",
        dirty=False,
        started_at=moment,
        finished_at=moment,
        platforms=platforms,
        begun=platforms,
        **{"commit": None, **more},
    )


def test_what_a_policy_keeps() -> None:
    """All but run 6, since run 5 has the same platform and branch."""
    heads = [
        head(1, days=90),
        head(2, "cpu", days=31, branch="main"),
        head(3, "cpu", days=30, branch="main"),
        head(4, "nvidia", "cpu", branch="main"),
        head(5, "cpu", branch="side"),
        head(6, "cpu", branch="side"),
        head(7, "cpu", branch="side", commit="c"),
        head(8, "cpu", branch="side", tip="d"),
    ]
    assert kept_runs(heads, RetentionConfig(days=30, newest=1), {"c", "d"}, NOW) == {
        "run-1": "the latest run",
        "run-2": "one of the newest 1 of a platform and branch",
        "run-3": "began within 30 days",
        "run-4": "one of the newest 1 of a platform and branch",
        "run-5": "one of the newest 1 of a platform and branch",
        "run-7": "its commit has a tag",
        "run-8": "its commit has a tag",
    }


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """Six old runs of a platform; the first is of an annotated tag."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    made = Project(folder=tmp_path)
    made.history([100.0] * 6)
    first = git(made.source, "rev-list", "--max-parents=0", "HEAD")
    git(made.source, "tag", "--annotate", "--message", "one", "v1.0", first)
    git(made.source, "tag", "other", "HEAD~2")
    (made.source / "ci.yaml").write_text(CONFIG + SECTION)
    return made


def gc(project: Project, *words: str) -> tuple[int, str]:
    return project.ci("gc", "--engine=host", f"--config={project.source / 'ci.yaml'}", *words)


def stored(project: Project) -> list[str]:
    with project.open() as store:
        assert [*problems(str(store._engine.url))] == []
        return sorted(it.run_id for it in store.heads())


def test_old_runs_leave_the_store(project: Project) -> None:
    shown = expect(gc(project, "--dry-run"), "  would remove stored run run-001, 0 bytes")
    assert stored(project) == project.runs
    shown = expect(gc(project), "  removed stored run run-001, 0 bytes, last used ")
    assert shown.count("began more than 30 days ago") == 4
    assert "its commit has a tag" in shown
    assert stored(project) == ["run-000", "run-005"]
    with project.open() as store:  # the lists that they share with the others are still there
        assert store.tests("run-000", "cpu") == store.tests("run-005", "cpu") != []
    expect(gc(project), "kept 1 stored run, 0 bytes: the latest run")


def test_without_the_section_all_runs_stay(project: Project) -> None:
    (project.source / "ci.yaml").write_text(CONFIG)
    expect(gc(project))
    expect(gc(project, "--project", "tiny"))
    assert stored(project) == project.runs


def decide(project: Project, run_id: str) -> None:
    """Write a decision about a run."""
    attested = project.folder / "attested"
    if not attested.exists():
        write_attested_run(attested)
    [folder] = attested.iterdir()
    decision = decision_about(folder)
    [run] = decision.runs
    other = decision.model_copy(update={"runs": (run.model_copy(update={"run_id": run_id}),)})
    (project.results / f"decision-{run_id}.json").write_text(other.to_json())


def test_what_proves_a_release_stays(project: Project) -> None:
    """Its rows, and the folder with its logs."""
    decide(project, "run-001")
    for run_id in ("run-001", "run-002", "run-003"):
        folder = project.results / run_id
        folder.mkdir()
        request = f'"platforms": ["cpu"], "started_at": "{NOW.isoformat()}"'
        (folder / "request.json").write_text(f'{{"project": "tiny", {request}}}')
    (project.results / "run-002" / "attestations").mkdir()
    shown = expect(gc(project, "--older-than", "0"))
    assert stored(project) == ["run-000", "run-001", "run-002", "run-005"]
    assert "kept 1 stored run, 0 bytes: decision-run-001.json is about it" in shown
    assert "bytes: it is attested" in shown
    assert (project.results / "run-001").is_dir()
    assert (project.results / "run-002").is_dir()
    assert not (project.results / "run-003").exists()


def accepted(run: str | None = None, commit: str | None = None) -> Acceptance:
    return Acceptance(
        platform="cpu",
        stage="install",
        quantity=Quantity.CPU,
        level=1.0,
        reason="wanted",
        who="someone",
        date=NOW.date(),
        run=run,
        commit=commit,
    )


def test_what_an_acceptance_names_stays(project: Project) -> None:
    with project.open() as store:
        commits = {it.run_id: it.commit for it in store.heads()}
        store.mirror_accepted(
            "tiny", [accepted(run="run-001"), accepted(commit=commits["run-003"])]
        )
    expect(gc(project), "kept 2 stored runs, 0 bytes: it is accepted")
    assert stored(project) == ["run-000", "run-001", "run-003", "run-005"]


def test_what_an_alarm_names_stays(project: Project) -> None:
    rise = AlarmRise(
        platform="cpu",
        measure="install/cpu",
        before_run_id="run-002",
        run_id="run-003",
        before=1.0,
        level=2.0,
    )
    with project.open() as store:
        store.save_alarms("tiny", [AlarmRecord(alarm_id="1", kind="regression", rises=(rise,))])
    expect(gc(project), "kept 2 stored runs, 0 bytes: an alarm names it")
    assert stored(project) == ["run-000", "run-002", "run-003", "run-005"]


def test_all_runs_stay_if_it_is_unknown_which_must(project: Project) -> None:
    (project.results / "decision-next.json").write_text('{"schema_version": 99}')
    code, _ = gc(project)
    assert code == ExitCode.INFRASTRUCTURE
    assert stored(project) == project.runs
    (project.results / "decision-next.json").unlink()
    shallow = project.folder / "shallow"
    git(project.source, "clone", "--quiet", "--depth=1", project.source.as_uri(), str(shallow))
    (shallow / "ci.yaml").write_text(CONFIG + SECTION)
    code, _ = project.ci("gc", "--engine=host", f"--config={shallow / 'ci.yaml'}")
    assert code == ExitCode.INFRASTRUCTURE
    assert stored(project) == project.runs


def items(project: Project, store: Store) -> Sequence[Item]:
    policy = RetentionConfig(days=30, newest=1, tags="v*")
    nothing: frozenset[str] = frozenset()
    scope = Scope(
        project="tiny",
        orphans=False,
        runs=nothing,
        platforms=nothing,
        abandoned=nothing,
        projects={},
    )
    return [*retained_items(store, project.results, project.source, policy, scope, NOW)]


def test_what_became_needed_meanwhile_stays(project: Project) -> None:
    """After the list of runs was made: one is decided about, and one is resumed."""
    with closing(project.open()) as store:
        found = {it.name: it for it in items(project, store)}
        decide(project, "run-001")
        with pytest.raises(InfrastructureError, match=r"decision-run-001\.json is about it"):
            found["run-001"].remove()
        folder = project.results / "run-002"
        folder.mkdir()
        with (
            FileLock(folder / ".lock"),
            pytest.raises(InfrastructureError, match="its run has just been resumed"),
        ):
            found["run-002"].remove()
        found["run-003"].remove()
    assert stored(project) == ["run-000", "run-001", "run-002", "run-004", "run-005"]


WRITERS, RUNS = 3, 4


def write(url: str, run: RunResult, begin: Any, writer: int) -> None:
    """Save runs, whose lists of tests are those of the runs that are removed meanwhile."""
    begin.wait()
    with Store(url) as store:
        for n in range(RUNS):
            store.save(named(run, f"new-{writer}-{n}", n), {PLATFORM: suite(n), "nvidia": suite(n)})


def test_nothing_is_lost_while_others_save_runs(published: RunResult, store_url: str) -> None:
    with Store(store_url) as store:
        for n in range(RUNS):
            store.save(named(published, f"old-{n}", n), {PLATFORM: suite(n), "nvidia": suite(n)})
    begin = FORK.Barrier(WRITERS + 1)
    target = partial(write, store_url, published, begin)
    writers = [FORK.Process(target=target, args=(n,)) for n in range(WRITERS)]
    for writer in writers:
        writer.start()
    begin.wait()
    with Store(store_url) as store:
        for n in range(RUNS):
            store.remove(f"old-{n}")
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * WRITERS
    assert [*problems(store_url)] == []
    with Store(store_url) as store:
        expected = {f"new-{writer}-{n}" for writer in range(WRITERS) for n in range(RUNS)}
        assert {it.run_id for it in store.heads()} == expected
        for run_id in expected:
            assert len(store.tests(run_id, PLATFORM)) == len(suite(int(run_id[-1])).tests)


def test_lists_that_no_run_has_any_more_go_too(published: RunResult, store_url: str) -> None:
    with Store(store_url) as store:
        store.save(named(published, "old", 0), {PLATFORM: suite(0)})
        store.save(named(published, "new", 1), {PLATFORM: suite(1)})
        store.remove("old")
        count = "SELECT count(*) FROM blobs"
        with store._engine.connect() as connection:
            assert connection.exec_driver_sql(count).scalar_one() == 2
        store.remove("new")
        with store._engine.connect() as connection:
            assert connection.exec_driver_sql(count).scalar_one() == 0
