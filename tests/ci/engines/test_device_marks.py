"""Devices that are set aside: what leases and `doctor` make of their marks, and how they end."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ci import cli
from ci.agent.bad_devices import DeviceMark, read_mark, write_mark
from ci.agent.lease import Detection
from ci.agent.locks import lock_name
from ci.commands import doctor
from ci.engines.checks import Severity
from ci.engines.device_marks import clear_device, ends_of_marks, has_lease_file, set_aside
from ci.engines.devices import judge_probe
from ci.errors import ExitCode, UsageError
from ci.model.plan import DevicePlan
from tests.ci.made_plans import device_plan

UUID = "GPU-0/mig"  # its file has another name
WEEK_S = 7 * 24 * 3600.0


def file_of(folder: Path) -> Path:
    [path] = folder.glob("*.bad.json")
    return path


def test_a_mark_is_read_back_and_ends(tmp_path: Path) -> None:
    assert read_mark(tmp_path, UUID) is None
    mark = set_aside(tmp_path, UUID, "it hung\x1b[31m " + "x" * 1000, WEEK_S)
    assert read_mark(tmp_path, UUID) == mark
    assert mark.is_valid
    assert str(mark).startswith("is set aside until 20")
    assert "\x1b" not in mark.reason
    assert file_of(tmp_path).stat().st_mode & 0o777 == 0o666
    clear_device(tmp_path, UUID)
    ended = read_mark(tmp_path, UUID)
    assert ended
    assert not ended.is_valid
    assert mark.since <= ends_of_marks(tmp_path, [UUID, "other"])[UUID] <= time.time()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"[" * 4000,
        b'{"uuid": "GPU-0/mig", "reason": 1, "since": 1, "until": 2e9}',
        b'{"uuid": "GPU-0/mig", "reason": "", "since": 1, "until": NaN}',
        b'{"uuid": "GPU-0/mig", "reason": "", "since": 1, "until": 1e300}',
        b'{"uuid": "GPU-1", "reason": "", "since": 1, "until": 2e9}',
    ],
)
def test_a_damaged_mark_is_none(tmp_path: Path, content: bytes) -> None:
    set_aside(tmp_path, UUID, "it hung", WEEK_S)
    file_of(tmp_path).write_bytes(content)
    assert read_mark(tmp_path, UUID) is None
    with pytest.raises(UsageError, match=r"got 'GPU-0/mig', expected a device that is set aside"):
        clear_device(tmp_path, UUID)


def test_a_mark_that_is_no_file_blocks_nothing(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / f"{lock_name(UUID)}.bad.json")
    assert read_mark(tmp_path, UUID) is None


def test_only_leased_devices_are_of_this_machine(tmp_path: Path) -> None:
    assert not has_lease_file(tmp_path, UUID)
    (tmp_path / f"{lock_name(UUID)}.lock").touch()
    assert has_lease_file(tmp_path, UUID)


def device(index: int) -> dict[str, Any]:
    facts = {"index": index, "uuid": f"GPU-{index}", "health": "healthy"}
    return {**facts, "memory_used": 0, "memory_total": 1 << 30}


@pytest.fixture
def devices(tmp_path: Path) -> DevicePlan:
    plan = device_plan(tmp_path, "nvidia").devices
    assert plan
    return plan


def test_doctor_shows_it(devices: DevicePlan, tmp_path: Path) -> None:
    devices = replace(devices, folder=str(tmp_path))
    probe = Detection("devices", None, (device(0), device(1)))
    assert judge_probe("devices", devices, probe, {}).level is Severity.OK
    set_aside(tmp_path, "GPU-0", "it hung", WEEK_S)
    found = judge_probe("devices", devices, probe, {})
    assert found.found.startswith("GPU-0 is set aside until ")
    assert found.found.endswith(": it hung, GPU-1 free")
    set_aside(tmp_path, "GPU-1", "it hung", WEEK_S)
    assert judge_probe("devices", devices, probe, {}).level is Severity.WARNING


def test_doctor_clears_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "LEASES", str(tmp_path))
    write_mark(tmp_path, DeviceMark("GPU-0", "it hung", 1.0, time.time() + WEEK_S))
    assert cli.main(["doctor", "--clear-device", "GPU-1"]) == ExitCode.USAGE
    assert "got 'GPU-1', expected a device that is set aside\nName one of them: GPU-0." in (
        capsys.readouterr().err.replace("\n  ", "\n")
    )
    assert cli.main(["doctor", "--clear-device", "GPU-0"]) == ExitCode.PASSED
    assert capsys.readouterr().out == "GPU-0 may be used again\n"
    assert cli.main(["doctor", "--clear-device", "GPU-0"]) == ExitCode.USAGE
    assert "None is set aside." in capsys.readouterr().err
