"""Containers that need devices: files of the engine's machine, and leases that they share."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ci.errors import InfrastructureError
from ci.model.plan import DevicePlan, Exposure, RunPlan
from ci.model.platforms import DeviceFacts
from ci.protocol.events import Event
from tests.e2e.benches import Bench
from tests.e2e.plans import DOCKERFILE, stage

pytestmark = pytest.mark.docker

DEVICE = {"uuid": "D-1", "index": 0, "health": "healthy", "memory_total": 9, "memory_used": 0}
ANSWER = json.dumps({"status": "devices", "devices": [DEVICE]})
# In the place of the Python that looks for devices in an image.
WITH_PROBE = f"""{DOCKERFILE}
RUN mkdir -p /opt/devices/bin && cd /opt/devices && echo '{ANSWER}' > answer \\
    && printf '#!/bin/sh\\ncat /opt/devices/answer\\n' > bin/python && chmod +x bin/python
"""
FACTS = DeviceFacts(
    manufacturer="nvidia",
    files=("/dev/fu[l]l", "/dev/there-is-none*"),
    mounts=("/usr/there-is-none",),
    cdi="vendor.invalid/device",
    visible="VISIBLE_DEVICES",
    visible_by="uuid",
    management="vendor-smi",
    resource="vendor.invalid/device",
)


class Reacting:
    """Reacts to the first event of a name."""

    def __init__(self, **reactions: Callable[[], object]) -> None:
        self.reactions = reactions
        self.events: list[str] = []

    def event(self, event: Event) -> None:
        self.events.append(event.event)
        self.reactions.pop(event.event, lambda: None)()


def plan_with_device(bench: Bench, folder: Path, command: str, **changes: Any) -> RunPlan:
    plan = bench.plan(stage("pytest", "sh", "-c", command), dockerfile=WITH_PROBE)
    devices = DevicePlan(
        facts=FACTS,
        count=1,
        uuids=(),
        exposure=Exposure.FILES,
        privileged=False,
        wait_s=60.0,
        busy_memory=0.1,
        folder=str(folder),
    )
    stages = tuple(replace(one, device=True) for one in plan.stages)
    return replace(plan, stages=stages, devices=replace(devices, **changes))


def test_two_containers_never_have_a_device_at_the_same_time(
    docker_bench: Bench, tmp_path: Path
) -> None:
    leases = tmp_path / "leases"
    leases.mkdir()
    check_leases(docker_bench, leases)


def check_leases(bench: Bench, leases: Path) -> None:
    """Run two containers that need the same device; ``leases`` belongs to the engine's user."""
    os.mkfifo(leases / "go")
    (leases / "go").chmod(0o666)
    holding = "test -c /dev/full && echo $VISIBLE_DEVICES && cat {go} && touch {ended}".format(
        go=leases / "go", ended=leases / "first-has-ended"
    )
    first = plan_with_device(bench, leases, holding)
    second = plan_with_device(bench, leases, f"test -e {leases}/first-has-ended")
    second = replace(
        second,
        results=bench.folder / "results-2",
        container=replace(
            second.container, name=f"{second.container.name}-2", labels={"infini-ci.run": "2nd"}
        ),
    )
    image = bench.engine.prepare(first, bench.observer)
    waiting = Reacting(lease_waiting=lambda: (leases / "go").write_text(""))
    with ThreadPoolExecutor(1) as pool:
        others: list[object] = []

        def begin_second() -> None:
            others.append(pool.submit(bench.engine.execute, second, image, waiting))

        facts = bench.engine.execute(first, image, Reacting(lease_taken=begin_second))
    assert facts.exit_code == 0
    assert (first.results / "pytest.log").read_text() == "D-1\n"
    assert [name for name in waiting.events if name.startswith("lease")] == [
        "lease_waiting",
        "lease_taken",
        "lease_released",
    ]
    assert (second.results / "pytest.log").read_text() == ""
    [leased] = json.loads((second.results / "environment.json").read_text())["devices"]
    assert (leased["uuid"], leased["after"]["health"]) == ("D-1", "healthy")
    assert leases.stat().st_mode & 0o7777 == 0o1777


@pytest.mark.parametrize(
    ("change", "message", "remedy"),
    [
        (
            {"facts": replace(FACTS, files=("/dev/there-is-none*", "/dev/full"))},
            r"the engine's machine has no device file /dev/there-is-none\* of CPU",
            r"Install the vendor's driver there \(vendor-smi must list devices\)",
        ),
        (
            {"exposure": Exposure.CDI},
            "the engine cannot expose CPU devices by cdi: ",
            "CDI needs Docker 25 or later with CDI enabled",
        ),
    ],
    ids=["no driver", "no CDI"],
)
def test_a_machine_without_the_devices_says_what_it_lacks(
    docker_bench: Bench, tmp_path: Path, change: dict[str, Any], message: str, remedy: str
) -> None:
    plan = plan_with_device(docker_bench, tmp_path / "leases", "true", **change)
    with pytest.raises(InfrastructureError, match=message) as error:
        docker_bench.run(plan)
    assert error.match(message)
    assert remedy.replace("\\", "") in str(error.value.remedy)
