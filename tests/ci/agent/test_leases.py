"""Leases as the agents of several runs take them: processes, locks and probes are real."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from ci.agent.bad_devices import DeviceMark, write_mark
from ci.agent.lease import LeaseError, Leases
from ci.agent.locks import LockFolder
from ci.protocol.events import Event, LeaseWaiting
from ci.protocol.job import DeviceJob
from ci.protocol.stage_kind import StageKind
from ci.util.invocation import REPOSITORY
from tests.ci import competitor
from tests.ci.agent_job import Job, device_job, printed_events, wait_for_end

GIBIBYTE = 2**30


def device(index: int, **changes: object) -> dict[str, Any]:
    return {
        "index": index,
        "uuid": f"GPU-{index}",
        "name": "Test device",
        "memory_total": 16 * GIBIBYTE,
        "memory_used": GIBIBYTE // 8,
        "utilisation": 0,
        "driver": "1.0",
        "runtime": "13.0",
        "health": "healthy",
        "appendix": {"bdf": f"0000:0{index}:00.0"},
        **changes,
    }


class Machine:
    """A machine with devices, as its probe lists them, and a lease folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "leases"
        self._answer = folder / "devices.json"
        self.has(*(device(index) for index in range(4)))

    def has(self, *devices: Mapping[str, object], status: str = "devices", **more: object) -> None:
        self._answer.write_text(json.dumps({"status": status, "devices": devices, **more}))

    def policy(self, **changes: Any) -> DeviceJob:
        return device_job(self._answer.parent, **{"visible": "CUDA_VISIBLE_DEVICES", **changes})

    def leases(
        self, run: str = "run-1", environment: Mapping[str, str] = os.environ, **changes: Any
    ) -> tuple[Leases, list[Event]]:
        events: list[Event] = []
        leases = Leases(
            self.policy(**changes),
            run_id=run,
            platform="nvidia",
            environment=environment,
            emit=events.append,
            stopped=lambda: False,
        )
        return leases, events

    def checked(self, run: str = "run-1", **changes: Any) -> Leases:
        leases, _ = self.leases(run, **changes)
        leases.check()
        return leases

    @contextmanager
    def taken(self, run: str = "run-1", **changes: Any) -> Iterator[Leases]:
        """Leases that hold their devices."""
        leases = self.checked(run, **changes)
        leases.take("pytest")
        yield leases
        leases.release()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


# One run


def test_lease_names_its_devices_and_their_state_before_and_after(machine: Machine) -> None:
    leases, events = machine.leases(count=2)
    leases.check()
    assert (leases.variables(), leases.descriptors) == ({}, ())
    leases.take("pytest")
    assert leases.variables() == {"CUDA_VISIBLE_DEVICES": "GPU-0,GPU-1"}
    machine.has(device(0, memory_used=8 * GIBIBYTE), device(1, health="unhealthy"))
    leases.release()
    assert [event.event for event in events] == ["lease_taken", "lease_released"]
    first, second = leases.records
    assert (first["uuid"], first["driver"], first["index"]) == ("GPU-0", "1.0", 0)
    assert first["before"]["memory_used"] == GIBIBYTE // 8
    assert first["after"]["memory_used"] == 8 * GIBIBYTE
    assert (second["before"]["health"], second["after"]["health"]) == ("healthy", "unhealthy")
    assert (leases.variables(), leases.descriptors) == ({}, ())


def test_a_framework_that_counts_its_devices_gets_indices(machine: Machine) -> None:
    machine.has(device(5), device(7))
    named = {"visible": "MLU_VISIBLE_DEVICES", "visible_by": "index"}
    with machine.taken(uuids=("GPU-7",), **named) as leases:
        assert leases.variables() == {"MLU_VISIBLE_DEVICES": "7"}


@pytest.mark.parametrize(
    ("named", "leased"),
    [("2", "GPU-2"), ("GPU-3,GPU-1", "GPU-1"), ("", "GPU-0"), ("MIG-elsewhere", "GPU-0")],
)
def test_only_devices_that_a_scheduler_gave_are_leased(
    machine: Machine, named: str, leased: str
) -> None:
    with machine.taken(environment={**os.environ, "CUDA_VISIBLE_DEVICES": named}) as leases:
        assert leases.variables() == {"CUDA_VISIBLE_DEVICES": leased}


# What keeps a device from being taken


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ({"health": "unhealthy"}, "GPU-0 is unhealthy"),
        ({"health": "unknown"}, "GPU-0 does not report its health or its memory in use"),
        ({"memory_used": None}, "GPU-0 does not report its health or its memory in use"),
        ({"memory_total": None}, "GPU-0 does not report its health or its memory in use"),
        (
            {"memory_used": 8 * GIBIBYTE},
            r"GPU-0 has 50% of its memory in use without a lease \(busy above 10%\)",
        ),
    ],
)
def test_devices_that_are_not_fit_are_skipped_with_the_reason(
    machine: Machine, state: dict[str, object], reason: str
) -> None:
    machine.has(device(0, **state))
    leases = machine.checked()
    with pytest.raises(LeaseError, match=f"device lease timed out after 0 s: {reason}"):
        leases.take("pytest")
    leases.release()
    machine.has(device(0, **state), device(1))
    with machine.taken() as leases:
        assert leases.variables() == {"CUDA_VISIBLE_DEVICES": "GPU-1"}


def test_a_device_that_is_set_aside_is_skipped_until_then(machine: Machine) -> None:
    machine.has(device(0))
    leases = machine.checked()
    now = time.time()
    write_mark(machine.folder, DeviceMark("GPU-0", "it hung", now, now + 3600))
    message = r"after 0 s: GPU-0 is set aside until 20.* UTC: it hung$"
    with pytest.raises(LeaseError, match=message):
        leases.take("pytest")
    leases.release()
    machine.has(device(0), device(1))
    with machine.taken() as leases:
        assert leases.variables() == {"CUDA_VISIBLE_DEVICES": "GPU-1"}
    write_mark(machine.folder, DeviceMark("GPU-0", "it hung", now, now))
    with machine.taken() as leases:
        assert leases.variables() == {"CUDA_VISIBLE_DEVICES": "GPU-0"}


def test_an_undetected_device_is_leased_only_by_its_name(machine: Machine) -> None:
    machine.has(status="unknown", reason="the library does not load")
    message = r"device detection failed: the library does not load \(install gpustack-runtime"
    with pytest.raises(LeaseError, match=message):
        machine.checked()
    with machine.taken(uuids=("GPU-9",)) as leases:
        assert leases.variables() == {"CUDA_VISIBLE_DEVICES": "GPU-9"}
        assert leases.records[0]["before"]["health"] == "unknown"


def test_a_device_that_vanishes_is_not_taken(machine: Machine) -> None:
    leases = machine.checked(uuids=("GPU-3",))
    machine.has(device(0))
    with pytest.raises(LeaseError, match="GPU-3 is no longer found"):
        leases.take("pytest")
    leases.release()


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        ({"count": 5}, "devices.count is 5; found: GPU-0, GPU-1, GPU-2, GPU-3 \\(lower the count"),
        ({"uuids": ("GPU-0",), "count": 2}, r"devices.count is 2; found: GPU-0 \(lower the count"),
        ({"uuids": ("GPU-8",)}, r"no device GPU-8 \(devices.uuids\); found: GPU-0, GPU-1"),
        (
            {"count": 3, "shards": 2},
            r"devices.count is 3 for each of 2 shards; found: GPU-0, GPU-1, GPU-2, GPU-3 \(use"
            " fewer shards, lower the count, or choose another engine; with 0 the run uses no",
        ),
        # A scheduler gave too few.
        (
            {"environment": {**os.environ, "CUDA_VISIBLE_DEVICES": "2"}, "count": 2},
            r"devices\.count is 2; found: GPU-2 \(",
        ),
    ],
)
def test_what_no_waiting_would_change_fails_at_once(
    machine: Machine, policy: dict[str, Any], message: str
) -> None:
    with pytest.raises(LeaseError, match=message):
        machine.checked(**policy)


def test_no_device_at_all(machine: Machine) -> None:
    machine.has(status="none", reason="no nvidia device on the PCI bus")
    message = r"devices.count is 1; found: no nvidia device on the PCI bus"
    with pytest.raises(LeaseError, match=message):
        machine.checked()


def test_an_unusable_folder_has_a_remedy(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.folder.write_text("a file")
    message = r"the lease folder .* cannot be used: Not a directory \(as root: install -d -m 1777"
    with pytest.raises(LeaseError, match=message):
        machine.checked()


def test_folder_and_files_are_for_everybody(machine: Machine) -> None:
    before = os.umask(0o077)
    try:
        with machine.taken():
            assert machine.folder.stat().st_mode & 0o7777 == 0o1777
            assert {path.stat().st_mode & 0o777 for path in machine.folder.iterdir()} == {0o666}
    finally:
        os.umask(before)


# Two runs


def test_waiting_is_reported_and_ends_with_the_earlier_lease(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.has(device(0))
    first = machine.checked("run-1")
    second, events = machine.leases("run-2", wait_s=60)
    second.check()
    first.take("pytest")
    monkeypatch.setattr("ci.agent.lease.time.sleep", lambda _: first.release())
    second.take("pytest")
    assert [event.event for event in events] == ["lease_waiting", "lease_taken"]
    held = r"GPU-0 is held by run run-1 \(nvidia\) of user tester since 20\d\d-"
    message = rf"pytest has waited \d+ s for devices: {held}"
    assert isinstance(events[0], LeaseWaiting)
    assert re.search(message, events[0].text)
    second.release()


def test_leases_are_taken_in_order_and_all_devices_at_once(machine: Machine) -> None:
    machine.has(device(0), device(1))
    one, two, behind = (
        machine.checked(run, count=count) for run, count in (("one", 1), ("two", 2), ("behind", 1))
    )
    one.take("pytest")
    with pytest.raises(LeaseError, match="GPU-0 is held by run one"):
        two.take("pytest")
    with pytest.raises(LeaseError, match=r"run two .* is first in the queue"):
        behind.take("pytest")
    assert (two.descriptors, behind.descriptors) == ((), ())
    two.release()  # it gives its place in the line up
    behind.take("pytest")
    assert behind.variables() == {"CUDA_VISIBLE_DEVICES": "GPU-1"}
    behind.release()
    one.release()


# Siblings


def leased_device(machine: Machine, run: str, **changes: Any) -> str:
    with machine.taken(run, **changes) as leases:
        return leases.variables()["CUDA_VISIBLE_DEVICES"]


def test_devices_are_leased_by_turns(machine: Machine) -> None:
    machine.has(device(0), device(1))
    assert [leased_device(machine, f"run-{n}") for n in range(4)] == ["GPU-0", "GPU-1"] * 2
    # Runs that need both, or one by its name, starve no one and count like the others.
    assert leased_device(machine, "both", count=2) == "GPU-0,GPU-1"
    assert leased_device(machine, "named", uuids=("GPU-0",)) == "GPU-0"
    assert leased_device(machine, "next") == "GPU-1"
    # One that is held is no reason to wait for it.
    with machine.taken("long", uuids=("GPU-0",)):
        assert [leased_device(machine, f"other-{n}") for n in range(2)] == ["GPU-1"] * 2
    machine.has(device(1))
    assert [leased_device(machine, f"alone-{n}") for n in range(2)] == ["GPU-1"] * 2


def test_the_stages_of_a_run_keep_their_device(machine: Machine) -> None:
    leases = machine.checked()
    for _ in range(2):
        leases.take("pytest")
        leases.release()
    assert [record["uuid"] for record in leases.records] == ["GPU-0", "GPU-0"]


# Eight processes, four devices, two hundred leases


@pytest.mark.usefixtures("machine")
def test_competing_processes_never_share_a_device(tmp_path: Path) -> None:
    """Some are killed while they hold devices or wait in the line; their devices come free."""
    with ThreadPoolExecutor(8) as pool:
        deaths = sum(pool.map(lambda name: competed(tmp_path, name), range(8)))
    taken = [line.split() for line in (tmp_path / "taken").read_text().splitlines()]
    devices = {uuid for _, uuids in taken for uuid in uuids.split(",")}
    assert len(taken) >= competitor.LEASES
    assert deaths > 0
    assert len(devices) == 4
    assert {name for name, _ in taken} == set("01234567"), "a process starved"
    assert any("," in uuids for _, uuids in taken)


def competed(folder: Path, name: int) -> int:
    """Compete until the last lease; return how often the process was killed and started again."""
    life = 0
    for life in count():
        command = [sys.executable, competitor.__file__, str(folder), f"{name}-{life}"]
        paths = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
        done = subprocess.run(command, env=paths, capture_output=True, text=True, check=False)
        if done.returncode != -signal.SIGKILL:
            assert (done.returncode, done.stderr) == (0, "")
            break
    return life


# The agent


def test_stages_with_a_device_hold_it_and_the_others_do_not(machine: Machine, job: Job) -> None:
    show = "import os; print(os.environ.get('CUDA_VISIBLE_DEVICES'))"
    job.devices = machine.policy()
    job.python("install", show)
    job.python("pytest", show, device=True)
    job.python("benchmark", show, device=True)
    job.python("report", show)
    assert job.run() == 0
    names = ("install", "pytest", "benchmark", "report")
    assert [job.log(name).strip() for name in names] == ["None", "GPU-0", "GPU-0", "None"]
    kinds = [event["event"] for event in job.events()]
    stage = ["stage_started", "stage_finished"]
    device = ["lease_taken", *stage, *stage, "lease_released"]
    assert kinds == ["run_started", *stage, *device, *stage, "run_finished"]
    environment = job.environment()
    assert environment["detection"] == {"status": "devices", "reason": None}
    (leased,) = environment["devices"]
    assert (leased["uuid"], leased["after"]["health"]) == ("GPU-0", "healthy")


def test_the_project_is_imported_as_in_the_tests(
    machine: Machine, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its import may open a device: for its libraries too, that is one that the run has leased."""
    site = machine.folder.parent / "site"
    metadata, package = site / "tiny-1.dist-info", site / "tiny"
    metadata.mkdir(parents=True)
    package.mkdir()
    (metadata / "METADATA").write_text("Name: tiny\nVersion: 1\n")
    (metadata / "RECORD").write_text("tiny/_fast.so,,\n")
    origin = {"url": job.workspace.as_uri(), "dir_info": {}}
    (metadata / "direct_url.json").write_text(json.dumps(origin))
    (package / "_fast.so").touch()
    seen, log = site / "seen", job.results / "events.jsonl"
    program = f"""
import os
released = "lease_released" in open({str(log)!r}).read()
text = f"{{os.environ.get('CUDA_VISIBLE_DEVICES')}} {{os.environ.get('OF_STAGE')}} {{released}}"
open({str(seen)!r}, "a").write(text)
"""
    (package / "__init__.py").write_text(program)
    monkeypatch.setenv("PYTHONPATH", str(site))
    job.devices = machine.policy()
    job.stage(
        "test", "true", kind=StageKind.PYTEST, device=True, environment={"OF_STAGE": "libraries"}
    )
    job.stage("report", "true")
    assert job.run() == 0
    assert seen.read_text() == "GPU-0 libraries False"


def test_a_policy_that_cannot_be_met_fails_before_the_first_stage(
    machine: Machine, job: Job
) -> None:
    job.devices = machine.policy(count=9)
    job.stage("install", "true")
    job.stage("pytest", "true", device=True)
    assert job.run() == 1
    kinds = [event["event"] for event in job.events()]
    skipped = ["stage_skipped", "stage_skipped"]
    assert kinds == ["run_started", "lease_failed", *skipped, "run_finished"]
    assert job.events("stage_skipped")[0]["reason"].startswith("not run: devices.count is 9; found")


def test_a_job_without_such_stages_asks_for_nothing(machine: Machine, job: Job) -> None:
    job.devices = machine.policy(probe=("false",))
    job.stage("install", "true")
    assert job.run() == 0
    assert not machine.folder.exists()


def test_an_interrupt_ends_the_waiting(machine: Machine, job: Job) -> None:
    machine.has(device(0))
    job.devices = machine.policy(wait_s=3600)
    job.stage("pytest", "true", device=True)
    with machine.taken(), job.start() as process:
        for event in printed_events(process):
            if event["event"] == "lease_waiting":
                process.send_signal(signal.SIGTERM)
    assert process.returncode == 130
    assert job.events("stage_skipped")[0]["reason"] == "not run: interrupted"


@pytest.mark.parametrize("supervised", [True, False])
def test_a_killed_agent_keeps_its_lease_until_its_stage_has_ended(
    machine: Machine, job: Job, supervised: bool
) -> None:
    """Its supervisor ends the stage; if that was killed too, the next one in the queue does."""
    machine.has(device(0))
    job.devices = machine.policy()
    os.mkfifo(job.workspace / "let-go")
    # It ignores SIGTERM as long as the test has not seen that the lease is held.
    program = """
import os, signal
signal.signal(signal.SIGTERM, lambda *_: None)
print(os.getpid(), os.getppid(), flush=True)
open("let-go").read()
"""
    job.python("pytest", program, device=True)
    with job.start() as process:
        for event in printed_events(process):
            if event["event"] == "output":
                break
        stage, supervisor = map(int, event["text"].split())
        if not supervised:
            os.kill(supervisor, signal.SIGSTOP)
        process.kill()
    if not supervised:
        os.kill(supervisor, signal.SIGKILL)
        wait_for_end(supervisor)
    second = machine.checked("run-2")
    left = r"GPU-0 is held by leftover processes of run run-1 \(cpu\) of user tester since .* died"
    with pytest.raises(LeaseError, match=left):
        second.take("pytest")
    second.release()
    if supervised:
        (job.workspace / "let-go").write_text("")
        wait_for_end(supervisor)
    else:
        impatient = LockFolder(str(machine.folder), {}, grace_s=0)
        assert impatient.holder("GPU-0") is not None  # asked to end, as before
        assert impatient.holder("GPU-0") is not None  # killed
    wait_for_end(stage)
    second.take("pytest")
    assert second.variables() == {"CUDA_VISIBLE_DEVICES": "GPU-0"}
    second.release()
