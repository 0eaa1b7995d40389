"""Versions of torch other than the usual one: forks, old ones, and broken ones."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from codegen.aten import find_torch, load_schemas
from codegen.cli import main
from codegen.errors import GenerationError

TORCHGEN = importlib.util.find_spec("torchgen")
pytestmark = pytest.mark.skipif(TORCHGEN is None, reason="torch is not installed")

# A schema of torch 2.13, so that torchgen accepts it and all that depends on it.
ABS = """\
- func: abs(Tensor self) -> Tensor
  variants: function, method
  dispatch:
    CompositeExplicitAutograd: abs

- func: abs.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)
  dispatch:
    CPU: abs_out
"""
FORK = """
- func: fork_rotate(Tensor self, int mode=1) -> Tensor
  dispatch:
    CPU: fork_rotate

- func: fork_rotate.out(Tensor self, int mode=1, *, Tensor(a!) out) -> Tensor(a!)
  dispatch:
    CPU: fork_rotate_out

- func: fork_cast(Tensor self, ScalarType dtype=long) -> Tensor
  dispatch:
    CPU: fork_cast

- func: fork_cast.out(Tensor self, ScalarType dtype=long, *, Tensor(a!) out) -> Tensor(a!)
  dispatch:
    CPU: fork_cast_out

- func: fork_scratch.out(Tensor self, *, Tensor(a!) out, Tensor(b!) _scratch_x) -> Tensor(a!)
  dispatch:
    CPU: fork_scratch_out

- func: fork_format_(Tensor(a!) self, ForkFormat format) -> Tensor(a!)
  dispatch:
    CPU: fork_format_
"""


@pytest.fixture
def fork(tmp_path: Path) -> Path:
    """A site-packages folder with a copy of torchgen, and as much of a torch as is read."""
    site = tmp_path / "site"
    assert TORCHGEN is not None
    assert TORCHGEN.origin is not None
    shutil.copytree(Path(TORCHGEN.origin).parent, site / "torchgen")
    (site / "torch").mkdir()
    (site / "torch" / "version.py").write_text("__version__ = '2.13.0+fork'\n")
    return site


def schema_file(fork: Path) -> Path:
    return find_torch(fork).schema_file


def without(text: str, *names: str) -> str:
    """``native_functions.yaml`` without all overloads of these base names."""
    entries = re.split(r"(?m)^(?=- func: )", text)
    return "".join(
        entry
        for entry in entries
        if re.split(r"[.(]", entry.removeprefix("- func: "), maxsplit=1)[0] not in names
    )


def generate(fork: Path, selection: Path, folder: Path) -> dict[str, Any]:
    command = ["torch", "--torch-root", str(fork), "--selection", str(selection)]
    assert main([*command, "--output-dir", str(folder)]) == 0
    metadata: dict[str, Any] = json.loads((folder / "torch_ops_metadata.json").read_text())
    return metadata


def test_a_file_that_hides_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hiding = tmp_path / "torch.py"
    hiding.touch()
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["torch", "--output-dir", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert f": got the file {hiding}, expected a package. Rename the file, or pass" in error


def test_a_fork_works_without_edits(
    fork: Path, root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It lacks two operators, and adds some; only two of these have known types."""
    path = schema_file(fork)
    path.write_text(without(path.read_text(), "logcumsumexp", "_logcumsumexp") + FORK)
    model = fork / "torchgen" / "model.py"
    model.write_text(model.read_text().replace("GraphModule =", "ForkFormat = auto()\n    G ="))

    metadata = generate(fork, root / "codegen" / "torch_ops.yaml", tmp_path / "all")
    assert metadata["torch_version"] == "2.13.0+fork"
    generated = {op["name"] for op in metadata["ops"]}
    assert {"fork_rotate", "fork_scratch"} <= generated
    assert "logcumsumexp" not in generated
    reasons = {skip["aten_name"]: skip["reason"] for skip in metadata["skipped"]}
    assert reasons == {
        "fork_cast": "has a default that the generator does not know",
        "fork_format_": "takes a type that the generator does not know",
        "set": "takes a storage",
        "set_": "takes a storage",
    }
    assert capsys.readouterr().err == ""

    metadata = generate(fork, root / "bench" / "first_allowlist.yaml", tmp_path / "first")
    assert {"abs", "add"} <= {op["name"] for op in metadata["ops"]}
    reasons = {skip["aten_name"]: skip["reason"] for skip in metadata["skipped"]}
    assert reasons["_logcumsumexp"] == reasons["logcumsumexp"] == "not in this torch"
    assert reasons["fork_rotate"] == "not selected"
    notes = capsys.readouterr().err.splitlines()
    assert [note.rpartition("named ")[2] for note in notes] == [
        "'_logcumsumexp'; did you mean 'logsumexp'?",
        "'logcumsumexp'; did you mean 'logsumexp'?",
    ]


def test_the_torchgen_of_this_python_is_left_alone(fork: Path) -> None:
    import torchgen
    import torchgen.model

    before = (torchgen, torchgen.model, list(sys.path))
    schema_file(fork).write_text(ABS)
    schemas = load_schemas(find_torch(fork))
    assert schemas.by_name.keys() == {"abs"}
    assert (sys.modules["torchgen"], sys.modules["torchgen.model"], sys.path) == before


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (  # a type unknown to torchgen
            "abs.out(Tensor self",
            "abs.out(Tensr self",
            r":6: torchgen refuses 'abs\.out\(Tensr self, .*': RuntimeError: "
            r"unrecognized type Tensr; expected schemas that .*torchgen can read\. Reinstall",
        ),
        ("abs.out(Tensor self,", "abs.out(Tensor self", r":6: torchgen refuses 'abs\.out\(Tensor"),
        (
            "-> Tensor\n",
            "\n",
            r":1: torchgen refuses 'abs\(Tensor self\)': AssertionError: Invalid",
        ),
        ("(a!) out", "(a) out", r":6: torchgen refuses 'abs\.out"),
        ("variants: function", "variant: function", r":1: torchgen refuses 'abs\(.*variant"),
        ("CPU: abs_out", "CPV: abs_out", r":6: torchgen refuses 'abs\.out\(.*CPV"),
        (
            "- func: abs(",
            "- fun: abs(",
            r"\.yaml: torchgen refuses it: AssertionError: Missed 'func'",
        ),
        (
            ABS,
            "abs: 1\n",
            r"\.yaml: torchgen refuses it: AssertionError: Expected 'es' to be a list",
        ),
        (ABS, "", r"\.yaml: torchgen refuses it: AssertionError: Expected 'es' to be a list"),
        ("- func: abs(", "- func: [abs(", r"native_functions\.yaml:\d+: not YAML: .*\. Reinstall"),
        (
            "abs.out(Tensor self",
            "abs_.out(Tensor(b!) self",
            r"torchgen refuses .*: AssertionError: .*Reinstall torch$",
        ),
        ("dispatch:", "\tdispatch:", r"native_functions\.yaml:\d+: not YAML: .*\. Reinstall"),
    ],
)
def test_broken_schemas(fork: Path, old: str, new: str, message: str) -> None:
    assert old in ABS
    schema_file(fork).write_text(ABS.replace(old, new, 1))
    with pytest.raises(GenerationError, match=message) as caught:
        load_schemas(find_torch(fork))
    assert str(schema_file(fork)) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_duplicate_schema(fork: Path) -> None:
    schema_file(fork).write_text(ABS + ABS[ABS.index("- func: abs.out") :])
    message = r":9: torchgen refuses 'abs\.out\(.*duplicate operator abs\.out"
    with pytest.raises(GenerationError, match=message):
        load_schemas(find_torch(fork))


def test_no_schemas(fork: Path) -> None:
    schema_file(fork).unlink()
    with pytest.raises(GenerationError, match=r"native_functions\.yaml: No such file .* Reinstall"):
        load_schemas(find_torch(fork))


def test_a_bad_tag(fork: Path) -> None:
    schema_file(fork).write_text(ABS.replace("  variants:", "  tags: fork_tag\n  variants:"))
    with pytest.raises(GenerationError, match=r":1: torchgen refuses 'abs\(.*fork_tag"):
        load_schemas(find_torch(fork))


def test_a_torchgen_that_does_not_work(fork: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (fork / "torchgen" / "model.py").write_text("import fork_dependency\n")
    command = ["torch", "--torch-root", str(fork), "--output-dir", str(fork / "out")]
    assert main(command) == 2
    assert "has no module 'fork_dependency'; expected" in capsys.readouterr().err
    (fork / "torchgen" / "model.py").write_text("1 +\n")
    assert main(command) == 2
    assert "torchgen refuses it: SyntaxError: invalid syntax" in capsys.readouterr().err


def test_a_version_that_says_nothing(fork: Path) -> None:
    schema_file(fork).write_text(ABS)
    (fork / "torch" / "version.py").write_text("version = 1\n")
    with pytest.raises(
        GenerationError, match=r"version\.py: expected a string assigned to __version__, or torch-"
    ):
        load_schemas(find_torch(fork))
