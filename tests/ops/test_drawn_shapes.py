"""Hand-written implementations with drawn shapes, strides and dtypes of one to five dimensions.

One seed draws the same calls on every machine. A failure prints the smallest failing call, and the
command that repeats it. Other seeds draw others: ``INFINI_OPS_SEED=7 python -m pytest ...``.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from drawn_examples import DRAWN, Draw
from evidence import is_absent
from hypothesis import HealthCheck, given, note, seed, settings
from hypothesis import strategies as st
from installed import hand_written_slots
from native_examples import OPERATORS
from reasons import SkipReason, skip
from test_native_ops import Case, Run, unselected_slots_of

SEED = int(os.environ.get("INFINI_OPS_SEED", "0"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    device = metafunc.config.getoption("device")
    device = "cpu" if is_absent(device) else device
    cases = [
        Case(name, slot)
        for name in DRAWN
        for slot in hand_written_slots(name, device) + unselected_slots_of(name, device)
    ]
    ids = [f"{case.name}-slot{case.slot}" for case in cases]
    metafunc.parametrize(("case", "device"), [(each, device) for each in cases], ids=ids)


def test_drawn(
    case: Case,
    device: str,
    request: pytest.FixtureRequest,
    record_property: Callable[[str, object], None],
) -> None:
    record_property("seed", SEED)
    runs: list[Run] = []

    # Without a database and a time limit, a seed determines all calls.
    @seed(SEED)
    @settings(
        max_examples=40,
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(st.data())
    def check(data: st.DataObject) -> None:
        dtype = data.draw(st.sampled_from(OPERATORS[case.name].dtypes), label="dtype")
        example = DRAWN[case.name](Draw(data.draw, dtype))
        note(f"repeat it: INFINI_OPS_SEED={SEED} python -m pytest '{request.node.nodeid}'")
        for name, value in (example.arguments | example.outs).items():
            if hasattr(value, "stride"):
                note(f"{name}: {value.dtype} {tuple(value.shape)}, strides {value.stride()}")
        run = Run(Case(case.name, case.slot, dtype), device)
        runs.append(run)
        run.execute(example)
        assert not run.failures, run.failures[0]

    check()
    if not any(run.executed for run in runs):
        assert not any(run.case.must_take(run.refusal) for run in runs), runs[0].refusal
        skip(SkipReason.DTYPE_UNSUPPORTED, runs[0].refusal)
