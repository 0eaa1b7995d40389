"""Configuration, sources and results that change or vanish under a run."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from ci.facts.sentences import on_stages
from tools.faults.model import KILLED, NOT_STARTED, PASSES, REFUSED, SLOW, Fault, Left
from tools.faults.running import FaultRun, kill_orchestrator

KIND = "Changes under a run"
CHANGED = "--resume: …/ci.yaml has changed since run … began\nUndo the change, or start a new run."
GONE = "--resume: …/ci.yaml has been removed or renamed since run … began\n…"
Change = Callable[[FaultRun], None]
Action = Callable[[FaultRun, str], None]


def while_it_runs(change: Change) -> Action:
    """Return the action that changes something while the tests run."""

    def act(run: FaultRun, platform: str) -> None:
        run.wait_for(platform)
        change(run)

    return act


def refused(change: Change, undo: Change) -> Change:
    """Return what a run of which the orchestrator was killed refuses until it is undone."""

    def then(run: FaultRun) -> None:
        change(run)
        run.resume()
        undo(run)

    return then


def append(text: str) -> Change:
    """Return the change that adds a text to the configuration."""

    def change(run: FaultRun) -> None:
        with (run.project / "ci.yaml").open("a") as file:
            file.write(text)

    return change


def take_back(length: int) -> Change:
    def change(run: FaultRun) -> None:
        path = run.project / "ci.yaml"
        os.truncate(path, path.stat().st_size - length)

    return change


def rename(run: FaultRun) -> None:
    run.project.rename(run.folder / "renamed")


def rename_back(run: FaultRun) -> None:
    (run.folder / "renamed").rename(run.project)


def change_tests(run: FaultRun) -> None:
    (run.project / "cpu" / "test_it.py").write_text("def test_a(): assert False\n")


def remove_tests(run: FaultRun) -> None:
    shutil.rmtree(run.project / "cpu")


def remove_platform_folder(run: FaultRun) -> None:
    shutil.rmtree(run.results / run.run_id / "cpu")


def remove_run_folder(run: FaultRun) -> None:
    shutil.rmtree(run.results / run.run_id)


def remove_results(run: FaultRun) -> None:
    shutil.rmtree(run.results)


def import_all(run: FaultRun) -> None:
    run.wait(run.start("import", str(run.results)))


@contextmanager
def latest_is_folder(run: FaultRun) -> Iterator[None]:
    (run.results / "latest").mkdir(parents=True)
    yield


@contextmanager
def latest_is_broken(run: FaultRun) -> Iterator[None]:
    run.results.mkdir()
    (run.results / "latest").symlink_to("nowhere")
    yield


@contextmanager
def results_is_file(run: FaultRun) -> Iterator[None]:
    run.results.write_text("in the way")
    yield
    run.results.unlink()


@contextmanager
def removed_while_copied(run: FaultRun) -> Iterator[None]:
    """Have a source file that is a link out of what can be read once the run has begun."""
    (run.project / "late").mkdir()
    for number in range(200):  # enough for the copy to take a second
        (run.project / "late" / f"{number:03}").write_bytes(os.urandom(1 << 18))
    yield


def remove_late(run: FaultRun, _: str) -> None:
    run.wait_for_text("image finished")
    shutil.rmtree(run.project / "late")


def undone(name: str, change: Change, undo: Change, shown: str) -> Fault:
    """Return a change that `--resume` refuses, until it is undone."""
    return replace(
        PASSES,
        name=f"{name} before `--resume`, and undone",
        kind=KIND,
        files=SLOW,
        act=kill_orchestrator(),
        then=refused(change, undo),
        shown=(shown,),
        exits=(KILLED, 2, 0),
        left=Left.CONTAINER,
    )


UNNOTICED = replace(PASSES, kind=KIND, files=SLOW, alone=True)
FAULTS = (
    replace(
        UNNOTICED,
        name="the platform's folder of results is removed while the tests run",
        act=while_it_runs(remove_platform_folder),
    ),
    replace(
        UNNOTICED,
        name="the run's folder of results is removed while the tests run",
        act=while_it_runs(remove_run_folder),
    ),
    replace(
        UNNOTICED,
        name="the whole folder of results is removed while the tests run; `import` stores the run",
        act=while_it_runs(remove_results),
        then=import_all,
        exits=(3, 0),
        shown=("the store cannot save run …: …/ci.db was removed while it was open\n…import …",),
    ),
    replace(
        UNNOTICED, name="the tests are changed while they run", act=while_it_runs(change_tests)
    ),
    replace(
        UNNOTICED,
        name="the sources are removed while the tests run",
        act=while_it_runs(remove_tests),
    ),
    replace(
        UNNOTICED,
        name="the configuration is changed while the tests run",
        act=while_it_runs(append("reruns: 1\n")),
    ),
    undone("the configuration is changed", append("reruns: 1\n"), take_back(10), CHANGED),
    undone("the configuration is damaged", append("x: [\n"), take_back(5), CHANGED),
    undone("the sources are renamed", rename, rename_back, GONE),
    replace(
        NOT_STARTED,
        name="the sources are removed while they are copied",
        kind=KIND,
        around=removed_while_copied,
        act=remove_late,
        evidence=(
            on_stages.platform_failed(
                "…: this file of the sources cannot be read: No such file or directory (…"
            ),
        ),
    ),
    replace(
        REFUSED,
        name="a folder is in the place of `results/latest`",
        kind=KIND,
        around=latest_is_folder,
        shown=("--results: …/latest: got a folder, expected a link to the latest run\n…",),
        exits=(2,),
    ),
    replace(
        PASSES,
        name="`results/latest` is a link to nothing",
        kind=KIND,
        around=latest_is_broken,
    ),
    replace(
        REFUSED,
        name="a file is in the place of the folder of results",
        kind=KIND,
        around=results_is_file,
        shown=("--results: …/results: got a file, expected a folder\n…",),
        exits=(2,),
    ),
)
