"""Logs arrive while their stage runs, on any engine, and are complete at its end."""

from __future__ import annotations

import hashlib
from pathlib import Path

from docker.client import DockerClient

from ci.engines.host.workfolder import WorkFolder
from ci.model.plan import RunPlan
from ci.protocol.events import Event, StageFinished
from tests.e2e.benches import Bench, Recorder
from tests.e2e.plans import python_stage, stage

FLOOD_LINES = 1_000_000  # of 100 bytes
FLOOD = f"""
import sys
for start in range(0, {FLOOD_LINES}, 1000):
    sys.stdout.writelines(f"{{number:099d}}\\n" for number in range(start, start + 1000))
"""
ODD = b"x" * 1_000_000 + b"\n" + bytes(range(256)) * 10 + "caf\xe9 \N{SNOWMAN}\n".encode() + b"end"


def let_go_on(bench: Bench, plan: RunPlan) -> None:
    """Put the file that a stage waits for into its workspace."""
    if bench.engine.name == "host":
        folder = WorkFolder.find(plan)
        assert folder is not None
        (folder.workspace / "go").touch()
        return
    client = DockerClient.from_env()
    container = client.containers.get(plan.container.name)
    container.exec_run(["touch", f"{plan.container.workspace}/go"], user=plan.container.user)
    client.close()


def test_log_can_be_followed(bench: Bench) -> None:
    wait = "echo ready; while [ ! -e go ]; do sleep 0.1; done; echo ended"
    plan = bench.plan(stage("build", "sh", "-c", wait))
    log = plan.results / "build.log"
    seen = []

    def look() -> None:
        seen.append(log.read_text())
        let_go_on(bench, plan)

    bench.observer.reactions["ready"] = look
    assert bench.run(plan).exit_code == 0
    assert seen == ["ready\n"]
    assert log.read_text() == "ready\nended\n"


class Reader(Recorder):
    """Reads each stage's log when the stage has ended, but not the run."""

    def __init__(self, results: Path) -> None:
        super().__init__()
        self._results = results
        self.logs: dict[str, bytes] = {}

    def event(self, event: Event) -> None:
        super().event(event)
        if isinstance(event, StageFinished):
            self.logs[event.stage] = (self._results / f"{event.stage}.log").read_bytes()


def test_nothing_of_a_log_is_lost(bench: Bench) -> None:
    plan = bench.plan(stage("odd", "cat", "odd"), python_stage("flood", FLOOD))
    (plan.source / "odd").write_bytes(ODD)
    reader = bench.observer = Reader(plan.results)
    assert bench.run(plan).exit_code == 0
    assert reader.logs["odd"] == ODD
    assert (plan.results / "odd.log").read_bytes() == ODD
    last = b"%099d\n" % (FLOOD_LINES - 1)
    assert reader.logs["flood"].endswith(last)
    expected = hashlib.sha256(b"".join(b"%099d\n" % number for number in range(FLOOD_LINES)))
    complete = hashlib.sha256((plan.results / "flood.log").read_bytes())
    assert complete.hexdigest() == expected.hexdigest()
    shown = reader.printed
    assert shown[-1] == last.decode().rstrip()
    assert len(shown) < FLOOD_LINES / 100  # the caller is not to be flooded
