"""What ``nox -s machines`` makes of outcomes, and of machines that it cannot make."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ci.model.tests import (
    INSTRUCTION_SET,
    OperatorRecord,
    Outcome,
    Processor,
    PytestLog,
    TestOutcome,
)
from tests.machines.__main__ import RowResult, compared, exit_code, table
from tests.machines.rows import NotAvailableError, Place, rows

AVX2 = Processor(torch="AVX2", onednn="AVX2", features=frozenset({"avx2", "onednn_above_sse41"}))


def outcome(
    name: str, result: Outcome = Outcome.PASSED, reason: str | None = None, needs: str | None = None
) -> TestOutcome:
    record = OperatorRecord(overload="mm.out", needs=needs) if needs else None
    return TestOutcome(
        node_id=name, outcome=result, seconds=0.1, reason=None, skip_reason=reason, operator=record
    )


def log(*tests: TestOutcome, processor: Processor | None = AVX2) -> PytestLog:
    return PytestLog(
        tests=tests, warnings=0, exit_status=0, running=(), crashed=(), processor=processor
    )


USUAL = {"t::a": outcome("t::a"), "t::b": outcome("t::b")}


@pytest.mark.parametrize(
    ("there", "reasoned", "differences"),
    [
        ([outcome("t::a"), outcome("t::b")], 0, []),
        ([outcome("t::a")], 0, ["t::b: passed, there not run"]),
        ([*USUAL.values(), outcome("t::c")], 0, ["t::c: not run, there passed"]),
        ([outcome("t::a"), outcome("t::b", Outcome.FAILED)], 0, ["t::b: passed, there failed"]),
        (
            [outcome("t::a"), outcome("t::b", Outcome.SKIPPED, "no sample")],
            0,
            ["t::b: passed, there skipped: no sample"],
        ),
        ([outcome("t::a"), outcome("t::b", Outcome.SKIPPED, INSTRUCTION_SET, "avx512bw")], 1, []),
        (
            [outcome("t::a"), outcome("t::b", Outcome.SKIPPED, INSTRUCTION_SET, "avx2")],
            0,
            [f"t::b: passed, there skipped: {INSTRUCTION_SET}"],
        ),
    ],
    ids=["alike", "vanished", "new", "fails", "skips", "lacks it", "has it and skips"],
)
def test_only_missing_instructions_are_a_reason(
    there: list[TestOutcome], reasoned: int, differences: list[str]
) -> None:
    assert compared(log(*there), USUAL) == (reasoned, tuple(differences))


def test_a_run_that_does_not_record_its_processor_proves_no_reason() -> None:
    skipped = outcome("t::b", Outcome.SKIPPED, INSTRUCTION_SET, "avx512bw")
    assert compared(log(USUAL["t::a"], skipped, processor=None), USUAL)[0] == 0


def result(**changes: Any) -> RowResult:
    fields = {"name": "1 core", "summary": "2 passed in 1s", "seconds": 1.0, **changes}
    return RowResult(**fields)


@pytest.mark.parametrize(
    ("row", "named", "code"),
    [
        (result(reasoned=2), (), 0),
        (result(differences=("t::a: passed, there failed",)), (), 1),
        (result(is_broken=True), (), 2),
        (result(seconds=None), (), 0),
        (result(seconds=None), ("1 core",), 2),
    ],
    ids=["reasoned", "different", "no result", "not available", "not available, though named"],
)
def test_exit_codes(row: RowResult, named: tuple[str, ...], code: int) -> None:
    assert exit_code([result(), row], named=named) == code


def test_the_table_names_what_differs() -> None:
    lines = list(table([result(reasoned=2, differences=("t::a: passed, there failed",))]))
    assert lines[2] == (
        "| 1 core | 2 passed in 1s | 2 for missing instructions, 1 without a reason | 1 |"
    )
    assert lines[-1] == "* t::a: passed, there failed"


def test_a_smaller_processor_cannot_be_made_into_a_larger_one(tmp_path: Path) -> None:
    place = Place(folder=tmp_path, site=tmp_path, processor=AVX2.facts)
    limits = {row.name: row for row in rows() if "=" in row.name and "OMP" not in row.name}
    made = {}
    for name, row in limits.items():
        with suppress(NotAvailableError):
            made[name] = dict(row.make(place).processor)
    assert made == {
        "ONEDNN_MAX_CPU_ISA=SSE41": {"onednn": "SSE41"},
        "ONEDNN_MAX_CPU_ISA=AVX2": {"onednn": "AVX2"},
        "ATEN_CPU_CAPABILITY=default": {"torch": "DEFAULT"},
        "ATEN_CPU_CAPABILITY=avx2": {"torch": "AVX2"},
        "INFINI_OPS_CPU_ISA=baseline": {},
        "INFINI_OPS_CPU_ISA=avx2": {},
    }


def test_a_processor_of_another_kind_has_no_limits(tmp_path: Path) -> None:
    facts: dict[str, Any] = {"torch": "SVE256", "onednn": None, "features": []}
    place = Place(folder=tmp_path, site=tmp_path, processor=facts)
    for row in rows():
        if row.name.startswith(("ONEDNN", "ATEN")):
            with pytest.raises(NotAvailableError, match="less than"):
                row.make(place)
