"""What stored runs show of their devices, with and without shards.

tests/e2e/test_bad_devices.py has real runs.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ci.agent.bad_devices import DeviceMark, read_mark, write_mark
from ci.analysis.bad_devices import PROCESS, DeviceUse
from ci.facts.failures import ENDED_IN
from ci.model.outcomes import Outcome
from ci.model.plan import RunPlan
from ci.model.results import Failure, ShardResult
from ci.model.verdicts import Harness, Product
from ci.run.bad_devices import read_uses, set_bad_devices_aside
from tests.ci.made_plans import device_plan
from tests.ci.made_results import made_verdict
from tests.ci.stored_history import BEGIN, ENVIRONMENT, Project, result

TEST, OTHER = "test_a.py::test_one", "test_a.py::test_two"
COMMIT = "0" * 40


class Runs:
    """Runs of one commit on devices of this machine."""

    def __init__(self, folder: Path) -> None:
        self.project = Project(folder=folder)
        self.leases = folder / "leases"
        self.leases.mkdir()

    def add(
        self,
        *devices: int,
        harness: Harness = Harness.CLEAN,
        bad: str | None = None,
        shards: tuple[int, ...] = (),
    ) -> None:
        has_died = harness is not Harness.CLEAN
        product = Product.INCOMPLETE if has_died else Product.FAILED if bad else Product.PASSED
        message = f"{ENDED_IN} with exit code 137" if has_died else "assert 1 == 2"
        failure = Failure(stage="pytest", test=bad, outcome=Outcome.FAILED, message=message)
        records = [{"uuid": f"GPU-{it}", "name": "a card", "driver": "1"} for it in devices]
        row = result(
            platform="nvidia",
            environment={**ENVIRONMENT, "devices": records},
            verdict=made_verdict(product, harness=harness),
            failures=(failure,) if bad else (),
            shards=tuple(
                ShardResult(shard=number, tests=1, seconds=1.0, exit_code=code)
                for number, code in enumerate(shards, 1)
            ),
        )
        outcomes = {TEST: Outcome.PASSED, OTHER: Outcome.PASSED}
        if bad and has_died:
            del outcomes[bad]  # it did not end
        elif bad:
            outcomes[bad] = Outcome.FAILED
        self.project.run(COMMIT, row, outcomes=outcomes)

    def uses(self) -> list[DeviceUse]:
        with self.project.open() as store:
            return read_uses(store, "tiny", "nvidia", self.leases)


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    return Runs(tmp_path)


def test_a_process_that_died(runs: Runs) -> None:
    runs.add(1)
    runs.add(0, harness=Harness.TIMED_OUT, bad=TEST)
    died, fine = runs.uses()  # the newest first
    assert (died.devices, died.failed, died.passed) == ({"GPU-0"}, {TEST, PROCESS}, set())
    assert (fine.devices, fine.failed, fine.passed) == ({"GPU-1"}, set(), {TEST, PROCESS})


def test_without_a_failure_there_is_nothing_to_read(runs: Runs) -> None:
    runs.add(0)
    assert runs.uses() == []


def test_a_shard_that_died(runs: Runs) -> None:
    runs.add(0, 1, 2, 3, harness=Harness.CRASHED, bad=TEST, shards=(0, 137))
    died, others = runs.uses()
    assert (died.devices, died.failed) == ({"GPU-2", "GPU-3"}, {TEST})
    assert (others.devices, others.failed) == (set(), set())


@pytest.mark.parametrize(
    ("codes", "harness"), [((137, 137), Harness.CRASHED), ((1, 0), Harness.CLEAN)]
)
def test_which_shard_it_was_is_not_known(
    runs: Runs, codes: tuple[int, int], harness: Harness
) -> None:
    runs.add(0, 1, harness=harness, bad=TEST, shards=codes)
    [use] = runs.uses()
    assert (use.devices, use.failed) == (set(), {TEST})


def plan_of(runs: Runs, **changes: Any) -> RunPlan:
    plan = device_plan(runs.project.folder, "nvidia")
    assert plan.devices
    return replace(plan, devices=replace(plan.devices, folder=str(runs.leases), **changes))


def test_only_a_device_of_this_machine_is_set_aside(
    runs: Runs, capsys: pytest.CaptureFixture[str]
) -> None:
    for device in (0, 0, 1, 1):
        bad = TEST if device == 0 else None
        runs.add(device, harness=Harness.CRASHED if bad else Harness.CLEAN, bad=bad)
    plans = [plan_of(runs)]
    set_bad_devices_aside(runs.project.results, "tiny", plans)
    assert read_mark(runs.leases, "GPU-0") is None
    (runs.leases / "GPU-0.lock").touch()
    set_bad_devices_aside(runs.project.results, "tiny", plans)
    mark = read_mark(runs.leases, "GPU-0")
    assert mark
    assert mark.is_valid
    assert mark.reason in capsys.readouterr().err

    # The runs before the end of a mark prove nothing.
    end = BEGIN.timestamp() + 30 * 24 * 3600
    write_mark(runs.leases, DeviceMark("GPU-0", "", end - 1, end))
    set_bad_devices_aside(runs.project.results, "tiny", plans)
    assert capsys.readouterr().err == ""


def test_a_folder_that_cannot_be_written_is_one_complaint(
    runs: Runs, capsys: pytest.CaptureFixture[str]
) -> None:
    for device in (0, 0, 1, 1):
        runs.add(device, harness=Harness.CRASHED if device == 0 else Harness.CLEAN)
    (runs.leases / "GPU-0.lock").touch()
    (runs.leases / "GPU-0.bad.json").mkdir()
    set_bad_devices_aside(runs.project.results, "tiny", [plan_of(runs)])
    assert "the devices of nvidia cannot be set aside: " in capsys.readouterr().err
