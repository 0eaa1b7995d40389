"""What gc removes and what it keeps: the decision, and the folders of this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from docker.client import DockerClient
from filelock import FileLock

from ci import cli
from ci.engines.docker.leftovers import EngineContents, image_size
from ci.engines.docker.link import DOCKER
from ci.engines.host.leftovers import HostLeftovers
from ci.engines.leftovers import Item, ItemKind, Scope
from ci.errors import ExitCode
from ci.upkeep.gc import decide, sessions
from ci.util.files import remove_folder
from tests.ci.deep_folder import make_deep_folder

Output = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch

NOW = datetime(2026, 3, 1, tzinfo=UTC)
GB = 10**9
decide_now = partial(decide, now=NOW, age=timedelta(days=14), size_bytes=10 * GB)


def item(
    name: str, days: float, *, kind: ItemKind = ItemKind.CACHE, size: int = 0, **more: str
) -> Item:
    used = NOW - timedelta(days=days)
    return Item(kind=kind, name=name, size_bytes=size, used=used, remove=lambda: None, **more)


def removed(*items: Item) -> dict[str, str]:
    decisions = decide_now(items)
    assert sorted(decision.item.name for decision in decisions) == sorted(
        item.name for item in items
    )
    return {decision.item.name: decision.reason for decision in decisions if decision.removed}


@pytest.mark.parametrize("kind", ItemKind)
def test_what_was_not_used_for_long_goes(kind: ItemKind) -> None:
    items = (item("old", 14, kind=kind), item("young", 13.99, kind=kind))
    assert removed(*items) == {"old": "not used for 14 days"}


def test_what_is_needed_stays_however_old_and_large() -> None:
    decisions = decide_now([item("old", 99, size=50 * GB, needed="a container uses it")])
    assert [(decision.removed, decision.reason) for decision in decisions] == [
        (False, "a container uses it")
    ]


def test_the_longest_unused_items_are_removed_until_the_rest_fits() -> None:
    items = (
        item("newest", 1, size=6 * GB),
        item("needed", 4, size=1 * GB, needed="a container uses it"),
        item("older", 2, size=3 * GB),
        item("oldest", 3, size=3 * GB),
    )
    reason = "more than 10.0 GB of this kind, and this is the longest unused"
    assert removed(*items) == {"oldest": reason}


def test_items_removed_for_their_age_count_for_the_size() -> None:
    items = (item("old", 20, size=5 * GB), item("a", 2, size=5 * GB), item("b", 1, size=5 * GB))
    assert list(removed(*items)) == ["old"]


def test_images_and_caches_are_bounded_apart_and_the_rest_is_not() -> None:
    items = (
        item("image", 2, kind=ItemKind.IMAGE, size=9 * GB),
        item("cache", 1, kind=ItemKind.CACHE, size=9 * GB),
        item("results", 1, kind=ItemKind.RESULTS, size=99 * GB),
    )
    assert removed(*items) == {}


def test_an_image_is_as_large_as_what_it_adds() -> None:
    labels = {"infini-ci.base-digest": "sha256:base"}
    entry = {"Size": 100, "SharedSize": 99, "Labels": labels}
    assert image_size(entry, {"sha256:base": 40}) == 60
    assert image_size(entry, {}) == 1  # the base is gone
    assert image_size({"Size": 100, "SharedSize": -1, "Labels": None}, {}) == 100


def container(name: str, state: str, **labels: str) -> dict[str, object]:
    known = {f"infini-ci.{label}": value for label, value in labels.items()}
    entry = {"Id": name, "Names": [f"/{name}"], "Created": 0, "State": state, "ImageID": ""}
    return {**entry, "Labels": {"infini-ci.project": "tiny", **known}}


@pytest.mark.parametrize(
    ("sessions", "kept"),
    [
        ({"b": True}, {"session": "it is running", "ended": "its run is in progress"}),
        ({"b": False}, {}),
        # Of a caller on another machine, or of another user: no one here knows if it lives.
        ({}, {"session": "it is running"}),
    ],
)
def test_a_session_is_needed_unless_its_caller_was_killed_here(
    sessions: dict[str, bool], kept: dict[str, str]
) -> None:
    entries = (
        container("run", "running", run="a"),
        container("session", "running", run="b", session="1"),
        container("ended", "exited", run="b", session="1"),
    )
    engine = EngineContents(
        product=DOCKER,
        client=DockerClient(base_url="unix:///nowhere", version="1.41"),  # not asked
        identity="here",
        place="here",
        containers=entries,
        images=(),
        volumes=(),
    )
    assert engine.running == {"a"}
    scope = Scope(
        project="tiny",
        orphans=False,
        runs={*engine.running, *(it for it in sessions if sessions[it])},
        abandoned={it for it in sessions if not sessions[it]},
        platforms=frozenset(),
    )
    needed = {it.name: it.needed for it in engine.items(scope) if it.needed}
    assert needed == {"run": "it is running", **kept}


@pytest.fixture
def results(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: Patch) -> Path:
    """A folder of results, beside a project's configuration, on a machine without an engine."""
    monkeypatch.delenv("INFINI_CI_SITE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path_factory.mktemp("temporary")))
    (tmp_path / "ci.yaml").write_text("project: tiny\nplatforms:\n  cpu: {}\n")
    folder = tmp_path / "results"
    folder.mkdir()
    return folder


def add_run(
    results: Path, name: str, *, days: float = 100, project: str = "tiny", platform: str = "cpu"
) -> Path:
    folder = results / name
    folder.mkdir()
    (folder / ".lock").touch()
    (folder / "report.bin").write_bytes(bytes(1000))
    started = datetime.now(UTC) - timedelta(days=days)
    request = {"project": project, "platforms": [platform], "started_at": started.isoformat()}
    (folder / "request.json").write_text(json.dumps(request))
    return folder


def gc(results: Path, *arguments: str) -> int:
    config = results.parent / "ci.yaml"
    options = ["--engine=host", f"--config={config}", f"--results={results}", *arguments]
    return cli.main(["gc", *options])


@contextmanager
def holding(command: Sequence[str]) -> Iterator[None]:
    """Run a process that has reported that it is ready, until the end of the block."""
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"\n"
        yield
        process.communicate()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_old_results_go_and_the_latest_stay(results: Path, capsys: Output) -> None:
    for name, days in (("old", 15), ("oldest", 30), ("young", 13)):
        add_run(results, name, days=days)
    (results / "latest").symlink_to("oldest")
    (results / "ci.db").touch()
    assert gc(results) == ExitCode.PASSED
    assert names(results) == ["ci.db", "latest", "oldest", "young"]
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "this machine:"
    assert lines[1].startswith("  removed results old, 1.1 kB, last used 15 days ago: not used for")
    assert lines[2:-1] == [
        "  kept results of 1 run, 1.1 kB: the latest results",
        "  kept results of 1 run, 1.1 kB: used within 14 days",
    ]
    assert lines[-1] == "freed 1.1 kB"


def test_a_dry_run_removes_nothing(results: Path, capsys: Output) -> None:
    add_run(results, "old")
    assert gc(results, "--dry-run") == ExitCode.PASSED
    assert names(results) == ["old"]
    shown = capsys.readouterr().out
    assert "  would remove results old, " in shown
    assert shown.endswith("would free 1.1 kB\n")


def test_what_it_did_as_json(results: Path, capsys: Output) -> None:
    add_run(results, "old")
    add_run(results, "young", days=2)
    assert gc(results, "--format=json") == ExitCode.PASSED
    assert names(results) == ["young"]
    printed = json.loads(capsys.readouterr().out)
    assert printed["dry_run"] is False
    assert printed["freed_bytes"] == sum(
        item["bytes"] for item in printed["items"] if item["removed"]
    )
    found = {item["name"]: (item["kind"], item["removed"]) for item in printed["items"]}
    assert found == {"old": ("results", True), "young": ("results", False)}
    assert {item["place"] for item in printed["items"]} == {"this machine"}


def test_the_age_is_the_callers(results: Path) -> None:
    add_run(results, "old")
    add_run(results, "young", days=2)
    gc(results, "--older-than=1000")
    assert names(results) == ["old", "young"]
    gc(results, "--older-than=1.5")
    assert names(results) == []


def test_a_run_that_goes_on_keeps_its_results(results: Path, capsys: Output) -> None:
    with FileLock(add_run(results, "old") / ".lock"):
        gc(results)
    assert names(results) == ["old"]
    assert "kept results of 1 run, 1.1 kB: its run is in progress" in capsys.readouterr().out
    gc(results)
    assert names(results) == []


def test_an_agent_that_outlived_its_caller_keeps_the_results(results: Path) -> None:
    state = add_run(results, "old") / "cpu" / "host.lock"
    state.parent.mkdir()
    state.write_text("{}")
    lock = "lock = open(sys.argv[1]); fcntl.flock(lock, fcntl.LOCK_EX)"
    program = f"import fcntl, sys; {lock}; print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", program, str(state)]
    with holding(command):
        gc(results)
        assert names(results) == ["old"]
    gc(results)
    assert names(results) == []


def test_only_runs_of_the_project_are_touched(results: Path) -> None:
    add_run(results, "ours")
    add_run(results, "theirs", project="other")
    (results / "a-folder-of-mine").mkdir()
    (results / "broken").mkdir()
    (results / "broken" / "request.json").write_text('{"project": "tiny"}')
    gc(results)
    assert names(results) == ["a-folder-of-mine", "broken", "theirs"]
    gc(results, "--project=other")
    assert names(results) == ["a-folder-of-mine", "broken"]


def add_work_folder(tmp: Path, run: str, end: str = "ab_cd123") -> Path:
    folder = tmp / f"infini-ci-{run}-cpu-{end}"
    folder.mkdir()
    (folder / "agent.out").write_text("x" * 500)
    return folder


def test_unused_work_folders_are_removed(results: Path, capsys: Output) -> None:
    tmp = Path(tempfile.gettempdir())
    add_run(results, "theirs", project="other")
    dead, theirs, used = (add_work_folder(tmp, run) for run in ("dead", "theirs", "used"))
    other = tmp / "infini-ci-notes"
    other.mkdir()
    with holding(
        [
            sys.executable,
            "-c",
            "import sys; print(flush=True); sys.stdin.read()",
            str(used / "agent.pyz"),
        ]
    ):
        gc(results, "--older-than=0")
    assert names(tmp) == sorted([theirs.name, used.name, other.name])
    shown = capsys.readouterr().out
    assert f"removed work folder {dead}, 500 bytes, last used today" in shown
    assert "kept 1 work folder, 500 bytes: its run is in progress" in shown


def test_compiler_caches_of_the_host_engine(results: Path, capsys: Output) -> None:
    caches = results.parent / "caches" / "infini-ci"
    for name in ("tiny-cpu-release", "tiny-moore-untrusted", "tiny-more-cpu-branch"):
        path = caches / f"infini-ci-cache-{name}"
        path.mkdir(parents=True)
        (path / "stats").write_bytes(bytes(700))
    for path in (
        caches / "infini-ci-cache-tiny-cpu-release" / "stats",
        caches / "infini-ci-cache-tiny-cpu-release",
    ):
        day_ago = time.time() - 86400
        os.utime(path, (day_ago, day_ago))
    kept = ["infini-ci-cache-tiny-moore-untrusted", "infini-ci-cache-tiny-more-cpu-branch"]
    gc(results, "--keep-size=0.0000007")
    assert names(caches) == kept
    with FileLock(add_run(results, "going-on", days=0, platform="moore") / ".lock"):
        gc(results, "--older-than=0")
    assert names(caches) == kept
    assert (
        "kept 1 compiler cache, 700 bytes: a run on moore is in progress" in capsys.readouterr().out
    )
    gc(results, "--older-than=0")
    assert names(caches) == kept[1:]


def test_caches_without_a_trust_level_are_removed_at_any_age(results: Path, capsys: Output) -> None:
    caches = results.parent / "caches" / "infini-ci"
    for name in ("tiny-cpu", "tiny-moore", "tiny-cpu-branch"):
        (caches / f"infini-ci-cache-{name}").mkdir(parents=True)
    with FileLock(add_run(results, "going-on", days=0, platform="moore") / ".lock"):
        gc(results)
    assert names(caches) == ["infini-ci-cache-tiny-cpu-branch", "infini-ci-cache-tiny-moore"]
    shown = capsys.readouterr().out
    assert "last used today: no run uses caches without a trust level" in shown


def test_with_a_project_only_what_is_known_to_be_of_it(results: Path) -> None:
    tmp = Path(tempfile.gettempdir())
    folder = add_work_folder(tmp, "somebodys")
    gc(results, "--older-than=0", "--project=tiny")
    assert names(tmp) == [folder.name]


def test_a_session_in_progress_keeps_its_folders(results: Path) -> None:
    tmp, session = Path(tempfile.gettempdir()), "20260101T000000Z-nogit-0001-session-12ab"
    # On the host engine it has several, of which only one is locked. They are found in any order.
    folders = [add_work_folder(tmp, session, end) for end in ("aaaaaaaa", "bbbbbbbb")]
    for folder in folders:
        with FileLock(folder / ".lock"):
            assert sessions() == {session: True}
            gc(results, "--older-than", "0")
            assert all(it.exists() for it in folders)
    assert sessions() == {session: False}


@pytest.mark.usefixtures("results")
def test_nothing_is_known_of_the_sessions_of_other_users(monkeypatch: Patch) -> None:
    tmp = Path(tempfile.gettempdir())
    add_work_folder(tmp, "20260101T000000Z-nogit-0001-session-12ab")
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    assert sessions() == {}


def test_what_cannot_be_removed_stops_nothing(
    results: Path, capsys: Output, monkeypatch: Patch
) -> None:
    add_run(results, "a")
    add_run(results, "b")

    def remove(folder: Path) -> None:
        remove_folder(Path("/proc/self/fdinfo") if folder.name == "a" else folder)

    monkeypatch.setattr("ci.upkeep.gc.remove_folder", remove)
    assert gc(results) == ExitCode.PASSED
    shown = capsys.readouterr().out
    assert "  cannot remove results a, 1.1 kB, last used 100 days ago: /bin/rm: cannot" in shown
    assert "  removed results b, " in shown
    assert shown.endswith("freed 1.1 kB\n")


def test_a_folder_deeper_than_a_path_is_removed(results: Path, capsys: Output) -> None:
    make_deep_folder(add_run(results, "a"))
    assert gc(results) == ExitCode.PASSED
    assert names(results) == []
    assert "  removed results a, 1.1 kB" in capsys.readouterr().out


def test_an_engine_that_does_not_answer(results: Path, capsys: Output, monkeypatch: Patch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    add_run(results, "old")
    assert gc(results, "--engine=docker") == ExitCode.INFRASTRUCTURE
    assert names(results) == []  # the items of this machine need no engine
    assert capsys.readouterr().err.startswith("error: no Docker Engine answers")


@pytest.mark.parametrize("value", ["-1", "x", "nan", "inf"])
def test_limits_that_make_no_sense(results: Path, capsys: Output, value: str) -> None:
    with pytest.raises(SystemExit, match="2"):
        gc(results, f"--older-than={value}")
    assert "--older-than" in capsys.readouterr().err


class Vanishing(Scope):
    """A run removes its work folder while gc looks at it."""

    def covers(self, project: str | None) -> bool:
        for path in Path(tempfile.gettempdir()).glob("infini-ci-*"):
            path.rmdir()
        return super().covers(project)


def test_a_folder_may_vanish_meanwhile(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    names = [f"infini-ci-20260101T120000Z-nogit-00ff-cpu-abcdefg{number}" for number in range(2)]
    for name in names:
        (tmp_path / name).mkdir()
    scope = Vanishing(project="tiny", orphans=True, runs=frozenset(), platforms=frozenset())
    assert list(HostLeftovers().items(scope)) == []
    monkeypatch.setattr(Vanishing, "covers", lambda *_: True)
    (tmp_path / names[0]).mkdir()
    [folder] = HostLeftovers().items(scope)
    (tmp_path / names[0]).rmdir()
    folder.remove()


def test_secrets_are_hidden_in_logs_of_a_killed_run(
    results: Path, monkeypatch: Patch, capsys: Output
) -> None:
    monkeypatch.setenv("LAB_TOKEN", "a-planted-secret")
    for name, project in (("killed", "tiny"), ("theirs", "other")):
        folder = add_run(results, name, days=0, project=project) / "cpu"
        folder.mkdir()
        (folder / "host.lock").write_text("{}")
        (folder / "build.log").write_text("the token is a-planted-secret")
    ours, theirs = (results / name / "cpu" / "build.log" for name in ("killed", "theirs"))
    gc(results, "--dry-run")
    assert ours.read_text() == "the token is a-planted-secret"
    gc(results)
    assert ours.read_text() == "the token is ***"
    assert theirs.read_text() == "the token is a-planted-secret"
    assert "killed: a secret value was hidden in build.log" in capsys.readouterr().out
