"""A green suite that ran on another device is distinguished from one on the requested device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ci.facts.operators import mismatches
from ci.facts.pytest_log import parse_log
from tests.ci.operator_log import FINISH, SIMULATED, compiled_only, lines
from tests.ci.review import check_golden

GOLDEN = Path(__file__).parent / "golden" / "backend.txt"


def found(
    *tests: list[str], platform: str = "nvidia", device: str = "cuda", simulated: bool = False
) -> tuple[str, ...]:
    log = parse_log([line for test in tests for line in test] + [FINISH])
    return mismatches(log, platform=platform, torch_device=device, simulated=simulated)


def on_ascend(*tests: list[str], simulated: bool) -> tuple[str, ...]:
    return found(*tests, platform="ascend", device="npu", simulated=simulated)


def on_metax(*tests: list[str]) -> tuple[str, ...]:
    return found(*tests, platform="metax", device="cuda", simulated=True)


def cuda(name: str, outcome: str = "passed", **changes: Any) -> list[str]:
    usual = {"device": "cuda", "platform": "nvidia", "ran_platform": "nvidia"}
    return lines(name, outcome, **{**usual, **changes})


def skipped(reason: str, **more: Any) -> dict[str, Any]:
    return {"outcome": "skipped", "executed": 0, "reason": reason, **more}


ADD, ADD_SIMULATED = cuda("add.out"), lines("add.out", **SIMULATED)
ADD_REAL = lines("add.out", device="npu", platform="ascend", ran_platform="ascend")
MUL_SIMULATED = lines("mul.out", **SIMULATED, **skipped("no sample"))
OF_THE_CPU = (
    *(lines("add.out"), lines("mul.out", ran_slot=0)),
    lines("sub.out", **skipped("no sample")),
    lines("div.out", **skipped("slot not active", ran_device=None)),
)
UNKNOWN = {"ran_device": None, "ran_platform": None}

FOUND: dict[str, tuple[str, ...]] = {
    "all is well": found(ADD, cuda("mul.out", **skipped("no sample"))),
    "unknown hardware": found(cuda("add.out", ran_platform=None)),
    "ran on the CPU": found(ADD, cuda("mul.out", ran_device="cpu")),
    "recorded no device": found(ADD, cuda("mul.out", ran_device=None)),
    "ran on another platform": found(ADD, cuda("mul.out", ran_platform="iluvatar")),
    "ran on another slot": found(ADD, cuda("mul.out", ran_slot=0)),
    "made for another platform": found(ADD, cuda("mul.out", platform="metax")),
    "failed, without a device": found(ADD, cuda("mul.out", "failed", **UNKNOWN)),
    "failed elsewhere": found(ADD, cuda("mul.out", "failed", ran_device="cpu", ran_platform=None)),
    "a device given by hand": found(
        cuda("add.out", device="cpu", ran_device="cpu", ran_platform=None)
    ),
    # Whatever else is wrong with the tests of another platform follows from that.
    "a suite of another platform": on_ascend(*OF_THE_CPU, simulated=False),
    "a suite of another platform, simulated": on_ascend(*OF_THE_CPU, simulated=True),
    "two causes": found(lines("add.out"), cuda("mul.out", ran_device="cpu", ran_platform="cpu")),
    "a simulated device": on_ascend(ADD_SIMULATED, MUL_SIMULATED, simulated=True),
    "a real device": on_ascend(ADD_REAL, simulated=False),
    "a simulated device for a real one": on_ascend(ADD_SIMULATED, MUL_SIMULATED, simulated=False),
    "a real device for a simulated one": on_ascend(ADD_REAL, simulated=True),
    "both kinds for a real one": on_ascend(ADD_REAL, MUL_SIMULATED, simulated=False),
    "both kinds for a simulated one": on_ascend(ADD_REAL, MUL_SIMULATED, simulated=True),
    "no test for a simulated one": on_ascend(simulated=True),
    "compiled only": on_metax(compiled_only("add.out"), compiled_only("mul.out")),
    "compiled only, without a test": on_metax(),
    **{
        f"compiled only, {name} {value}": on_metax(
            compiled_only("add.out"), compiled_only("mul.out", **{name: value})
        )
        for name, value in (
            *(("executed", 1), ("reason", "no sample"), ("reason", "slot not active")),
            *(("simulated", None), ("platform", "nvidia"), ("device", "cpu")),
        )
    },
    "no device for a simulated one": on_ascend(
        ADD_SIMULATED, compiled_only("mul.out", **SIMULATED), simulated=True
    ),
    "no device for a real one": on_ascend(
        ADD_REAL,
        compiled_only("mul.out", device="npu", platform="ascend", simulated=None),
        simulated=False,
    ),
    "a slot that is not there": found(ADD, cuda("mul.out", **skipped("slot not active"))),
    "many": found(*(cuda(f"op{n}.out", ran_device="cpu") for n in range(1200))),
    "nothing is executed": found(cuda("add.out", **skipped("no sample"))),
    "nothing is executed, and a test failed": found(cuda("add.out", "failed", executed=None)),
    "no operator test": found(),
}


def test_golden_mismatches() -> None:
    texts = {name: "\n".join(it) or "as requested" for name, it in FOUND.items()}
    check_golden(GOLDEN, texts)


@pytest.mark.parametrize(
    ("test", "changes"),
    [
        ([], {"platform": "ascend", "torch_device": "npu", "simulated": True}),
        (
            cuda("add.out", **skipped("no sample")),
            {"platform": "nvidia", "torch_device": "cuda", "simulated": False},
        ),
    ],
)
def test_an_unfinished_suite_may_still_execute_a_test(
    test: list[str], changes: dict[str, Any]
) -> None:
    assert mismatches(parse_log(test), **changes) == ()
