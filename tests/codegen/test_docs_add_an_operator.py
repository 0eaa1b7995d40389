"""docs/add-an-operator.md: its example works; its operators, slots, options and files exist."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from codegen.cli import main
from codegen.native import read_bases, read_registry
from tests.built import cached_compiler, copy_checkout, make_environment, run

RUNS_HERE = (
    "<!-- not run: tests/codegen/test_docs_add_an_operator.py runs it, in a checkout of its own -->"
)
# What the page says to save, and the commands that run here.
STEP = re.compile(
    r"[Ss]ave (?:it |the [\w ]+ )?as `(?P<path>src/[^`]+)`.*?^```cpp\n(?P<text>.*?)^```$"
    rf"|^{re.escape(RUNS_HERE)}\n```sh\n(?P<commands>.*?)^```$",
    re.M | re.S,
)


@pytest.fixture
def page(root: Path) -> str:
    return (root / "docs" / "add-an-operator.md").read_text(encoding="utf-8")


def rows(page: str, heading: str) -> list[list[str]]:
    """The cells of the table that begins with a heading."""
    table = page.partition(f"\n| {heading} |")[2].partition("\n\n")[0]
    return [[cell.strip() for cell in line[1:-1].split("|")] for line in table.splitlines()[2:]]


def follow(page: str) -> str:
    """The commands that write the files of the page and run its commands, in their order."""
    script = "set -e\n"
    for step in STEP.finditer(page):
        saved = f"cat > {step['path']} <<'END'\n{step['text']}END\n"
        script += step["commands"] or saved
    return script


def files_of(page: str) -> list[str]:
    return [step["path"] for step in STEP.finditer(page) if step["path"]]


def test_the_example_is_an_operator(root: Path, page: str, tmp_path: Path) -> None:
    """What the page says to save is read, registered and compiled, beside the library's sources."""
    shutil.copytree(root / "src", tmp_path / "src")
    assert files_of(page) == ["src/base/reglu.h", "src/cpu/reglu_kernels.h", "src/cpu/reglu.cc"]
    for step in STEP.finditer(page):
        if step["path"]:
            (tmp_path / step["path"]).write_text(step["text"], encoding="utf-8")
    bases = read_bases(tmp_path / "src" / "base")
    source = tmp_path / "src" / "cpu" / "reglu.cc"
    registry = read_registry([source], bases, None, tmp_path)
    assert [*registry.operators] == ["reglu"]
    assert main(["platforms", "--output-dir", str(tmp_path)]) == 0
    folders = [tmp_path / "src", tmp_path / "src" / "include", tmp_path / "include"]
    include = [f"-I{folder}" for folder in folders]
    subprocess.run(["c++", "-std=c++17", "-fsyntax-only", *include, source], check=True)


@pytest.mark.complete
def test_what_a_person_types_is_an_operator(
    page: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Every file and command as written and in order, in a checkout and environment of its own."""
    python = make_environment(tmp_path / "venv")
    copy_checkout(checkout := tmp_path / "infini-ops")
    done = run(
        *("bash", "-c", follow(page)),
        folder=checkout,
        PATH=f"{python.parent}{os.pathsep}{os.environ['PATH']}",
        PIP_NO_INDEX="1",  # the environment has what the build and the tests need
        **cached_compiler(request),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    shown = re.search(r"^```text\n(slot 0 .*)\n(\d+ passed) in .*\n```$", page, re.M)
    assert shown
    ended = re.findall(r"^(slot 0 on cpu: .*)\n=* ?(\d+ passed)\b", done.stdout, re.M)
    assert ended == [shown.groups()]
    # The page and the generated reference have the operator, and nothing that they have differs.
    tests = ("tests/codegen/test_docs_add_an_operator.py", "tests/docs/test_reference.py")
    checked = run(python, "-m", "pytest", "-m", "not complete", "-q", *tests, folder=checkout)
    assert checked.returncode == 0, checked.stdout


def test_the_operators_with_their_parameters(root: Path, page: str) -> None:
    bases = read_bases(root / "src" / "base")
    shown = [re.fullmatch(r"`(\w+)\((.*)\)`", row[0]) for row in rows(page, "Operator")]
    parameters = {each[1]: each[2].split(", ") for each in shown if each}
    assert parameters.keys() == bases.keys()
    for name, listed in parameters.items():
        names = [each.partition("=")[0] for each in listed]
        assert names == [each.name for each in bases[name].overload.parameters], name


def test_the_options_exist(root: Path, page: str) -> None:
    files = [root / "CMakeLists.txt", *(root / "src" / "cmake").glob("*.cmake")]
    rules = "\n".join(path.read_text() for path in files)
    options = [row[0].partition("`")[2].partition("`")[0] for row in rows(page, "Option of CMake")]
    assert "WITH_TRITON" in options
    for option in options:
        assert re.search(rf"\b{option}\b", rules), option


def test_the_files_exist(root: Path, page: str) -> None:
    saved = files_of(page)
    for path in re.findall(r"`((?:codegen|src|tests|docs|ci)[\w/.-]*?/[\w/.-]+|ci\.yaml)`", page):
        assert path in saved or (root / path).exists(), path


def test_the_lists_of_operators_that_tests_have_are_where_the_page_says(
    root: Path, page: str
) -> None:
    lists = re.findall(r"`OPERATORS`\s+(?:in|of)\s+`(tests/[\w/.]+)`", page)
    assert len(lists) == 3
    for path in lists:
        assert re.search(r"^OPERATORS = ", (root / path).read_text(), re.M), path


def test_what_it_inspects_is_generated(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "fft_hfft*"]) == 0
    assert "fft_hfft.out  [generated]" in capsys.readouterr().out
