"""Two simulated devices, one of which hangs: leases set it aside, and tests run on the other."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import psutil
import pytest

from ci.engines.device_marks import clear_device
from ci.engines.host import workfolder
from ci.engines.host.engine import HostEngine
from ci.engines.job import job_document
from ci.model.plan import RunPlan
from ci.model.results import PlatformResult
from ci.model.verdicts import Harness
from ci.plan.planning import RunOptions
from ci.plan.project import load_project
from ci.plan.request import new_request, plan_request
from ci.run.bad_devices import set_bad_devices_aside
from ci.run.coordinator import RunCoordinator
from ci.run.progress import Progress
from ci.run.records import Records
from tests.ci.stored_history import Project, git

pytestmark = pytest.mark.complete  # seven runs, one of which hangs until its time limit

HANGING, FINE = "GPU-0", "GPU-1"
CONFIG = """\
project: tiny
platforms:
  nvidia: {requirements: requirements.txt, devices: {wait_s: 0}}
stages:
- {name: build, command: "true"}
- name: pytest
  kind: pytest
  command: python -m pytest -q tests
  timeout_s: 15
"""
# In its first run the device hangs, until the time limit of the stage; later it ends the process.
TEST = f"""\
import os, pathlib, time

def test_that_passes(): pass
def test_kernel():
    if os.environ["CUDA_VISIBLE_DEVICES"] == "{HANGING}":
        hung = pathlib.Path("%s")
        if hung.exists():
            os.kill(os.getpid(), 9)
        hung.touch()
        time.sleep(600)
"""
PROGRAM = "import json\nprint(json.dumps({'status': 'devices', 'devices': %s}))\n"


def device(index: int) -> dict[str, object]:
    facts = {"index": index, "uuid": f"GPU-{index}", "name": "a card", "driver": "1"}
    return {**facts, "health": "healthy", "memory_used": 0, "memory_total": 1 << 30}


@dataclass
class Machine:
    """A machine with the two devices, and a repository that is tested there."""

    folder: Path
    python: str

    def __post_init__(self) -> None:
        self.project = Project(folder=self.folder)
        self.project.commit()
        self.leases = self.folder / "leases"
        files = {
            "ci.yaml": CONFIG,
            "requirements.txt": "pytest\n",
            "tests/test_it.py": TEST % (self.folder / "hung"),
        }
        for name, text in files.items():
            path = self.project.source / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        git(self.project.source, "add", ".")
        self.project.commit()

    def run(self, *uuids: str) -> PlatformResult:
        """Run the suite on any of the devices, as ``run`` does, and judge them."""
        source, results = self.project.source, self.project.results
        project = load_project(source / "ci.yaml", {"PIP_NO_INDEX": "1"})
        request = new_request(
            project,
            ["nvidia"],
            source_folder=source,
            results=results,
            options=RunOptions(engine="host"),
        )
        plans = [self._adapted(it, uuids) for it in plan_request(project, request, results)]
        coordinator = RunCoordinator(
            request=request,
            plans=plans,
            connect=HostEngine.connect,
            records=Records.of_run(results, request.run_id),
            progress=Progress(),
            resumed=False,
        )
        [row] = coordinator.execute().platforms
        set_bad_devices_aside(results, request.project, plans)
        return row

    def _adapted(self, plan: RunPlan, uuids: Sequence[str]) -> RunPlan:
        assert plan.devices
        own = replace(plan.devices, folder=str(self.leases), uuids=tuple(uuids))
        return replace(plan, devices=own, host=replace(plan.host, python=self.python))


@pytest.fixture
def machine(tmp_path: Path, python: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    probe = tmp_path / "probe.py"
    probe.write_text(PROGRAM % json.dumps([device(0), device(1)]))
    with_probe = partial(job_document, probe=(sys.executable, str(probe)))
    monkeypatch.setattr(workfolder, "job_document", with_probe)
    yield Machine(tmp_path, python)
    # What removes the work folders outlives its worker, and so is no child of this process.
    removing = [it for it in psutil.process_iter(["cmdline"]) if is_removal(it)]
    psutil.wait_procs(removing)


def is_removal(process: psutil.Process) -> bool:
    words = process.info["cmdline"] or [""]
    return bool(words[0] == "rm" and words[-1].startswith(tempfile.gettempdir()))


def leased(row: PlatformResult) -> list[str]:
    records = row.environment["devices"]
    assert isinstance(records, list)
    return [str(it["uuid"]) for it in records if isinstance(it, dict)]


def test_a_device_that_hangs(machine: Machine, capfd: pytest.CaptureFixture[str]) -> None:
    by_turns = [
        (Harness.TIMED_OUT, HANGING),
        (Harness.CLEAN, FINE),
        (Harness.CRASHED, HANGING),
        (Harness.CLEAN, FINE),
    ]
    for harness, uuid in by_turns:
        assert "set aside" not in capfd.readouterr().err
        row = machine.run()
        assert (row.verdict.harness, leased(row)) == (harness, [uuid])
    shown = capfd.readouterr().err
    assert f"device {HANGING} is set aside until " in shown
    assert f"doctor --clear-device {HANGING}" in shown

    row = machine.run()
    assert (row.verdict.harness, leased(row)) == (Harness.CLEAN, [FINE])
    row = machine.run(HANGING)  # waiting does not help
    [reason] = [it.text for it in row.verdict.evidence if "set aside" in it.text]
    assert "its process died or hung in 2 runs" in reason

    # After that, the old runs prove nothing.
    capfd.readouterr()
    clear_device(machine.leases, HANGING)
    row = machine.run()
    assert leased(row) == [HANGING]
    assert "set aside" not in capfd.readouterr().err
