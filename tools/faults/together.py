"""Several commands at once: on one run, one store, one engine."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace

from tools.faults.model import KILLED, PASSES, Left
from tools.faults.running import FaultRun, kill_orchestrator

KIND = "Several commands at once"
# The tests go on until they are released.
HELD = {
    "test_it.py": "import os, time\ndef test_a():\n    print('begun')\n"
    "    while not os.path.exists('go'): time.sleep(0.1)\n"
}
STILL_RUNNING = "run … is still running\nWait until it ends, …"
Action = Callable[[FaultRun, str], None]


def command(*arguments: str) -> Action:
    """Return the action that starts a command while the tests run, and waits for its end.

    ``{results}``, ``{id}``, ``{config}`` and ``{name}`` in ``arguments`` are those of the run.
    """

    def act(run: FaultRun, platform: str) -> None:
        run.wait_for(platform)
        run.wait(start(run, *arguments))
        release(run)

    return act


def release(run: FaultRun) -> None:
    """Let the tests of all containers end."""
    for container in run.containers():
        done = container.exec_run(["touch", "/workspace/go"], user="1000")
        assert done.exit_code == 0, done.output


def start(run: FaultRun, *arguments: str) -> subprocess.Popen[bytes]:
    """Start a command that knows the run's own values."""
    values = {
        "results": run.results,
        "id": run.run_id,
        "config": run.project / "ci.yaml",
        "name": run.name,
    }
    own = run.folder / "other" if "import" in arguments else None
    return run.start(*(word.format(**values) for word in arguments), results=own)


def two_resumes(run: FaultRun, platform: str) -> None:
    """Kill the orchestrator, and continue the run twice at once."""
    kill_orchestrator()(run, platform)
    run.processes[0].wait()
    one = start(run, "run", "--resume", "{id}")
    run.wait_for_text("pytest started")
    run.wait(start(run, "run", "--resume", "{id}"))
    release(run)
    run.wait(one)


def same_engine(run: FaultRun, platform: str) -> None:
    """Start a second run of the same project into the same store."""
    run.wait_for(platform)
    other = run.folder / "other"
    config = ["--source", str(run.project), "--config", str(run.project / "ci.yaml")]
    second = run.start("run", platform, *config, "--engine", "docker", results=other)
    run.wait_for_text("pytest started")
    release(run)
    run.wait(second)


def kill_and_pause(run: FaultRun, platform: str) -> None:
    """Kill the orchestrator, and pause the container that it leaves."""
    kill_orchestrator()(run, platform)
    [container] = run.containers(platform)
    container.pause()


def unpause(run: FaultRun) -> None:
    process = run.start("run", "--resume", run.run_id)
    run.wait_for_text("pytest started")
    run.containers()[0].unpause()
    release(run)
    run.wait(process)


UNNOTICED = replace(PASSES, kind=KIND, files=HELD, alone=True)
FAULTS = (
    replace(
        UNNOTICED,
        name="a second orchestrator on a run that goes on",
        act=command("run", "--resume", "{id}"),
        exits=(0, 2),
        shown=(STILL_RUNNING,),
    ),
    replace(
        UNNOTICED,
        name="two commands resume the same run at once",
        act=two_resumes,
        exits=(KILLED, 0, 2),
        shown=(STILL_RUNNING,),
    ),
    replace(
        UNNOTICED,
        name="two runs of one platform save to one store at once",
        act=same_engine,
        exits=(0, 0),
        environment={"INFINI_CI_DB": "sqlite:///{run}/shared.db"},
    ),
    replace(
        UNNOTICED,
        name="`gc` removes everything unused while a run goes on",
        act=command(
            "gc",
            "--older-than",
            "0",
            "--keep-size",
            "0",
            "--project",
            "{name}",
            "--config",
            "{config}",
        ),
        exits=(0, 0),
        shown=("kept 1 container, …: it is running", "its run is in progress"),
    ),
    replace(
        UNNOTICED,
        name="`import` of a run that goes on",
        act=command("import", "{results}/{id}"),
        exits=(0, 2),
        shown=("…: its run is still running\nWait until it ends, then import it again.",),
    ),
    replace(
        UNNOTICED,
        name="`report` of a run that goes on",
        act=command("report"),
        exits=(0, 0),
        shown=("this platform had no result yet when these results were written",),
    ),
    replace(
        UNNOTICED,
        name="`export` while a run goes on",
        act=command("export", "--format", "csv", "--output", "{results}/../export"),
        exits=(0, 0),
    ),
    replace(
        UNNOTICED,
        name="the container is paused when `--resume` begins, and goes on later",
        act=kill_and_pause,
        exits=(KILLED, 0),
        then=unpause,
        left=Left.CONTAINER,
    ),
)
