"""What docs/the-library.md says of slots, skip reasons, options and files is so."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from codegen.cli import main
from codegen.slots import Slot


@pytest.fixture
def page(root: Path) -> str:
    return (root / "docs" / "the-library.md").read_text(encoding="utf-8")


def first_cells(page: str, heading: str) -> list[str]:
    """The first column of the table that begins with a heading."""
    table = page.partition(f"| {heading} |")[2].partition("\n\n")[0]
    return [line.split("|")[1].strip() for line in table.splitlines()[2:]]


def test_the_slots(page: str) -> None:
    native, torch, triton = first_cells(page, "Slot")
    assert native == "0 to 7"
    assert (int(torch), int(triton)) == (Slot.TORCH, Slot.TRITON)


def test_the_reasons_of_skips(root: Path, page: str) -> None:
    path = root / "tests" / "ops" / "reasons.py"  # needs no installed library, as others there do
    spec = importlib.util.spec_from_file_location("reasons_of_skips", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    listed = [cell.strip("`") for cell in first_cells(page, "Reason")]
    assert listed == [reason.value for reason in module.SkipReason]


def test_the_options_of_the_suite(root: Path, page: str) -> None:
    suite = root / "tests" / "ops"
    declared = (suite / "conftest.py").read_text() + (suite / "guards.py").read_text()
    commands = re.findall(r"^pytest tests/ops ([^#\n]*)", page, re.MULTILINE)
    options = {option for text in commands for option in re.findall(r"--[\w-]+", text)}
    assert options == {"--slot", "--device", "--platform"}
    for option in {*options, "--hang-after"}:
        assert f'"{option}"' in declared, option
    assert "HANG_AFTER = 120 " in declared
    assert "(default 120)" in page


def test_the_numbers_of_operators(
    page: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("INFINI_OPS_TORCH_OPS", raising=False)
    assert main(["inspect"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    counts = re.match(r"torch 2\.13\.\S+: (\d+) operators, \d+ overloads, (\d+) generated", last)
    if counts is None:
        pytest.skip("the page has the numbers of torch 2.13")
    operators, generated = map(int, counts.groups())
    assert f"With torch 2.13 that is {generated:,} overloads of {operators:,} operators." in page


def test_the_files_exist(root: Path, page: str) -> None:
    paths = re.findall(r"`((?:codegen|docker|examples|tests)/[\w/.-]+)`", page)
    assert len(paths) > 3
    assert [path for path in paths if not (root / path).exists()] == []
