"""Stages without a network: what the agent asks for, waits for and verifies."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ci.agent.network import NetworkError, active_interfaces, wait_until_isolated
from ci.protocol.events import Event, NetworkWaiting
from ci.protocol.stage_kind import StageKind
from tests.ci.agent_job import Job, printed_events, stage_plan

connected = pytest.mark.skipif(not active_interfaces(), reason="this machine has no network")
SHOW = "import json, socket; print(json.dumps([name for _, name in socket.if_nameindex()]))"


@connected
def test_a_stage_does_not_run_while_a_network_remains(job: Job) -> None:
    job.stage("install", "true")
    job.stage("pytest", "true", kind=StageKind.PYTEST, isolated=True, timeout_s=0.2)
    job.stage("after", "true", isolated=True)
    assert job.run() == 1
    assert [event["event"] for event in job.events()] == [
        *("run_started", "stage_started", "stage_finished"),
        *("network_waiting", "network_remained", "stage_skipped", "stage_skipped"),
        "run_finished",
    ]
    [asked] = job.events("network_waiting")
    assert asked["interfaces"]
    assert "lo" not in asked["interfaces"]
    [remained] = job.events("network_remained")
    assert remained["reason"].startswith("stage pytest needs a container without a network; ")
    assert remained["reason"].endswith("(python -m ci run --resume run-1)")
    assert {event["stage"] for event in job.events("stage_skipped")} == {"pytest", "after"}


@connected
def test_it_asks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller may have died, or its request may have failed."""
    monkeypatch.setattr("ci.agent.network.ASK_AGAIN_S", 0.05)
    stage = stage_plan("tests", "true", timeout_s=0.3, isolated=True)
    events: list[Event] = []
    with pytest.raises(NetworkError, match="remained for 0 s, as no caller disconnected it"):
        wait_until_isolated(stage, "run-1", events.append, lambda: False)
    assert len(events) > 1
    texts = [event.text for event in events if isinstance(event, NetworkWaiting)]
    assert texts[0] == ""
    assert texts[1].startswith("tests has waited 0 s for the removal of ")


@connected
def test_an_interrupt_ends_the_wait(job: Job) -> None:
    job.stage("pytest", "true", isolated=True, timeout_s=3600)
    with job.start() as process:
        for event in printed_events(process):
            if event["event"] == "network_waiting":
                process.send_signal(signal.SIGTERM)
    assert process.returncode == 130
    [skipped] = job.events("stage_skipped")
    assert skipped["reason"] == "not run: interrupted"
    assert job.events("network_removed") == []


def test_a_stage_runs_where_there_is_no_network(job: Job, tmp_path: Path) -> None:
    inside = ["unshare", "--net"]
    if subprocess.run([*inside, "true"], capture_output=True, check=False).returncode:
        pytest.skip("not allowed to make a network namespace")
    wrapper = tmp_path / "python"
    wrapper.write_text(f'#!/bin/sh\nexec {" ".join(inside)} {sys.executable} "$@"\n')
    wrapper.chmod(0o755)
    job.stage("tests", sys.executable, "-c", SHOW, isolated=True)
    job.interpreter = str(wrapper)
    assert job.run() == 0
    [removed] = job.events("network_removed")
    assert removed["waited_s"] < job.finished("tests")["monotonic"]
    assert job.events("network_waiting") == []
    names = json.loads(job.output())
    # Some kernels give every namespace interfaces for tunnels, which are down.
    assert "lo" in names
    assert "eth0" not in names
