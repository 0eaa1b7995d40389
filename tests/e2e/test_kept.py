"""``run --keep``: what a failed platform leaves stays, and ``shell`` enters it; on both engines."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic

import pytest

from ci.facts.sentences import on_rows
from ci.model.plan import KEPT
from ci.model.results import HOST_LOCK
from tests.e2e.benches import ENGINES
from tests.e2e.places import (
    ROOT,
    Place,
    containers,
    gc,
    json_of,
    open_shell,
    project_files,
    read_until,
    remains,
    remove,
    terminal_shell,
)

TESTS = """\
import pathlib
def test_a():
    pathlib.Path("left").write_text("by the test\\n")
    assert pathlib.Path("built").read_text() == "two\\n"
"""
FILES = project_files("kept", TESTS)
PROJECT_OF_GC = "kept-until-gc"  # `gc` removes no others
PATIENCE_S = 60
WAITING = "echo half > built; echo waiting; sleep 600\n"


def wait_for_end(place: Place, run_id: str) -> None:
    """Wait until no shell holds what a run left."""
    if place.engine == "docker":
        [container] = containers(run_id)
        container.wait()
        return
    with (place.folder / "results" / run_id / "cpu" / HOST_LOCK).open() as lock:
        fcntl.flock(lock, fcntl.LOCK_SH)


@pytest.fixture(scope="module", params=ENGINES)
def repository(request: pytest.FixtureRequest, make_place: Callable[..., Place]) -> Iterator[Place]:
    """A project whose test fails; whatever its runs kept is removed after all tests."""
    place = make_place(request.param, FILES)
    yield place
    for folder in (place.folder / "results").glob("2*"):
        remove(place, folder.name)


@pytest.fixture(scope="module")
def failed(repository: Place) -> str:
    """The id of a run that failed, and that no test changes."""
    run = repository.run("--keep")
    return str(run["run_id"])


@pytest.fixture
def place(repository: Place) -> Iterator[Place]:
    yield repository
    repository.git("checkout", "--quiet", "--force", "master")
    repository.git("clean", "--quiet", "-fdx")


SCRIPT = """\
cat built left; echo "$GREETING, $OF_TESTS"; id -u
echo mine >> left
exit 7
"""


def test_a_shell_enters_what_the_run_left(place: Place, failed: str) -> None:
    [name] = remains(place, failed)
    [row] = json_of(place, failed)["platforms"]
    assert row["environment"]["engine"]["kept"] == name
    assert on_rows.kept(name).model_dump(mode="json") in row["findings"]
    shown = place.ci("report", failed).stdout
    assert f" shell {failed} cpu " in shown.split("A shell in what the run left")[1]

    place.write({"build.sh": "changed since", "tests/test_a.py": "too"})
    finished = place.ci("shell", failed, "cpu", given=SCRIPT)
    assert finished.returncode == 7, finished.stderr
    *lines, user = finished.stdout.splitlines()
    assert lines == ["one", "by the test", "good morning, yes"]
    assert user == ("1000" if place.engine == "docker" else str(os.getuid()))
    assert "build started" not in finished.stderr  # nothing is made again
    finished = place.ci("shell", failed, "cpu", given="tail -n 1 left")
    assert finished.stdout == "mine\n"

    wait_for_end(place, failed)
    assert remains(place, failed) == [name]
    assert [row] == json_of(place, failed)["platforms"]
    if place.engine == "docker":
        [container] = containers(failed)
        assert container.status == "exited"  # it holds no device
        assert name.endswith(KEPT)
        kept = container.get_archive("/opt/infini-ci/results/pytest.jsonl")
        assert kept[1]["size"] > 0  # the results of the run, too


def test_a_configuration_that_changed(place: Place, failed: str) -> None:
    place.write({"ci.yaml": "no configuration"})
    finished = place.ci("shell", failed, "cpu", given="cat built")
    assert (finished.returncode, finished.stdout) == (0, "one\n"), finished.stderr


def test_two_shells(place: Place, failed: str) -> None:
    with open_shell(place, failed) as first, open_shell(place, failed) as second:
        assert first.stdin
        assert second.stdin
        assert second.stdout
        first.stdin.write(b"echo of the first > shared; exit 3\n")
        first.stdin.close()
        assert first.wait() == 3
        second.stdin.write(b"cat shared; exit 4\n")
        second.stdin.close()
        assert second.stdout.read() == b"of the first\n"
        assert second.wait() == 4
    wait_for_end(place, failed)


def test_a_terminal(place: Place, failed: str) -> None:
    with terminal_shell(place, run=failed) as (process, ours):
        os.write(ours, b"sh -c 'echo slee''ping; exec sleep 600'\n")
        printed = read_until(ours, b"sleeping")
        os.write(ours, b"\x03")
        os.write(ours, b"echo still $((40 + 2)); exit 5\n")
        printed += read_until(ours, b"still 42")
        assert process.wait() == 5, printed
    wait_for_end(place, failed)


def test_an_interrupted_shell(place: Place, failed: str) -> None:
    with open_shell(place, failed) as process:
        assert process.stdin
        process.stdin.write(b"echo pid $$; sleep 600\n")
        process.stdin.flush()
        assert process.stdout
        assert process.stdout.readline().startswith(b"pid ")
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130
    wait_for_end(place, failed)  # nothing goes on in it
    assert len(remains(place, failed)) == 1


def test_a_passed_platform_leaves_nothing(place: Place) -> None:
    place.write({"build.sh": "echo two > built\n"})
    run = place.run("--keep")
    assert run["platforms"][0]["verdict"]["product"] == "passed"
    assert remains(place, run["run_id"]) == []
    assert "kept" not in run["platforms"][0]["environment"]["engine"]


def test_nothing_stays_without_the_option(place: Place) -> None:
    run = place.run()
    assert run["platforms"][0]["verdict"]["product"] == "failed"
    assert remains(place, run["run_id"]) == []


def test_removed_under_a_shell_and_before_the_next(place: Place) -> None:
    run_id = place.run("--keep")["run_id"]
    with open_shell(place, run_id) as process:
        remove(place, run_id)
        assert process.stdin
        process.stdin.close()
        assert process.wait() == 3
        assert process.stderr
        assert b"removed, and its shells with it" in process.stderr.read()
    finished = place.ci("shell", run_id, "cpu", given="cat built")
    assert (finished.returncode, finished.stdout) == (0, "one\n"), finished.stderr
    assert "which the run kept, no longer exists: its environment is made again" in finished.stderr


def test_gc_lists_and_removes_it(repository: Place, tmp_path: Path) -> None:
    files = project_files(PROJECT_OF_GC, TESTS)
    place = Place.make(tmp_path, repository.engine, repository.python, files)
    run_id = place.run("--keep")["run_id"]
    [name] = remains(place, run_id)

    def listed(*words: str) -> tuple[str, bool, str]:
        options = (*place.options, "--project", PROJECT_OF_GC)
        [item] = [it for it in gc(place, "gc", *options, *words) if it["name"] == name]
        return item["kind"], item["removed"], item["reason"]

    kind = "failed container" if place.engine == "docker" else "work folder"
    assert listed("--dry-run") == (kind, False, "used within 14 days")
    assert listed("--dry-run", "--older-than", "0") == (kind, True, "not used for 0 days")
    with open_shell(place, run_id):
        needed = "it is running" if place.engine == "docker" else "its run is in progress"
        assert listed("--older-than", "0") == (kind, False, needed)
    wait_for_end(place, run_id)
    assert listed("--older-than", "0") == (kind, True, "not used for 0 days")
    if place.engine == "docker":
        assert remains(place, run_id) == []
    else:
        assert not Path(name).exists()


def start_run(place: Place, *words: str) -> subprocess.Popen[str]:
    """Start a run, and wait until its build has started."""
    process = subprocess.Popen(
        place.command("run", *words, "--format", "json"),
        cwd=ROOT,
        env=place.environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr
    for line in process.stderr:
        if "build started" in line:
            break
    return process


def kill_agent(place: Place) -> None:
    """Kill it while the build waits."""
    run_id = (place.folder / "results" / "latest").resolve().name
    log = place.folder / "results" / run_id / "cpu" / "build.log"
    deadline = monotonic() + PATIENCE_S
    while not (log.exists() and "waiting" in log.read_text()):
        assert monotonic() < deadline, f"the build does not wait: {list(log.parent.iterdir())}"
    if place.engine == "docker":
        [container] = containers(run_id)
        container.kill()
    else:
        lock = place.folder / "results" / run_id / "cpu" / HOST_LOCK
        os.kill(json.loads(lock.read_text())["agent"], signal.SIGKILL)


@pytest.mark.complete
def test_an_agent_that_vanished_and_a_resumed_run(place: Place) -> None:
    place.write({"build.sh": WAITING})
    with start_run(place, "cpu", "--keep", *place.options) as process:
        kill_agent(place)
        printed, complaints = process.communicate()
    assert process.returncode == 3, complaints
    run = json.loads(printed)
    run_id = run["run_id"]
    assert run["platforms"][0]["verdict"]["product"] == "incomplete"
    [name] = remains(place, run_id)
    finished = place.ci("shell", run_id, "cpu", given="cat built; echo seen > mine")
    assert (finished.returncode, finished.stdout) == (0, "half\n"), finished.stderr
    wait_for_end(place, run_id)

    with start_run(place, "--resume", run_id) as process:
        if place.engine == "docker":  # a new one, with the old name
            assert remains(place, run_id) == [name.removesuffix(KEPT)]
        else:
            assert name not in remains(place, run_id)
        process.send_signal(signal.SIGINT)
        printed, _ = process.communicate()
    assert process.returncode == 130
    assert json.loads(printed)["platforms"][0]["verdict"]["product"] == "incomplete"
    assert (place.folder / "results" / run_id / "cpu.attempt-1").is_dir()
    assert remains(place, run_id) == []  # interrupted, which is no failure to look into


def test_a_resumed_run_leaves_a_final_platform_alone(place: Place, failed: str) -> None:
    [name] = remains(place, failed)
    place.git("checkout", "--quiet", "--force", "master")
    finished = place.ci("run", "--resume", failed, "--format", "json")
    assert finished.returncode == 1, finished.stderr
    assert json.loads(finished.stdout)["platforms"][0]["environment"]["engine"]["kept"] == name
    assert remains(place, failed) == [name]
