"""Lines of a per-test log, as operator tests write them."""

from __future__ import annotations

import json
from typing import Any

FUNCTION = "tests/ops/test_torch_ops.py::test_overload"
FINISH = json.dumps({"$report_type": "SessionFinish", "exitstatus": 0})


def node_id(overload: str, dtype: str = "float32", device: str = "cpu", slot: int = 8) -> str:
    return f"{FUNCTION}[{overload}-{dtype}-{device}-slot{slot}]"


def properties(overload: str = "add.out", **more: Any) -> list[list[Any]]:
    """What a test of slot 8 on the CPU records when all is well; ``None`` leaves one out."""
    device = more.get("device", "cpu")
    fields = {
        "overload": overload,
        "dtype": "float32",
        "slot": 8,
        "device": device,
        "platform": "cpu",
        "active": True,
        "executed": 2,
        "ran_device": device,
        "ran_slot": 8,
        "ran_platform": None if more.get("simulated") else "cpu",
        **more,
    }
    return [[name, value] for name, value in fields.items() if value is not None]


SIMULATED: dict[str, Any] = {"device": "npu", "platform": "ascend", "simulated": True}


def compiled_only(name: str, **more: Any) -> list[str]:
    """A test of an operator where the device is not here."""
    nothing = dict.fromkeys(("executed", "ran_device", "ran_slot", "ran_platform"))
    asked = {"device": "cuda", "platform": "metax", "simulated": True, "reason": "no device"}
    return lines(name, "skipped", **{**nothing, **asked, **more})


def lines(name: str, outcome: str = "passed", message: str = "", **more: Any) -> list[str]:
    """Setup, call and teardown; properties are known from the call on."""
    recorded = properties(name, **more)
    dtype, device = more.get("dtype", "float32"), more.get("device", "cpu")
    test = node_id(name, dtype, device, more.get("slot", 8))
    skip = ["test_torch_ops.py", 1, f"Skipped: {message}"] if outcome == "skipped" else None
    phases = [
        ("setup", "passed", []),
        ("call", outcome, recorded),
        ("teardown", "passed", recorded),
    ]
    return [
        json.dumps(
            {
                "$report_type": "TestReport",
                "nodeid": test,
                "when": when,
                "outcome": result,
                "duration": 0.1,
                "user_properties": known,
                "longrepr": skip if when == "call" else None,
            }
        )
        for when, result, known in phases
    ]
