"""docs/add-an-operator.md: its example compiles; its operators, slots, options and files exist."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from codegen.cli import main
from codegen.native import read_bases, read_registry

SAVED = re.compile(
    r"[Ss]ave (?:it |the [\w ]+ )?as `(src/[^`]+)`.*?^```cpp\n(.*?)^```$", re.M | re.S
)


@pytest.fixture
def page(root: Path) -> str:
    return (root / "docs" / "add-an-operator.md").read_text(encoding="utf-8")


def rows(page: str, heading: str) -> list[list[str]]:
    """The cells of the table that begins with a heading."""
    table = page.partition(f"| {heading} |")[2].partition("\n\n")[0]
    return [[cell.strip() for cell in line[1:-1].split("|")] for line in table.splitlines()[2:]]


def test_the_example_is_an_operator(root: Path, page: str, tmp_path: Path) -> None:
    """What the page says to save is read, registered and compiled, beside the library's sources."""
    shutil.copytree(root / "src", tmp_path / "src")
    saved = dict(SAVED.findall(page))
    assert [*saved] == ["src/base/reglu.h", "src/cpu/reglu_kernels.h", "src/cpu/reglu.cc"]
    for path, text in saved.items():
        (tmp_path / path).write_text(text, encoding="utf-8")
    bases = read_bases(tmp_path / "src" / "base")
    source = tmp_path / "src" / "cpu" / "reglu.cc"
    registry = read_registry([source], bases, None, tmp_path)
    assert [*registry.operators] == ["reglu"]
    assert main(["platforms", "--output-dir", str(tmp_path)]) == 0
    folders = [tmp_path / "src", tmp_path / "src" / "include", tmp_path / "include"]
    include = [f"-I{folder}" for folder in folders]
    subprocess.run(["c++", "-std=c++17", "-fsyntax-only", *include, source], check=True)


def test_the_files_of_the_example_are_in_the_list_of_sources(root: Path, page: str) -> None:
    assert "`cpu_sources` in `src/CMakeLists.txt`" in page
    assert "set(cpu_sources\n" in (root / "src" / "CMakeLists.txt").read_text(encoding="utf-8")


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
    options = [row[0].partition("`")[2].partition("`")[0] for row in rows(page, "Option of CMake")]
    assert "WITH_TRITON" in options
    for option in options:
        assert re.search(rf"\b{option}\b", rules), option


def test_the_files_exist(root: Path, page: str) -> None:
    saved = {path for path, _ in SAVED.findall(page)}
    for path in re.findall(r"`((?:codegen|src|tests|docs|ci)[\w/.-]*?/[\w/.-]+|ci\.yaml)`", page):
        assert path in saved or (root / path).exists(), path


def test_the_lists_of_operators_that_tests_have_are_where_the_page_says(
    root: Path, page: str
) -> None:
    lists = re.findall(r"`OPERATORS`\s+in\s+`(tests/[\w/.]+)`", page)
    assert len(lists) == 2
    for path in [*lists, "tests/ops/native_examples.py"]:
        assert re.search(r"^OPERATORS = ", (root / path).read_text(), re.M), path


def test_what_it_inspects_is_generated(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "fft_hfft*"]) == 0
    assert "fft_hfft.out  [generated]" in capsys.readouterr().out
