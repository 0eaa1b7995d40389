"""``python -m codegen`` as a person types it."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from codegen.aten import find_torch
from codegen.cli import BASES, main
from codegen.inputs import SELECTION_VARIABLE, Inputs
from codegen.model import RESERVED_NAMES

pytest.importorskip("torchgen", reason="torch is not installed")


def torch_command(folder: Path, selection: str) -> list[str]:
    """Generates what a file with this text selects."""
    path = folder / "ops.yaml"
    path.write_text(selection)
    return ["torch", "--output-dir", str(folder / "out"), "--selection", str(path)]


def test_torch_writes_and_then_finds_nothing_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = torch_command(tmp_path, "operators:\n  - abs\n  - add\n")

    assert main([*command, "--dry-run"]) == 0
    assert "would write base/abs.h" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()

    assert main(command) == 0
    assert "2 operators, 3 overloads, 1441 skipped; 5 files written" in capsys.readouterr().out
    assert (tmp_path / "out" / "base" / "abs.h").exists()
    assert not (tmp_path / "out" / "base" / "add.h").exists()  # src/base has one

    assert main(command) == 0
    assert "nothing changed: 0 files written, 5 unchanged, 0 removed" in capsys.readouterr().out


def test_bad_input_is_a_message_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(torch_command(tmp_path, "operators: abs\n")) == 2
    assert capsys.readouterr().err == (
        f"codegen: error: {tmp_path}/ops.yaml:1: operators: got 'abs', expected 'all' or a list "
        "of ATen names and patterns\n"
    )


def test_a_name_that_this_torch_lacks_is_a_note_every_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = torch_command(tmp_path, "operators:\n  - abs\n  - gelo\n")
    for _ in range(2):
        assert main(command) == 0
        note = capsys.readouterr().err
        assert note.startswith(f"codegen: note: {tmp_path}/ops.yaml:3: torch ")
        assert note.endswith("named 'gelo'; did you mean 'gelu'?\n")
    metadata = json.loads((tmp_path / "out" / "torch_ops_metadata.json").read_text())
    assert {
        "aten_name": "gelo",
        "overload_name": "",
        "reason": "not in this torch",
    } in metadata["skipped"]


def test_the_environment_narrows_one_build(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["torch", "--output-dir", str(tmp_path)]
    monkeypatch.setenv(SELECTION_VARIABLE, "abs, exp")
    assert main(command) == 0
    assert "2 operators" in capsys.readouterr().out
    monkeypatch.setenv(SELECTION_VARIABLE, "abs")
    assert main(command) == 0
    assert "1 operator, 1 overload," in capsys.readouterr().out
    assert sorted(path.name for path in (tmp_path / "base").iterdir()) == ["abs.h"]
    monkeypatch.setenv(SELECTION_VARIABLE, "abz")
    assert main(command) == 2
    assert "INFINI_OPS_TORCH_OPS: torch " in capsys.readouterr().err


def test_a_selection_that_leaves_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(torch_command(tmp_path, "operators: all\nexcluded: {'*': odd}\n")) == 2
    assert (
        f"{tmp_path}/ops.yaml and INFINI_OPS_TORCH_OPS select no operator: "
        in capsys.readouterr().err
    )


def test_the_stub_has_the_native_operators_of_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What torch has too it has from torch."""
    monkeypatch.setenv(SELECTION_VARIABLE, "add,abs")
    registry = tmp_path / "registry.json"
    command = ["torch", "--output-dir", str(tmp_path / "out"), "--registry", str(registry)]
    stub = tmp_path / "out" / "__init__.pyi"
    for names in (["add", "gemm"], ["cast"]):
        registry.write_text(json.dumps({"ops": [{"name": name} for name in names]}))
        assert main(command) == 0
        functions = set(re.findall(r"^def (\w+)\(", stub.read_text(), re.MULTILINE))
        assert functions - RESERVED_NAMES == {"abs", "add", *names}


def test_a_base_that_contradicts_torch_is_a_note(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    base = BASES / "add.h"
    (tmp_path / "add.h").write_text(base.read_text().replace("Default(1)", "Default(2)"))
    monkeypatch.setattr("codegen.cli.BASES", tmp_path)
    monkeypatch.setenv(SELECTION_VARIABLE, "add")
    assert main(["torch", "--output-dir", str(tmp_path / "out")]) == 0
    captured = capsys.readouterr()
    assert "1 operator, 1 overload, 1443 skipped" in captured.out  # add.Scalar_out is left
    assert captured.err.startswith(f"codegen: note: {tmp_path}/add.h:12: 'add.out(Tensor input, ")
    assert "alpha=2" in captured.err
    assert "differs from the schema in torch 2." in captured.err
    assert "'add.out(Tensor self, Tensor other, *, Scalar alpha=1" in captured.err
    assert main(["inspect", "add"]) == 0
    shown = capsys.readouterr().out
    assert "add.out  [not generated: its hand-written base has other parameters]" in shown


def test_hand_edited_and_deleted_files_are_restored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SELECTION_VARIABLE, "abs,exp")
    command = ["torch", "--output-dir", str(tmp_path)]
    assert main(command) == 0
    original = (tmp_path / "base" / "abs.h").read_text()
    (tmp_path / "base" / "abs.h").write_text("edited")
    (tmp_path / "operator_table.cc").unlink()
    assert main(command) == 0
    assert "2 files written" in capsys.readouterr().out
    assert (tmp_path / "base" / "abs.h").read_text() == original
    assert (tmp_path / "operator_table.cc").exists()


def test_an_up_to_date_folder_needs_neither_torchgen_nor_jinja2(tmp_path: Path, root: Path) -> None:
    """torchgen, which imports PyYAML, leaves no trace of its own."""
    code = (
        "import sys; from codegen.cli import main; status = main(sys.argv[1:]); "
        "print(*sorted({'jinja2', 'yaml'} & sys.modules.keys())); sys.exit(status)"
    )
    command = [sys.executable, "-c", code, "torch", "--output-dir", str(tmp_path)]
    for imported in ("jinja2 yaml", ""):
        finished = subprocess.run(
            command, cwd=root, capture_output=True, text=True, check=True
        ).stdout.splitlines()
        assert finished[-1] == imported
    assert "nothing changed: 0 files written" in finished[0]


def test_schemas_are_checked_by_an_optimized_python(tmp_path: Path, root: Path) -> None:
    """torchgen checks them by assertions, which `PYTHONOPTIMIZE` switches off."""
    torch = find_torch()
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "version.py").write_text('__version__ = "1"\n')
    (tmp_path / "torch" / "__init__.py").touch()
    shutil.copytree(torch.torchgen, tmp_path / "torchgen")
    schemas = tmp_path / "torchgen" / "packaged" / "ATen" / "native" / "native_functions.yaml"
    schemas.write_text("- func: abs(Tensor self) -> Tensor\n  no_such_key: 1\n")

    def inspect(*flags: str, optimize: str = "") -> subprocess.CompletedProcess[str]:
        command = (*flags, "-m", "codegen", "inspect", "--torch-root", str(tmp_path))
        return subprocess.run(
            [sys.executable, *command],
            cwd=root,
            env={**os.environ, "PYTHONOPTIMIZE": optimize, "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )

    plain = inspect()
    assert plain.returncode == 2
    assert "no_such_key" in plain.stderr
    assert inspect(optimize="1").stderr == plain.stderr
    assert inspect("-O").stderr.startswith("codegen: error: Python got -O, which skips")


def test_the_content_of_the_inputs_counts_and_not_their_folder(tmp_path: Path) -> None:
    inputs = Inputs(
        torch=find_torch(), selection=tmp_path / "a.yaml", variable="", base_dir=tmp_path
    )
    inputs.selection.write_text("operators: all\n")
    same = tmp_path / "b.yaml"
    same.write_text("operators: all\n")
    assert dataclasses.replace(inputs, selection=same).digest() == inputs.digest()
    digests = {inputs.digest(), dataclasses.replace(inputs, variable="abs").digest()}
    narrowing = dataclasses.replace(inputs, variable=str(same))
    digests.add(narrowing.digest())
    same.write_text("operators:\n  - abs\n")
    digests.add(narrowing.digest())
    digests.add(dataclasses.replace(inputs, selection=same).digest())
    (tmp_path / "abs.h").touch()
    digests.add(inputs.digest())
    assert len(digests) == 6


def test_an_output_folder_that_is_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert main(["headers", "--output-dir", str(tmp_path / "file")]) == 2
    assert capsys.readouterr().err.startswith(f"codegen: error: {tmp_path}/file")


def test_a_folder_without_torch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["torch", "--output-dir", str(tmp_path / "out"), "--torch-root", str(tmp_path)]
    assert main(command) == 2
    assert capsys.readouterr().err == (
        f"codegen: error: no torch in {tmp_path}; expected torch to be installed. "
        "Install it there, or pass --torch-root SITE_PACKAGES\n"
    )


@pytest.mark.parametrize("fault", [KeyError("x\ny"), OSError(5, "Input/output error")])
def test_a_fault_is_one_line_and_a_file(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    fault: Exception,
) -> None:
    def fail() -> None:
        raise fault

    monkeypatch.setattr("codegen.emit.render_headers", fail)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    command = ["headers", "--output-dir", str(tmp_path)]
    assert main(command) == 3
    [line] = capsys.readouterr().err.splitlines()
    kind = type(fault).__name__
    assert re.match(
        rf"codegen: error: unexpected {kind}: .* \(.*/test_command_line\.py:\d+\)", line
    )
    [report] = tmp_path.glob("codegen-fault-*.txt")
    assert line.endswith(f"Please report it, with the file {report}, which has the traceback")
    assert "Traceback (most recent call last):" in report.read_text()

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "absent"))
    assert main(command) == 3
    assert "Traceback (most recent call last):" in capsys.readouterr().err


def test_an_interruption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("codegen.emit.render_headers", interrupt)
    assert main(["headers", "--output-dir", str(tmp_path)]) == 130


def test_headers_can_be_shown_without_writing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["headers", "--output-dir", str(tmp_path)]
    assert main([*command, "--dry-run"]) == 0
    names = ("slot.h", "slot_order.h")
    expected = "".join(f"would write {tmp_path / name}\n" for name in names)
    assert capsys.readouterr().out == expected
    assert main(command) == 0
    assert "kTorch = 8" in (tmp_path / "slot.h").read_text()
    assert main([*command, "--dry-run"]) == 0
    assert capsys.readouterr().out == ""
