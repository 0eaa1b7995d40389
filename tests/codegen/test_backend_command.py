"""``python -m codegen backend-stubs`` as a person types it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from codegen.backend import DIALECT_NAMES
from codegen.backend.dialects import AUTO, DIALECTS
from codegen.backend.document import KEYS
from codegen.cli import main
from codegen.output import MANIFEST_NAME

pytest.importorskip("torchgen", reason="torch is not installed")

BACKEND = "backend: PrivateUse1\ncpp_namespace: torch_npu\nclass_name: Kernels\n"
GOOD = f"{BACKEND}supported:\n  - abs\n  - neg\nautograd:\n  - max_pool2d\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a file for a backend in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CXX", "")  # text alone judges --impl-path
    (tmp_path / "npu.yaml").write_text(GOOD)
    return tmp_path


def test_the_help_describes_every_key_and_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["backend-stubs", "--help"])
    described = re.findall(r"^  (\w+(?:, \w+)*) {2,}\S", capsys.readouterr().out, re.M)
    names = {name for each in described for name in each.split(", ")}
    assert {*KEYS, *DIALECTS["torchgen"].options} <= names


def test_the_forms_of_the_command_are_those_that_are_read() -> None:
    assert {*DIALECT_NAMES} == {*DIALECTS, AUTO}


COMMAND = ["backend-stubs", "--source-yaml", "npu.yaml", "--output-dir", "out"]


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_writes_and_then_finds_nothing_to_do(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*COMMAND, "--dry-run"]) == 0
    *announced, summary = capsys.readouterr().out.splitlines()
    assert "would write PrivateUse1NativeFunctions.h" in announced
    assert summary.endswith(
        f": PrivateUse1 with 2 kernels, 1 for autograd; {len(announced)} files to write, "
        "0 unchanged, 0 removed"
    )
    assert not (folder / "out").exists()

    assert main(COMMAND) == 0
    assert f"; {len(announced)} files written, 0 unch" in capsys.readouterr().out
    written = names(folder / "out")
    assert written == {line.removeprefix("would write ") for line in announced} | {MANIFEST_NAME}
    assert written >= {
        "PrivateUse1NativeFunctions.h",
        "RegisterPrivateUse1.cpp",
        "RegisterAutogradPrivateUse1.cpp",
        "RegisterPrivateUse1Fallback.cpp",
    }

    assert main(COMMAND) == 0
    assert f"; nothing changed: 0 files written, {len(announced)} unchanged, 0 removed\n" in (
        capsys.readouterr().out
    )


def test_what_is_no_longer_generated_is_removed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(COMMAND) == 0
    (folder / "out" / "own.cpp").touch()
    (folder / "npu.yaml").write_text(GOOD.partition("autograd")[0])
    capsys.readouterr()
    assert main([*COMMAND, "--dry-run"]) == 0
    assert "would remove RegisterAutogradPrivateUse1.cpp\n" in capsys.readouterr().out
    assert (folder / "out" / "RegisterAutogradPrivateUse1.cpp").exists()
    assert main(COMMAND) == 0
    assert ", 1 removed\n" in capsys.readouterr().out
    assert "RegisterAutogradPrivateUse1.cpp" not in names(folder / "out")
    assert "own.cpp" in names(folder / "out")


def test_a_named_device_has_a_python_package(folder: Path) -> None:
    assert main(COMMAND) == 0
    unnamed = names(folder / "out")
    (folder / "npu.yaml").write_text(f"{GOOD}device: acme\n")
    assert main(COMMAND) == 0
    added = names(folder / "out") - unnamed
    assert added == {"python", "RegisterPrivateUse1Runtime.cpp"}
    package = folder / "out" / "python"
    assert names(package) == {"__init__.py", "compile.py", "runtime.py"}
    for module in package.iterdir():
        compile(module.read_text(), module.name, "exec")
    operators = {"device_count", "default_generator"}
    source = (folder / "out" / "RegisterPrivateUse1Runtime.cpp").read_text()
    assert {*re.findall(r'm\.def\("(\w+)', source)} == operators
    runtime = (package / "runtime.py").read_text()
    assert {*re.findall(r"torch\.ops\.acme_runtime\.(\w+)", runtime)} == operators


def test_the_spellings_of_torchgen(folder: Path) -> None:
    (folder / "kernels.cc").write_text("")
    options = ["--source_yaml", "npu.yaml", "--output_dir", "a"]
    assert main(["backend-stubs", *options]) == 0
    assert main(["backend-stubs", "-s", "npu.yaml", "-o", "b"]) == 0
    assert main(["backend-stubs", *options, "--dry_run", "--impl_path", "kernels.cc"]) == 2
    files = [
        {path.name: path.read_text() for path in (folder / name).iterdir()} for name in ("a", "b")
    ]
    assert files[0] == files[1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GOOD.replace("abs", "abz"), "npu.yaml:5: supported: torch "),
        (GOOD.replace("backend", "Backend"), "npu.yaml:1: unknown key: got 'Backend', did you"),
        (GOOD.replace("supported:", "supported: ["), "npu.yaml:5: not YAML: "),
        (BACKEND, "npu.yaml:1: supported, full_codegen and autograd are all missing"),
    ],
)
def test_nothing_is_written_for_a_file_with_errors(
    folder: Path, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    (folder / "npu.yaml").write_text(text)
    assert main(COMMAND) == 2
    assert names(folder) == {"npu.yaml"}
    printed = capsys.readouterr()
    assert printed.err.startswith(f"codegen: error: {message}")
    assert printed.out == ""


def test_an_operator_that_torch_makes_from_others(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch")
    listed = "supported:\n  - reshape\n  - conv2d.padding\n"
    (folder / "npu.yaml").write_text(GOOD.replace("supported:\n", listed))
    assert main(COMMAND) == 0
    [note] = capsys.readouterr().err.splitlines()
    assert note.startswith(
        "codegen: note: npu.yaml: supported: CompositeImplicitAutograd in native_functions.yaml:"
        " 'reshape' (line 5), 'conv2d.padding' (line 6). Torch computes such an operator, and its"
    )
    assert "backward() fails on PrivateUse1. Remove it here" in note
    # What the note claims, in a process of its own: the kernel has no gradient.
    program = (
        "import torch\n"
        "library = torch.library.Library('aten', 'IMPL')\n"
        "dump = lambda: torch._C._dispatch_dump_table('aten::conv2d.padding').splitlines()\n"
        "key = 'AutogradPrivateUse1: '\n"
        "print(*[line for line in dump() if line.startswith(key)])\n"
        "library.impl('conv2d.padding', lambda *_: None, 'PrivateUse1')\n"
        "print(*[line for line in dump() if line.startswith(key)])\n"
    )
    python = [sys.executable, "-c", program]
    before, after = subprocess.run(
        python, check=True, text=True, stdout=subprocess.PIPE
    ).stdout.splitlines()
    assert "CompositeImplicitAutograd" in before
    assert "CompositeImplicitAutograd" not in after


def test_nothing_changes_for_a_file_with_errors(folder: Path) -> None:
    assert main(COMMAND) == 0
    before = {path: path.read_bytes() for path in (folder / "out").iterdir()}
    (folder / "npu.yaml").write_text(GOOD.replace("neg", "sin").replace("abs", "abz"))
    assert main(COMMAND) == 2
    assert {path: path.read_bytes() for path in (folder / "out").iterdir()} == before


def test_missing_definitions_are_all_reported_and_nothing_is_written(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "kernels.cc").write_text(
        "at::Tensor Kernels::abs(const at::Tensor& self) {}\n"
        "at::Tensor Kernels::neg(at::Tensor self) {}\n"
    )
    assert main([*COMMAND, "--impl-path", "kernels.cc"]) == 2
    assert names(folder) == {"npu.yaml", "kernels.cc"}
    assert capsys.readouterr().err == (
        "codegen: error: kernels.cc:2: Kernels::neg is not the kernel of 'neg' (npu.yaml:6): "
        "parameter 1 is 'at::Tensor self', expected 'const at::Tensor &'; expected at::Tensor "
        "Kernels::neg(const at::Tensor & self)\n"
        "npu.yaml:8: 'max_pool2d' has no kernel in kernels.cc; expected at::Tensor "
        "Kernels::max_pool2d(const at::Tensor & self, at::IntArrayRef kernel_size, at::IntArrayRef "
        "stride, at::IntArrayRef padding, at::IntArrayRef dilation, bool ceil_mode)\n"
        "note: kernels.cc:1: not compared by the compiler: CXX is empty\n"
    )


def test_what_could_not_be_checked_is_a_note(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "npu.yaml").write_text(f"{BACKEND}supported: [abs]\n")
    (folder / "kernels.cc").write_text("DEFINE(abs);\n")
    assert main([*COMMAND, "--impl-path", "."]) == 0
    assert capsys.readouterr().err == (
        "codegen: note: .:1: not compared by the compiler: CXX is empty\n"
        "codegen: note: kernels.cc:1: not compared by the compiler: the macro DEFINE may define "
        "Kernels::abs of 'abs'\n"
    )
    manifest = json.loads((folder / "out" / MANIFEST_NAME).read_text())
    assert len(manifest["notes"]) == 2


def test_an_output_folder_that_is_a_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "out").touch()
    assert main(COMMAND) == 2
    assert capsys.readouterr().err.startswith("codegen: error: out")


def test_what_it_needs_is_said(folder: Path) -> None:
    finished = subprocess.run(
        [sys.executable, "-m", "codegen", "backend-stubs", "--output-dir", str(folder / "out")],
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 2
    assert "the following arguments are required: -s/--source-yaml" in finished.stderr


def test_a_torch_that_is_not_there(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*COMMAND, "--torch-root", "nowhere"]) == 2
    assert "codegen: error: no torch in nowhere; expected" in capsys.readouterr().err
    assert names(folder) == {"npu.yaml"}
