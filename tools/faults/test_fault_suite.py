"""Every fault, on real containers: ``nox -s faults``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ci.facts.sentences import on_stages
from ci.model.verdicts import Harness, Product
from tools.faults.checking import carry_out
from tools.faults.model import Fault, Left
from tools.faults.running import FaultRun

MISSING = on_stages.no_stage_started()
WRONG = Fault(
    name="expectations that are all wrong",
    kind="none",
    files={"test_it.py": "def test_a(): pass\n"},
    product=Product.FAILED,
    harness=Harness.CRASHED,
    evidence=(MISSING,),
    shown=("something else",),
    exits=(1,),
    results="2 passed",
    kept=("no.log",),
    left=Left.CONTAINER,
)


def test_fault(fault: Fault, differences: Callable[[Fault], list[str]]) -> None:
    found = differences(fault)
    assert not found, "\n".join(found)


def test_what_is_not_as_expected_is_found(image: str, tmp_path: Path) -> None:
    run = FaultRun(tmp_path / "run", [WRONG], image)
    (run.temporary / "forgotten").touch()
    try:
        [found] = carry_out(run).values()
    finally:
        run.end()
    assert [text.partition(",")[0].partition(" not ")[0].partition(":")[0] for text in found] == [
        "after the run remains nothing",
        "temporary file forgotten",  # of the first command
        "temporary file forgotten",  # of the last one
        "exit codes (0",
        "'something else' is",
        "verdict (<Product.PASSED",
        "evidence suite-passed is",
        f"no evidence like {MISSING.text!r}",
        "exit code 0 for this row alone",
        "results '1 passed'",
        "no.log is",
    ]
