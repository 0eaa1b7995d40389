"""What other commands do with a run whose tests two processes shared; on both engines."""

from __future__ import annotations

import csv
import fcntl
import shlex
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from ci.model.results import HOST_LOCK
from tests.e2e.benches import ENGINES
from tests.e2e.places import Place, gc, json_of, paste, project_files, remains, remove

PROJECT = "sharded"
# Most tests leave the name of the shard's log in a file, and one test of each shard fails.
TESTS = """\
import pathlib
import pytest

@pytest.mark.parametrize("n", range(4))
def test_leaves(n, pytestconfig):
    log = pathlib.Path(pytestconfig.option.report_log).name
    pathlib.Path(f"left-{pathlib.Path(__file__).stem}-{n}").write_text(log)

@pytest.mark.parametrize("text", ["it's [a]"])
def test_fails(text): assert len(text) == 1, "not one"
"""
FILES = {**project_files(PROJECT, TESTS), "tests/test_b.py": TESTS}
FAILING = [f"tests/test_{name}.py::test_fails[it's [a]]" for name in "ab"]


@pytest.fixture(scope="module", params=ENGINES)
def place(request: pytest.FixtureRequest, make_place: Callable[..., Place]) -> Iterator[Place]:
    """A project that ran once in two shards, and failed; what the run kept is still there."""
    place = make_place(request.param, FILES)
    place.run("--shards", "2", "--keep")
    yield place
    remove(place, run_of(place))


def run_of(place: Place) -> str:
    return (place.folder / "results/latest").resolve().name


def test_the_report_has_a_command_for_each_failure_of_any_shard(place: Place) -> None:
    [row] = json_of(place)["platforms"]
    assert [it["tests"] for it in row["shards"]] == [5, 5]
    assert [it["exit_code"] for it in row["shards"]] == [1, 1]
    shown = place.ci("report").stdout
    assert " 2 shards (" in shown
    lines = [line.strip() for line in shown.splitlines()]
    for failing in FAILING:
        command = lines[lines.index(failing) + 2]
        assert f" rerun {run_of(place)} cpu {shlex.quote(failing)}" in command
    finished = paste(place, command)
    assert finished.returncode == 1, finished.stderr
    assert "1 failed, 9 deselected in " in finished.stdout


def test_all_tests_are_rerun_in_one_process(place: Place) -> None:
    finished = place.ci("rerun", "latest", "cpu")
    assert finished.returncode == 1, finished.stderr
    assert "2 failed, 8 passed in " in finished.stdout
    assert "2 shards" not in finished.stdout + finished.stderr


def test_a_shell_enters_what_all_shards_left(place: Place) -> None:
    """They used one container, or one folder."""
    assert len(remains(place, run_of(place))) == 1
    finished = place.ci("shell", "latest", "cpu", given="cat built; tail -n 1 left-*")
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.startswith("one\n")
    assert finished.stdout.count("left-test_") == 8
    logs = {line for line in finished.stdout.splitlines() if line.endswith(".jsonl")}
    assert logs == {"pytest.shard-1.jsonl", "pytest.shard-2.jsonl"}


def test_gc_lists_one_item_of_the_run(place: Place) -> None:
    words = (*place.options, "--project", PROJECT, "--dry-run")
    [name] = remains(place, run_of(place))
    kept = [it["name"] for it in gc(place, "gc", *words) if it["kind"] != "results"]
    assert [it for it in kept if run_of(place) in it] == [name]


def test_the_run_elsewhere_has_the_same_row_and_shards(place: Place, tmp_path: Path) -> None:
    there = replace(place, folder=tmp_path)
    there.temporary.mkdir()
    folder = place.folder / "results" / run_of(place)
    for lock in folder.glob(f"*/{HOST_LOCK}"):  # the agent of a shell ends a moment after it
        with lock.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX)
    done(there.ci("import", str(folder)))
    assert json_of(there) == json_of(place)
    done(there.ci("export", "--format", "csv", "--output", str(tmp_path)))
    assert [it["shards"] for it in rows(tmp_path / "platforms.csv")] == ["2 shards"]
    assert len(rows(tmp_path / "tests.csv")) == 10
    done(there.ci("dashboard", "--output", str(tmp_path / "pages")))
    [page] = (tmp_path / "pages").glob(f"**/*{run_of(place)}*.html")
    for name in ("pytest.jsonl", "pytest.shard-2.log", "junit.shard-1.xml"):
        assert f"cpu/{name}</code>" in page.read_text()


def done(finished: subprocess.CompletedProcess[str]) -> None:
    assert finished.returncode == 0, finished.stderr


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return [*csv.DictReader(file)]
