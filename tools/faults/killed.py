"""SIGKILL to other commands than ``run``, and imports of what a fault leaves behind."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tools.faults.model import KILLED, PASSES, SLOW, Left
from tools.faults.running import MOMENT_S, FaultRun, kill_orchestrator

KIND = "Killed commands, and imports of leftovers"
LARGE = 1 << 29  # a file of holes, whose copy takes a second
MANY = 5000  # files, whose removal takes some tenths of a second


def kill_when(run: FaultRun, moment: Callable[[], bool], *arguments: str, results: Path) -> None:
    """Start a command, and kill it at a moment."""
    process = run.start(*arguments, results=results)
    deadline = time.monotonic() + MOMENT_S
    while not moment():
        assert process.poll() is None, f"{arguments[0]} ended before its moment: {run.shown}"
        assert time.monotonic() < deadline, f"the moment of {arguments[0]} does not come"
    process.send_signal(signal.SIGKILL)
    process.wait()


def during_import(run: FaultRun) -> None:
    """Move the results away, and import them again with an interruption."""
    there = run.folder / "there"
    run.results.rename(there)
    run_id = next(path.name for path in there.iterdir() if path.name[0].isdigit())
    with (there / run_id / "cpu" / "large").open("wb") as file:
        file.truncate(LARGE)
    staged = run.results / ".import" / run_id / "cpu"
    kill_when(run, staged.is_dir, "import", str(there), results=run.results)
    assert not (run.results / run_id).exists()
    run.wait(run.start("import", str(there)))
    assert [path.name for path in (run.results / ".import").iterdir()] == [".lock"]


def during_export(run: FaultRun) -> None:
    target = run.folder / "export"
    arguments = ("export", "--format", "csv", "--output", str(target))
    kill_when(run, target.is_dir, *arguments, results=run.results)
    assert all((target / path.name).stat().st_size for path in target.glob("[a-z]*.csv"))
    run.wait(run.start(*arguments))
    assert (target / "tests.csv").read_text().count("\n") == 2


def during_report(run: FaultRun) -> None:
    kill_when(run, lambda: True, "report", results=run.results)
    run.wait(run.start("report"))


def during_gc(run: FaultRun) -> None:
    """Interrupt the removal of a run's folder, which the next call completes."""
    there = run.folder / "there"
    old = there / run.run_id
    shutil.copytree(run.results / run.run_id, old)
    many = old / "cpu" / "many"
    many.mkdir()
    for number in range(MANY):
        (many / str(number)).touch()
    config = ("--config", str(run.project / "ci.yaml"))
    arguments = ("gc", "--older-than", "0", "--project", run.name, *config)
    newest = many / str(MANY - 1)

    def has_begun() -> bool:
        return not newest.exists() or not (many / "0").exists()

    kill_when(run, has_begun, *arguments, results=there)
    assert old.exists(), "gc has removed everything before it was killed"
    run.wait(run.start(*arguments, results=there))
    assert not old.exists()


def import_leftovers(run: FaultRun) -> None:
    """Import a killed run elsewhere, before and after it is completed."""
    other = run.folder / "other"
    for done in (False, True):
        if done:
            run.resume()
        run.wait(run.start("import", str(run.results / run.run_id), results=other))


COMPLETED = replace(PASSES, kind=KIND, exits=(0, KILLED, 0))  # by the same command once more
FAULTS = (
    replace(COMPLETED, name="SIGKILL to `import` while it copies", then=during_import),
    replace(COMPLETED, name="SIGKILL to `export` while it writes", then=during_export),
    replace(COMPLETED, name="SIGKILL to `report`", then=during_report),
    replace(COMPLETED, name="SIGKILL to `gc` while it removes a run", then=during_gc),
    replace(
        PASSES,
        name="the leftovers of a killed run are imported, and again after `--resume`",
        kind=KIND,
        files=SLOW,
        act=kill_orchestrator(),
        then=import_leftovers,
        shown=("imported: cpu not_run", "updated: cpu passed"),
        exits=(KILLED, 0, 0, 0),
        left=Left.CONTAINER,
    ),
)
