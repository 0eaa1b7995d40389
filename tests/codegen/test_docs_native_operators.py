"""docs/native-operators.md is right about operators, slots, options and files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from codegen.native import read_bases


@pytest.fixture
def page(root: Path) -> str:
    return (root / "docs" / "native-operators.md").read_text()


def rows(page: str, heading: str) -> list[list[str]]:
    """The cells of the table that begins with a heading."""
    table = page.partition(f"| {heading} |")[2].partition("\n\n")[0]
    return [[cell.strip() for cell in line[1:-1].split("|")] for line in table.splitlines()[2:]]


def test_the_operators_with_their_parameters(root: Path, page: str) -> None:
    bases = read_bases(root / "src" / "base")
    shown = [re.fullmatch(r"`(\w+)\((.*)\)`", row[0]) for row in rows(page, "Operator")]
    parameters = {each[1]: each[2].split(", ") for each in shown if each}
    assert parameters.keys() == bases.keys()
    for name, listed in parameters.items():
        names = [each.partition("=")[0] for each in listed]
        assert names == [each.name for each in bases[name].overload.parameters], name


def test_the_slots_of_each_backend(root: Path, page: str) -> None:
    for operator, _, *slots in rows(page, "Operator"):
        name = operator.strip("`").partition("(")[0]
        sources = {f"cpu/{name}.cc": "0", f"cuda/{name}.cu": "0", f"triton/ops/{name}": "9"}
        there = [slot if (root / "src" / path).exists() else "" for path, slot in sources.items()]
        assert slots == there, name


def test_the_options_exist(root: Path, page: str) -> None:
    files = [root / "CMakeLists.txt", *(root / "src" / "cmake").glob("*.cmake")]
    rules = "\n".join(path.read_text() for path in files)
    options = [row[0].strip("`") for row in rows(page, "Option of CMake")]
    assert "WITH_TRITON" in options
    for option in options:
        assert re.search(rf"\b{option}\b", rules), option


def test_the_files_exist(root: Path, page: str) -> None:
    for path in re.findall(r"`((?:src|tests|docs|ci)[\w/.-]*?/[\w/.-]+|ci\.yaml)`", page):
        assert (root / path).exists(), path
