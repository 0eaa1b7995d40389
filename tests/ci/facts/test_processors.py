"""Runs on processors that differ: what they prove, and what a contract keeps of each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from ci import cli
from ci.facts.contract import load_contract
from ci.facts.sentences import on_rows
from ci.model.outcomes import OperatorTest
from ci.model.results import PlatformResult
from ci.model.verdicts import Product
from tests.ci.workplace import CONFIG, Workplace, new_workplace

SUITE = """\
import pytest

FEATURES = {features}
SKIPS = {skips}


@pytest.mark.parametrize("test", ["mm.out-float16-cpu-slot8", "add.out-float32-cpu-slot8"])
def test_overload(test, record_property):
    name, dtype = test.split("-")[:2]
    recorded = dict(overload=name, dtype=dtype, slot=8, device="cpu", platform="cpu", active=True)
    if FEATURES is not None:
        recorded["processor"] = dict(torch="AVX2", onednn="AVX2", features=FEATURES)
    if name in SKIPS:
        recorded |= dict(reason="instruction set missing", needs="avx512_fp16 or avx_ne_convert")
    else:
        recorded |= dict(executed=1, ran_device="cpu", ran_slot=8)
    for key, value in recorded.items():
        record_property(key, value)
    if name in SKIPS:
        pytest.skip("instruction set missing: fp16 path needs the cpu support avx512_fp16")
"""
TEST = OperatorTest("tests/test_a.py::test_overload", 8, "mm.out", "float16")
NEEDS = "avx512_fp16 or avx_ne_convert"
SMALL, LARGE = ["avx2"], ["avx2", "avx512_fp16"]


@pytest.fixture
def work(tmp_path: Path) -> Workplace:
    work = new_workplace(tmp_path)
    work.write("ci.yaml", f"{CONFIG}contracts: contracts\n")
    return work


def run(work: Workplace, features: Sequence[str] | None, *, skips: bool) -> PlatformResult:
    """Run the suite on a processor with these features, and let one test skip for lack of some."""
    text = SUITE.replace("{features}", repr(features))
    work.write("tests/test_a.py", text.replace("{skips}", repr(["mm.out"] if skips else [])))
    return work.only()


def write_contract(work: Workplace, *options: str) -> str | None:
    """Write the contract from the latest run; return what the test needs by it."""
    config = work.folder / "source" / "ci.yaml"
    arguments = ["contract", "cpu", "--config", str(config), "--results", str(work.results)]
    assert cli.main([*arguments, *options]) == 0
    path = work.folder / "source" / "contracts" / "cpu.yaml"
    return load_contract(path).suite.operators[TEST].needs


def test_a_contract_learns_of_smaller_processors_and_holds_on_larger_ones(
    work: Workplace, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(work, LARGE, skips=False).verdict.product is Product.PASSED
    assert write_contract(work) is None
    first = run(work, SMALL, skips=True)  # the contract does not have this skip yet
    assert first.verdict.product is Product.FAILED
    assert "float16 of mm.out (slot 8; passed -> instruction set missing)" in str(first.notes)
    assert write_contract(work) == NEEDS
    said = f"outcomes that depend on the processor: passed only with {NEEDS}\n"
    assert said in capsys.readouterr().out
    again = run(work, SMALL, skips=True)
    assert again.verdict.product is Product.PASSED
    assert on_rows.instructions_missing(1, [NEEDS]) in again.findings
    assert not [it for it in again.findings if it.code == on_rows.contract_differs.code]
    assert again.environment["processor"] == {
        "torch": "AVX2",
        "onednn": "AVX2",
        "features": SMALL,
    }
    assert run(work, LARGE, skips=False).verdict.product is Product.PASSED
    assert write_contract(work) == NEEDS  # the large one says nothing against it


@pytest.mark.parametrize("features", [LARGE, None], ids=["has them", "does not say"])
def test_a_skip_without_proof_breaks_the_contract(
    work: Workplace, features: list[str] | None
) -> None:
    run(work, SMALL, skips=True)
    assert write_contract(work) == NEEDS
    result = run(work, features, skips=True)
    assert result.verdict.product is Product.FAILED
    assert "contract: 1 test pass -> skip: float16 of mm.out" in str(result.notes)


def test_a_pass_on_a_processor_that_lacks_features_adds_no_note(work: Workplace) -> None:
    run(work, SMALL, skips=True)
    write_contract(work)
    result = run(work, SMALL, skips=False)
    assert result.verdict.product is Product.PASSED
    assert not [note for note in result.notes if note.startswith("contract")]


def test_runs_of_two_processors_compare_with_their_contract(
    work: Workplace, capsys: pytest.CaptureFixture[str]
) -> None:
    run(work, SMALL, skips=True)
    write_contract(work)
    capsys.readouterr()
    contract = str(work.folder / "source" / "contracts" / "cpu.yaml")
    results = ["--results", str(work.results)]
    assert cli.main(["compare", contract, "latest", *results, "--fail-on", "regression"]) == 0
    run(work, LARGE, skips=True)
    assert cli.main(["compare", contract, "latest", *results, "--fail-on", "regression"]) == 4
    assert "pass -> skip" in capsys.readouterr().out


def test_a_contract_can_be_based_on_another(
    work: Workplace, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(work, SMALL, skips=True)
    write_contract(work)
    base = tmp_path / "base.yaml"
    path = work.folder / "source" / "contracts" / "cpu.yaml"
    path.rename(base)
    run(work, LARGE, skips=False)
    assert write_contract(work, "--base", str(base)) == NEEDS  # as the base says
    assert "base: ../../base.yaml\n" in path.read_text()
    assert "add.out" not in path.read_text()
    assert write_contract(work) == NEEDS  # and stays so
    assert "base: ../../base.yaml\n" in path.read_text()
    capsys.readouterr()
    base.write_text(
        base.read_text().replace("platform: cpu", "base: source/contracts/cpu.yaml\nplatform: cpu")
    )
    with pytest.raises(AssertionError):
        write_contract(work, "--base", str(base))
    assert "got a chain of more than 4 bases" in capsys.readouterr().err
    path.write_text(path.read_text().replace("base: ../../base.yaml\n", ""))
    with pytest.raises(AssertionError):
        write_contract(work, "--base", str(base))
    assert (
        f"--base: got {base}, which is based on the contract to write, {path}\n"
        in capsys.readouterr().err
    )
