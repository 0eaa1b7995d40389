"""What docs/the-library.md says of slots, skip reasons, options and files is so."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from pathlib import Path

import pytest

from codegen.cli import main
from codegen.inspection.surroundings import read_contracts
from codegen.slots import Slot
from tests.built import cached_compiler, copy_checkout, run

RUNS_HERE = (
    "<!-- not run: tests/codegen/test_docs_the_library.py runs it, in a checkout of its own -->"
)


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
    commands = re.findall(r"^python -m pytest tests/ops ([^#\n]*)", page, re.MULTILINE)
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


def follow(page: str) -> str:
    """The commands that run here in their order, with the Python example and the C++ calls."""
    script = ["set -e"]
    block = re.compile(
        rf"^(?:{re.escape(RUNS_HERE)}\n```sh|```(python|cpp))\n(.*?)^```$", re.M | re.S
    )
    for language, text in block.findall(page):
        if language == "python":
            shown = "print(infini.ops.Add.active_implementation_indices('cpu'))\n"
            shown += "infini.ops.add(x, x, out, implementation_index=8)\n"
            shown += "print(infini.ops.last_call())\n"
            script.append(f"python - <<'END'\n{text}{shown}END\n")
        elif language == "cpp":
            include, calls = text.split("\n", 1)
            tensors = "const infini::ops::Tensor &x, const infini::ops::Tensor &y"
            program = (
                f"{include}\nvoid f({tensors}, const infini::ops::Tensor &out) {{\n{calls}}}\n"
            )
            script.append(f"cat > calls.cc <<'END'\n{program}END\n")
        else:
            script.append(text)
    script.append('c++ -std=c++17 -fsyntax-only calls.cc -I"$package/include"')
    return "\n".join(script)


@pytest.mark.complete
def test_what_a_person_types_is_the_library(
    page: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Every command as typed and in order, with few operators, in a checkout of its own."""
    copy_checkout(checkout := tmp_path / "infini-ops")
    script = follow(page)
    [download] = re.findall(r"^python -m pip install -r .*$", script, re.M)
    ours = [each for each in sys.path if each.endswith("site-packages")]
    done = run(
        *("bash", "-c", script.replace(download, "true  # the packages of this Python")),
        folder=checkout,
        PATH=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        PYTHONPATH=os.pathsep.join(ours),
        PIP_NO_INDEX="1",
        INFINI_OPS_TORCH_OPS="abs,abs_,add",  # the page allows to build these only
        **cached_compiler(request),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    [slots] = re.findall(r"active_implementation_indices\(.cpu.\)  # (.*)$", page, re.M)
    [call] = re.findall(r"ran last: `(.*)`", page)
    assert f"{slots}\n{call}\n" in done.stdout
    traced = checkout / "traced"
    assert "aten::add.Tensor" in (traced / "selected_operators.yaml").read_text()
    assert {"add", "convolution"} <= set(
        re.findall(r"\w+", (traced / "selection.yaml").read_text())
    )
    assert len(re.findall(r"^slot 8 on cpu: (\d+) of \1 active", done.stdout, re.M)) == 2


def test_the_last_line_of_the_suite_is_that_of_the_contract(root: Path, page: str) -> None:
    """The overloads that pass at slot 8, of all that are generated."""
    outcomes = read_contracts([root / "tests" / "ops" / "contracts"])
    of_cpu = [each for each in outcomes if each.platform == "cpu" and each.slot == Slot.TORCH]
    passed = len(
        {
            each.overload
            for each in of_cpu
            if any(word.startswith("passed") for word in each.outcomes)
        }
    )
    [shown] = re.findall(r"^slot 8 on cpu: .*$", page, re.M)
    every = len({each.overload for each in of_cpu})
    assert shown == (
        f"slot 8 on cpu: {passed:,} of {every:,} active overloads executed "
        f"({100 * passed / every:.1f} %), {passed:,} passed"
    )


def test_the_selection_of_a_run_has_as_many_overloads(
    page: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    [(pattern, shown)] = re.findall(
        r"ci run cpu --select '(.*?)'`.*?\n?notes\s+say `selected (\d+) of", page, re.S
    )
    monkeypatch.setenv("INFINI_OPS_TORCH_OPS", pattern)
    assert main(["inspect"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    if not last.startswith("torch 2.13."):
        pytest.skip("the page has the numbers of torch 2.13")
    assert f", {shown} generated" in last
