"""How ``nox -s machines`` judges outcomes, and which machines it cannot imitate."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ci.model.outcomes import (
    INSTRUCTION_SET,
    OperatorRecord,
    Outcome,
    Processor,
    PytestLog,
    TestOutcome,
)
from ci.util.process import run
from tools.machines.__main__ import (
    RowResult,
    compare_outcomes,
    exit_code,
    table,
    without_unknown,
)
from tools.machines.rows import NotAvailableError, Row, RunContext, rows

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


BASELINE = {"t::a": outcome("t::a"), "t::b": outcome("t::b")}


@pytest.mark.parametrize(
    ("there", "reasoned", "differences"),
    [
        ([outcome("t::a"), outcome("t::b")], 0, []),
        ([outcome("t::a")], 0, ["t::b: got not run, expected passed"]),
        ([*BASELINE.values(), outcome("t::c")], 0, ["t::c: got passed, expected not run"]),
        (
            [outcome("t::a"), outcome("t::b", Outcome.FAILED)],
            0,
            ["t::b: got failed, expected passed"],
        ),
        (
            [outcome("t::a"), outcome("t::b", Outcome.SKIPPED, "no sample")],
            0,
            ["t::b: got skipped: no sample, expected passed"],
        ),
        ([outcome("t::a"), outcome("t::b", Outcome.SKIPPED, INSTRUCTION_SET, "avx512bw")], 1, []),
        (
            [outcome("t::a"), outcome("t::b", Outcome.SKIPPED, INSTRUCTION_SET, "avx2")],
            0,
            [f"t::b: got skipped: {INSTRUCTION_SET}, expected passed"],
        ),
    ],
    ids=["alike", "vanished", "new", "fails", "skips", "lacks it", "has it and skips"],
)
def test_only_missing_instructions_explain_a_difference(
    there: list[TestOutcome], reasoned: int, differences: list[str]
) -> None:
    assert compare_outcomes(log(*there), BASELINE) == (reasoned, tuple(differences))


def test_a_run_that_does_not_record_its_processor_explains_no_difference() -> None:
    skipped = outcome("t::b", Outcome.SKIPPED, INSTRUCTION_SET, "avx512bw")
    assert compare_outcomes(log(BASELINE["t::a"], skipped, processor=None), BASELINE)[0] == 0


def test_a_toolchain_may_run_tests_that_have_no_baseline() -> None:
    """The fast selection runs other tests on it than on this machine."""
    tests = [BASELINE["t::a"], BASELINE["t::b"], outcome("t::c"), outcome("t::d", Outcome.FAILED)]
    known = without_unknown(log(*tests), BASELINE)
    differences = ("t::d: got failed, expected not run",)
    assert compare_outcomes(known, BASELINE) == (0, differences)


def result(**changes: Any) -> RowResult:
    fields = {"name": "1 core", "summary": "2 passed in 1s", "seconds": 1.0, **changes}
    return RowResult(**fields)


@pytest.mark.parametrize(
    ("row", "named", "code"),
    [
        (result(reasoned=2), (), 0),
        (result(differences=("t::a: got failed, expected passed",)), (), 1),
        (result(is_broken=True), (), 2),
        (result(seconds=None), (), 0),
        (result(seconds=None), ("1 core",), 2),
    ],
    ids=["reasoned", "different", "no result", "not available", "not available, though named"],
)
def test_exit_codes(row: RowResult, named: tuple[str, ...], code: int) -> None:
    assert exit_code([result(), row], named=named) == code


def test_a_build_that_exceeds_its_budgets_fails() -> None:
    assert exit_code([result()], excesses=["wheel_kb: got 2400"]) == 1
    assert exit_code([result(is_broken=True)], excesses=["wheel_kb: got 2400"]) == 2


def test_the_table_lists_the_differences() -> None:
    lines = list(table([result(reasoned=2, differences=("t::a: got failed, expected passed",))]))
    assert lines[2] == (
        "| 1 core | 2 passed in 1s | 2 for missing instructions, 1 without a reason | 1 |"
    )
    assert lines[-1] == "* t::a: got failed, expected passed"


def context(folder: Path, processor: dict[str, Any] | None = None, library: str = "") -> RunContext:
    """The folders of a run; a build writes its options, or ``library``, instead of a library."""

    def build(name: str, options: Sequence[str], *, build: str) -> Path:
        package = folder / name / "infini" / "ops"
        package.mkdir(parents=True)
        (package / "libinfini_ops.so").write_text(library or " ".join([build, *options]))
        return package

    return RunContext(folder=folder, site=folder, processor=processor or {}, build=build)


def row_of(name: str) -> Row:
    return next(row for row in rows() if row.name == name)


def test_the_options_of_a_toolchain_are_the_last(tmp_path: Path) -> None:
    machine = row_of("built with -O0").make(context(tmp_path))
    (package,) = tmp_path.glob("*/infini/ops")
    assert machine.environment == {"PYTHONPATH": str(package.parents[1])}
    build, option = (package / "libinfini_ops.so").read_text().split()
    assert build != "build"  # its objects are others
    compiler = option.removeprefix("-DCMAKE_CXX_COMPILER=")
    macros = run([compiler, "-O3", "-dM", "-E", "-x", "c++", "/dev/null"]).stdout
    assert "__OPTIMIZE__" not in macros


def test_a_static_library_has_the_objects_of_the_build(tmp_path: Path) -> None:
    row_of("built with static libstdc++ and libgcc").make(context(tmp_path))
    text = (tmp_path / "static" / "infini" / "ops" / "libinfini_ops.so").read_text()
    assert text.startswith("build -DCMAKE_SHARED_LINKER_FLAGS=-static-libstdc++ -static-libgcc ")


def test_a_compiler_that_links_the_shared_libstdcxx_all_the_same(tmp_path: Path) -> None:
    place = context(tmp_path, library="libstdc++.so.6")
    with pytest.raises(NotAvailableError, match="links the shared libstdc"):
        row_of("built with static libstdc++ and libgcc").make(place)


def test_a_missing_compiler_is_not_available(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotAvailableError, match=r"no clang\+\+ \(Debian: clang\)"):
        row_of("built by Clang with libstdc++").make(context(tmp_path))


def test_a_processor_cannot_imitate_a_larger_one(tmp_path: Path) -> None:
    place = context(tmp_path, AVX2.facts)
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
    place = context(tmp_path, facts)
    for row in rows():
        if row.name.startswith(("ONEDNN", "ATEN")):
            with pytest.raises(NotAvailableError, match="less than"):
                row.make(place)
