"""``shell`` and ``rerun``: the environment of a run again, on both engines."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ci.model.plan import RUN_LABEL
from tests.e2e.benches import ENGINES
from tests.e2e.places import (
    Place,
    gc,
    json_of,
    open_shell,
    paste,
    project_files,
    read_until,
    terminal_shell,
)

TESTS = """\
import pathlib
import pytest
def test_built(): assert pathlib.Path("built").read_text() == "one\\n"
@pytest.mark.parametrize("text", ["it's [a]"])
def test_fails(text): assert len(text) == 1, "not one"
@pytest.mark.skip
def test_skipped(): pass
"""
FILES = project_files("entered", TESTS)
FAILING = "tests/test_a.py::test_fails[it's [a]]"


@pytest.fixture(scope="module", params=ENGINES)
def ran(request: pytest.FixtureRequest, make_place: Callable[..., Place]) -> Place:
    """A project that ran once."""
    place = make_place(request.param, FILES)
    place.run()
    return place


@pytest.fixture
def place(ran: Place) -> Iterator[Place]:
    """The project as it ran; nothing of a session remains after the test."""
    yield ran
    ran.git("checkout", "--quiet", "--force", "master")
    ran.git("clean", "--quiet", "-fdx")
    # A work folder is removed by a process that outlives its caller.
    for folder in ran.temporary.glob("infini-ci-*-session-*"):
        subprocess.run(["rm", "-rf", folder], check=True)
    leftovers = ran.leftovers()
    for container in ran.containers():  # later tests must not fail, too
        container.remove(force=True)
    assert leftovers == []


def test_the_command_of_a_failing_test_fails_when_pasted(place: Place) -> None:
    shown = place.ci("report").stdout
    lines = [line.strip() for line in shown.splitlines()]
    at = lines.index(FAILING)
    assert lines[at + 1] == "not one: assert 8 == 1"
    pasted = lines[at + 2]
    assert f" rerun {json_of(place)['run_id']} cpu {shlex.quote(FAILING)}" in pasted
    finished = paste(place, pasted)
    assert finished.returncode == 1, finished.stderr
    assert "E   AssertionError: not one" in finished.stdout
    assert "1 failed, 2 deselected" in finished.stdout


def test_a_test_that_passes_or_skips(place: Place) -> None:
    finished = place.ci("rerun", "latest", "cpu", "tests/test_a.py::test_built")
    assert finished.returncode == 0, finished.stderr
    assert "1 passed, 2 deselected" in finished.stdout
    assert place.ci("rerun", "latest", "cpu", "tests/test_a.py::test_skipped").returncode == 1
    assert len(list((place.folder / "results").glob("2*"))) == 1  # no result is stored


SCRIPT = """\
pwd; cat built; echo "$GREETING, $OF_TESTS"; id -u
env | grep -c "secret value"
test -t 0 || echo no terminal
python -m pytest -q tests | tail -n 1
exit 7
"""


def test_a_shell_reads_commands(place: Place) -> None:
    finished = place.ci("shell", "latest", "cpu", given=SCRIPT)
    assert finished.returncode == 7, finished.stderr
    folder, built, variables, user, secrets, terminal, summary = finished.stdout.splitlines()
    assert built == "one"
    assert variables == "good morning, yes"
    assert (secrets, terminal) == ("0", "no terminal")
    assert summary.startswith("1 failed, 1 passed, 1 skipped in ")
    if place.engine == "docker":
        assert (folder, user) == ("/workspace", "1000")
    else:
        assert folder.startswith(f"{place.temporary}/infini-ci-")


def test_a_shell_as_json(place: Place) -> None:
    given = "echo heard; echo not heard >&2; exit 7"
    finished = place.ci("shell", "latest", "cpu", "--format", "json", given=given)
    assert finished.returncode == 7, finished.stderr
    printed = json.loads(finished.stdout)
    assert printed["run_id"] == json_of(place)["run_id"]
    assert (printed["platform"], printed["exit_code"]) == ("cpu", 7)
    assert (printed["output"], printed["output_bytes"]) == ("heard\n", 6)
    assert "not heard" in finished.stderr


def test_a_shell_has_the_terminal_of_its_caller(place: Place) -> None:
    with terminal_shell(place, size=(33, 111)) as (process, ours):
        # One job, so that Ctrl-C ends it whether it prints or sleeps.
        os.write(ours, b"sh -c 'echo \"$TERM\" $(stty size); exec sleep 600'\n")
        printed = read_until(ours, b"vt100 33 111")
        os.write(ours, b"\x03")
        os.write(ours, b"echo still $((40 + 2)); exit 5\n")
        printed += read_until(ours, b"still 42")
        assert process.wait() == 5, printed


def test_changed_sources_come_from_the_commit(place: Place) -> None:
    place.commit({"build.sh": "echo two > built\n"})
    place.write({"tests/test_a.py": "not python"})
    try:
        finished = place.ci("shell", "latest", "cpu", given="cat built")
        assert (finished.returncode, finished.stdout) == (0, "one\n")
        assert "the sources are those of commit " in finished.stderr
        assert f"they are at commit {place.git('rev-parse', 'HEAD').strip()}" in finished.stderr
    finally:
        place.git("reset", "--quiet", "--hard", "HEAD~")


def test_a_session_whose_caller_is_killed(place: Place) -> None:
    words = ("gc", "--older-than", "0", *place.options)
    if place.engine == "docker":  # without a project, it would remove the images of all tests
        words = (*words, "--project", "entered")
    with open_shell(place):
        sessions = [it for it in gc(place, *words, "--dry-run") if "-session-" in it["name"]]
        assert sessions
        assert [it for it in sessions if it["removed"]] == []
    if place.engine == "docker":
        names = [it.name for it in place.containers()]
        removed = [it["name"] for it in gc(place, *words) if it["removed"]]
        assert set(names) <= set(removed)
        assert place.containers() == []


@pytest.mark.docker
def test_another_machine_does_not_end_a_session(place: Place, tmp_path: Path) -> None:
    if place.engine == "host":
        pytest.skip("another machine does not share it")
    with open_shell(place) as process:
        # It shares the engine and the results, and its temporary folder is another one.
        words = ("gc", "--older-than", "0", "--project", "entered", *place.options)
        found = gc(place, *words, TMPDIR=str(tmp_path))
        kept = {it["name"]: it["reason"] for it in found if "-session-" in it["name"]}
        assert [*kept.values()] == ["it is running"]
        finished, _ = process.communicate(b"echo alive\n")
        assert (finished, process.returncode) == (b"alive\n", 0)


@pytest.mark.docker
def test_a_container_has_the_limits_of_the_run(place: Place) -> None:
    if place.engine == "host":
        pytest.skip("it has no container")
    run_id = json_of(place)["run_id"]
    with open_shell(place) as process:
        [container] = place.containers()
        assert container.labels[RUN_LABEL].startswith(f"{run_id}-session-")
        host = container.attrs["HostConfig"]
        assert (host["CapDrop"], host["SecurityOpt"]) == (["ALL"], ["no-new-privileges"])
        assert host["PidsLimit"] == 4096
        assert process.stdin
        process.stdin.close()
        assert process.wait() == 0
    assert place.containers() == []


def test_a_dirty_run_and_a_build_that_fails(place: Place) -> None:
    place.write({"build.sh": "echo dirty > built; echo error: no compiler; exit 3\n"})
    run = place.run()
    [row] = run["platforms"]
    [failure] = row["failures"]
    assert (failure["stage"], failure["test"]) == ("build", None)
    assert failure["message"] == "error: no compiler"
    try:
        finished = place.ci("rerun", run["run_id"], "cpu")  # prints the stage that failed
        assert (finished.returncode, finished.stdout) == (1, "error: no compiler\n")
        finished = place.ci("shell", run["run_id"], "cpu", given="cat built")  # unchanged sources
        assert (finished.returncode, finished.stdout) == (0, "dirty\n")
        place.write({"build.sh": "echo another > built\n"})
        finished = place.ci("shell", run["run_id"], "cpu", given="cat built")
        assert (finished.returncode, finished.stdout) == (0, "one\n")
        assert "the run had uncommitted changes, which are not recorded" in finished.stderr
    finally:
        subprocess.run(["rm", "-rf", place.folder / "results" / run["run_id"]], check=True)
