"""``python -m codegen trace``: what a script calls becomes a selection of either form."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import yaml

from codegen.aten import NativeFunctions
from codegen.cli import main
from codegen.selection import load_selection
from codegen.trace import Trace, render_selection, render_torchgen

pytest.importorskip("torch", reason="torch is not installed")

SCRIPT = """
import sys, threading
import torch
import beside

x = torch.ones(2, 3)
(x + x).relu_().view(-1)
torch.add(x.double(), 1, out=torch.empty(2, 3, dtype=torch.float64))
thread = threading.Thread(target=lambda: torch.cos(x))
thread.start()
thread.join()
exec(sys.argv[1])
torch.sin(x)
"""


def trace(folder: Path, statement: str, *options: str) -> int:
    """Trace a script that executes the statement."""
    (folder / "beside.py").touch()
    (folder / "script.py").write_text(SCRIPT)
    command = ["trace", "--output-dir", str(folder / "out"), *options]
    return main([*command, str(folder / "script.py"), statement])


def selected(folder: Path, name: str = "selection.yaml") -> set[str]:
    included = load_selection(folder / "out" / name).included
    assert included is not None
    return {entry.text for entry in included}


def test_what_a_script_calls(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert trace(tmp_path, "print(len(sys.argv), __name__)") == 0
    shown = capfd.readouterr()
    assert shown.out.startswith("2 __main__\ntrace: ")
    assert shown.err == ""
    called = yaml.safe_load((tmp_path / "out" / "selected_operators.yaml").read_text())
    dtypes = {name: options["debug_info"] for name, options in called["operators"].items()}
    assert dtypes["aten::add.Tensor"] == ["float32"]
    assert dtypes["aten::add.out"] == ["float64"]
    assert {"aten::relu_", "aten::view", "aten::cos", "aten::sin"} <= dtypes.keys()
    ours = selected(tmp_path)
    assert {"add", "relu_", "cos", "sin"} <= ours
    assert ours.isdisjoint({"view", "relu"})
    assert "# Without an operator: view (view)\n" in (tmp_path / "out/selection.yaml").read_text()
    # The other form selects the same, and what has no operator.
    assert selected(tmp_path, "selected_operators.yaml") >= ours


@pytest.mark.parametrize(
    ("statement", "code", "message"),
    [
        ("raise ValueError('odd')", 1, "ValueError: odd"),
        ("sys.exit(7)", 7, ""),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 137, ""),
    ],
)
def test_a_script_that_fails(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], statement: str, code: int, message: str
) -> None:
    """Its output is its own, and what it called until then is recorded."""
    assert trace(tmp_path, statement) == code
    *own, last = capfd.readouterr().err.splitlines()
    assert last == (
        f"codegen: error: {tmp_path}/script.py: ended with exit code {code}; what it called until "
        f"then was written to {tmp_path}/out"
    )
    assert "".join(own[-1:]) == message
    assert "tracer.py" not in "".join(own)
    assert "add" in selected(tmp_path)
    assert "sin" not in selected(tmp_path)


def test_a_dry_run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert trace(tmp_path, "pass", "--dry-run") == 0
    assert f"would write {tmp_path}/out/selection.yaml\n" in capfd.readouterr().out
    assert not (tmp_path / "out").exists()


def test_a_script_that_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "--output-dir", str(tmp_path), str(tmp_path / "no.py")]) == 2
    assert capsys.readouterr().err.endswith("no.py: no such file; expected a Python script\n")


def test_a_python_without_torch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    python.chmod(0o755)
    assert trace(tmp_path, "pass", "--python", str(python)) == 2
    message = capsys.readouterr().err
    assert message.startswith(
        f"codegen: error: {python} can't import torch: No module named 'torch'"
    )
    assert message.endswith("Pass --python PROGRAM, a Python that has torch\n")
    assert trace(tmp_path, "pass", "--python", str(tmp_path / "no")) == 2
    assert "/no: No such file or directory" in capsys.readouterr().err


def test_torchgen_reads_its_form(functions: NativeFunctions) -> None:
    from torchgen.selective_build.selector import SelectiveBuilder

    recorded = Trace(
        script="a.py",
        exit_code=0,
        operators={"aten::add.Tensor": ["float32"], "acme::odd": [], "aten::item": ["int64"]},
    )
    builder = SelectiveBuilder.from_yaml_str(render_torchgen(recorded))
    chosen = {
        str(each.func.name)
        for each in functions.functions
        if builder.is_native_function_selected(each)
    }
    assert chosen == {"add.Tensor", "item"}
    text, summary = render_selection(recorded, functions)
    assert text is not None
    assert text.endswith(
        "# Without an operator: acme::odd (not of this torch)\n"
        "# Without an operator: item (no tensor)\noperators:\n  - add\n"
    )
    assert summary == "3 overloads called; 1 operator selected, 2 overloads without one"


def test_nothing_is_called(functions: NativeFunctions) -> None:
    text, _ = render_selection(Trace(script="a.py", exit_code=0, operators={}), functions)
    assert text is None
