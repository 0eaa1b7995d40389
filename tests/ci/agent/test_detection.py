"""The probe's answers as the agent reads them, and the probe where there is nothing to find."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from ci.agent.lease import detect
from ci.engines import devices

ENVIRONMENT = dict(os.environ)


def python(program: str) -> list[str]:
    return [sys.executable, "-c", program]


def test_what_a_vendor_s_library_prints_before_the_answer_is_left_out() -> None:
    facts = {"uuid": "GPU-1", "index": 0, "health": "healthy", "memory_used": None}
    answer = {"status": "devices", "devices": [facts]}
    found = detect(
        python(f"print('driver says hello'); print({json.dumps(answer)!r})"), ENVIRONMENT
    )
    assert (found.status, found.reason) == ("devices", None)
    assert found.device("GPU-1") == facts
    assert found.device("GPU-2")["health"] == "unknown"


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("import os; os.abort()", "the probe was killed by SIGABRT"),
        ("import sys; sys.exit('no such card')", "the probe ended with exit code 1: no such card"),
        ("print('hello')", r"the probe did not answer in JSON: 'hello\n'"),
        ("print('[]')", r"the probe did not answer in JSON: '[]\n'"),
        ("print('{}')", r"the probe did not answer in JSON: '{}\n'"),
        ("", "the probe did not answer in JSON: ''"),
    ],
)
def test_any_error_means_unknown(program: str, reason: str) -> None:
    found = detect(python(program), ENVIRONMENT)
    assert (found.status, found.reason, found.devices) == ("unknown", reason, ())


def test_a_missing_probe_is_unknown() -> None:
    found = detect(["/opt/devices/bin/no-python"], ENVIRONMENT)
    assert found.reason == "/opt/devices/bin/no-python: No such file or directory"


def test_a_driver_that_hangs_is_unknown(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "never")
    found = detect(["cat", str(tmp_path / "never")], ENVIRONMENT, timeout_s=0.01)
    assert (found.status, found.reason) == ("unknown", "the probe did not answer within 0 s")


def test_the_probe_says_unknown_where_gpustack_runtime_is_missing() -> None:
    found = detect([sys.executable, "-S", str(devices.PROBE), "nvidia"], ENVIRONMENT)
    assert found.status == "unknown"
    assert found.reason == (
        "gpustack-runtime cannot be imported: No module named 'gpustack_runtime'"
    )
