"""``python -m codegen inspect``: what a person sees, and what a program reads."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from codegen.aten import NativeFunctions
from codegen.cli import main
from codegen.devices import platforms
from codegen.errors import GenerationError
from codegen.inputs import SELECTION_VARIABLE
from codegen.inspection.explanation import COMPOSITES, explain_function
from codegen.inspection.lookup import Inspection, inspect
from codegen.inspection.render import render_json, render_text
from codegen.inspection.surroundings import (
    BASES,
    Surroundings,
    find_surroundings,
    read_contracts,
)
from codegen.model import Choice, Schemas
from codegen.native import read_bases
from codegen.questions import REMOVED, find_removal
from codegen.selection import apply_selections, parse_variable

Around = Callable[[str], Inspection]


@pytest.fixture(scope="module")
def around(schemas: Schemas, functions: NativeFunctions) -> Around:
    """Answers a question as the command does, in this checkout."""
    bases = read_bases(BASES)
    surroundings = find_surroundings(functions)
    return lambda question: inspect(schemas, Choice(), question, bases, surroundings)


def as_json(schemas: Schemas, pattern: str, choice: Choice | None = None) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(render_json(inspect(schemas, choice or Choice(), pattern)))
    return fields


def keys(value: object) -> set[str]:
    """All keys in a JSON value, at any depth."""
    if isinstance(value, list):
        return {key for element in value for key in keys(element)}
    if isinstance(value, dict):
        mapped = {"kernels", "outcomes"}  # their keys are data
        return value.keys() | {key for name in value.keys() - mapped for key in keys(value[name])}
    return set()


def test_text(schemas: Schemas) -> None:
    text = render_text(inspect(schemas, Choice(), "index_put_"))
    assert re.sub("torch .*?:", "torch VERSION:", text) == (
        "index_put_inplace, ATen's index_put_\n"
        "  index_put_  [generated]\n"
        "    index_put_(Tensor(a!) self, Tensor?[] indices, Tensor values, "
        "bool accumulate=False) -> Tensor(a!)\n"
        "      input       Tensor     out\n"
        "      indices     Tensor?[]\n"
        "      values      Tensor\n"
        "      accumulate  Bool       = False\n"
        "      tags        inplace pt2_compliant_tag\n"
        "\n"
        "torch VERSION: 1 operator, 1 overload, 1 generated\n"
    )


def test_text_fits_into_a_terminal(schemas: Schemas) -> None:
    wide = render_text(inspect(schemas, Choice(), "topk"))
    narrow = render_text(inspect(schemas, Choice(), "topk"), 60)
    assert max(map(len, narrow.splitlines())) <= 60
    assert narrow.split() == wide.split()


def test_text_says_why_not(schemas: Schemas) -> None:
    text = render_text(inspect(schemas, Choice(), "set_inplace"))
    assert "  set_.source_Storage  [not generated: takes a storage]\n" in text
    assert "      source  Storage (takes a storage)\n" in text
    assert text.endswith("1 operator, 5 overloads, 3 generated; 2: takes a storage\n")
    choice = apply_selections([parse_variable("exp")], schemas)
    text = render_text(inspect(schemas, choice, "abs"))
    assert "[not generated: not selected by INFINI_OPS_TORCH_OPS]" in text


def test_json_of_everything_lists_all_overloads(schemas: Schemas) -> None:
    fields = as_json(schemas, "*")
    texts = [each["schema"] for operator in fields["operators"] for each in operator["overloads"]]
    declared = [str(each.schema) for group in schemas.by_name.values() for each in group]
    assert sorted(texts) == sorted(declared)


def test_json_is_described_in_the_help(
    schemas: Schemas, around: Around, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["inspect", "--help"])
    described = capsys.readouterr().out
    for key in keys(as_json(schemas, "set_")) | keys(json.loads(render_json(around("rms_norm")))):
        assert re.search(rf"\b{key}\b", described), f"inspect --help lacks {key}"


def test_json_of_an_argument(schemas: Schemas) -> None:
    fields = as_json(schemas, "mean")
    assert fields["schema_version"] == 1
    assert fields["torch_version"] == schemas.torch_version
    mean = next(each for each in fields["operators"][0]["overloads"] if each["generated"])
    by_name = {argument["name"]: argument for argument in mean["arguments"]}
    assert by_name["dtype"] == {
        "name": "dtype",
        "aten_name": "dtype",
        "type": "ScalarType?",
        "kind": "DataType",
        "list_size": None,
        "is_optional": True,
        "has_optional_elements": False,
        "is_out": False,
        "keyword_only": True,
        "default": "None",
    }


@pytest.mark.parametrize("pattern", ["_softmax", "internal_softmax", "internal_softma?"])
def test_both_names_and_patterns_match(pattern: str, schemas: Schemas) -> None:
    assert [each["name"] for each in as_json(schemas, pattern)["operators"]] == ["internal_softmax"]


def test_nothing_matches(schemas: Schemas) -> None:
    message = r"has no out= or in-place operator that matches 'sofmax'; did you mean 'softmax'\?$"
    with pytest.raises(GenerationError, match=message):
        inspect(schemas, Choice(), "sofmax")


# What a person asks, and the overloads, other functions and hand-written operators in the answer.
QUESTIONS = {
    "conv2d": ["conv2d", "conv2d.padding"],
    "F.conv2d": ["conv2d", "conv2d.padding"],
    "aten::add": ["add.Tensor", "add.Scalar", "add.out", "add.Scalar_out"],
    "aten::add.out": ["add.out"],
    "torch.add": ["add.Tensor", "add.Scalar", "add.out", "add.Scalar_out"],
    "torch.add()": ["add.Tensor", "add.Scalar", "add.out", "add.Scalar_out"],
    "infini.ops.add": ["add.Tensor", "add.Scalar", "add.out", "add.Scalar_out"],
    "add.Tensor": ["add.Tensor", "add.out", "add_.Tensor"],
    "aten.add.Tensor": ["add.Tensor", "add.out", "add_.Tensor"],
    "add_": ["add_.Tensor", "add_.Scalar"],
    "torch.Tensor.add_": ["add_.Tensor", "add_.Scalar"],
    "__iadd__": ["add_.Tensor", "add_.Scalar"],
    "__add__": ["add.Tensor", "add.Scalar", "add.out", "add.Scalar_out"],
    "__invert__": ["bitwise_not", "bitwise_not.out"],
    "__iand__": ["__iand__.Scalar", "__iand__.Tensor"],
    "torch.ops.aten.mm.default": ["mm", "mm.out"],
    "torch.nn.functional.scaled_dot_product_attention": ["scaled_dot_product_attention"] * 2,
    "scaled_dot_product_attention": ["scaled_dot_product_attention"] * 2,
    "torch.linalg.eigh": ["linalg_eigh", "linalg_eigh.eigvals"],
    "symeig": ["linalg_eigh", "linalg_eigh.eigvals"],
    "view": ["view", "view.dtype"],
    "item": ["item"],
    "gemm": ["gemm"],
    "infini::ops::CausalSoftmax": ["causal_softmax"],
    "rms_norm": ["rms_norm", "rms_norm"],
    "InternalSoftmax": ["_softmax", "_softmax.out"],
    "internal_softmax": ["_softmax", "_softmax.out"],
    "at::_ops::add_out": ["add.out"],
    "at::native::ufunc_add_CPU": ["add.out"],
    "cross_entropy": ["cross_entropy_loss"],
}


@pytest.mark.parametrize(("question", "answer"), QUESTIONS.items())
def test_a_question(question: str, answer: list[str], around: Around) -> None:
    found = around(question)
    names = [function.schema.full_name for function in found.functions]
    names += [name for name, _ in found.hand_written]
    names += [
        declaration.schema.full_name
        for _, overloads in found.operators
        for declaration, _ in overloads
    ]
    assert sorted(names) == sorted(answer)


def test_every_function_of_torch_is_an_answer(functions: NativeFunctions, around: Around) -> None:
    """One of each kind by itself, because each takes milliseconds; all of them by a pattern."""
    kinds = {each.func.kind().name: str(each.func.name) for each in functions.functions}
    assert len(kinds) >= 4
    for name in kinds.values():
        assert render_text(around(name)).count(f"{name}  [") == 1, name
    found = around("?*")
    shown = {function.schema.aten_name for function in found.functions}
    shown |= {overloads[0][0].schema.aten_name for _, overloads in found.operators}
    assert shown == {str(each.func.name.name) for each in functions.functions}
    assert {name for name, _ in found.hand_written} >= {"gemm", "rms_norm", "swiglu"}


@pytest.mark.parametrize(
    ("question", "reason", "explanation"),
    [
        ("add.Tensor", "functional", "see add_.Tensor, add.out"),
        ("view", "view", "these write a copy: view_copy.out, view_copy.dtype_out"),
        ("item", "no tensor", "returns no tensor"),
        ("conv2d", "composite", "calls other operators: .*convolution"),
        ("lstm.input", "composite", "does not say which: `python -m codegen trace`"),
        ("_cudnn_rnn_flatten_weight", "functional", "see _cudnn_rnn_flatten_weight.out"),
        ("_assert_async", "no tensor", "returns no tensor"),
    ],
)
def test_why_not(question: str, reason: str, explanation: str, around: Around) -> None:
    got = explain_function(around(question).functions[0])
    assert got[0] == reason
    assert re.search(explanation, got[1])


def test_slots_and_outcomes(around: Around) -> None:
    [add] = json.loads(render_json(around("torch.add")))["operators"]
    places = {(each["slot"], each["source"]): each["devices"] for each in add["slots"]}
    assert places[0, "src/cpu/add.cc"] == ["cpu"]
    assert set(places[0, "src/cuda/add.cu"]) == {"nvidia", "iluvatar", "metax", "moore"}
    assert places[8, None] == [each.name for each in platforms()]
    assert places[9, "src/triton/ops/add/add.cc"] == ["nvidia"]
    outcomes = {
        (each["platform"], each["simulated"], each["overload"]): each["outcomes"]
        for each in add["tests"]
    }
    assert "float32" in outcomes["cpu", False, "add"]["passed"]
    assert "float32" in outcomes["cpu", False, "add.out"]["passed"]
    # This contract has only its base: another contract.
    assert "float32" in outcomes["hygon", True, "add.out"]["no device"]
    text = render_text(around("torch.add"))
    assert "\n  slot 8: every platform (generated)\n" in text
    assert re.search(r"\n  tests of add\.out, slot 8, on cpu, .*: passed: bfloat16 bool", text)


def test_a_contract_that_changes_its_base(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        "platform: a\ndtypes: {all: int64 float32}\noperators:\n  native: {slot 0: {add: all}}\n"
        "  torch:\n    slot 8: {abs.out: all, exp.out: all, cos.out: float32}\n"
    )
    (tmp_path / "b.yaml").write_text(
        "platform: b\nbase: a.yaml\nsimulated: true\noperators:\n  native: null\n"
        "  torch:\n    slot 8: {abs.out: {no kernel: int64}, cos.out: null}\n"
    )
    b = {each.overload: each.outcomes for each in read_contracts([tmp_path]) if each.simulated}
    assert b == {
        "abs.out": {"no kernel": ("int64",), "passed": ("float32",)},
        "exp.out": {"passed": ("int64", "float32")},
    }


def test_outside_of_a_checkout(schemas: Schemas, functions: NativeFunctions) -> None:
    found = inspect(schemas, Choice(), "add", surroundings=Surroundings(functions=functions))
    assert "  slots, tests: not known outside of a checkout" in render_text(found)
    [operator] = json.loads(render_json(found))["operators"]
    assert operator["slots"] is None
    assert operator["tests"] is None


def test_a_removed_operator_names_its_successor(around: Around) -> None:
    first = render_text(around("torch.symeig")).splitlines()[0]
    assert first.startswith(
        "symeig  [removed from torch; use linalg_eigh: https://github.com/pytorch"
    )


def test_removed_operators_are_removed_and_their_successors_are_not(
    functions: NativeFunctions,
) -> None:
    """Those that a torch still has, which is older than the newest, have none there."""
    known = functions.by_name
    still = set(REMOVED) & known.keys()
    assert still <= {"cholesky", "qr"}
    assert [name for name in still if find_removal(name, known)] == []
    names = [*(REMOVED.keys() - still), "symeig.e", "thnn_conv2d_forward.output"]
    found = {name: find_removal(name, known) for name in names}
    successors = {name: removal.successor for name, removal in found.items() if removal}
    assert successors.keys() == found.keys()
    assert successors["symeig.e"] == "linalg_eigh"
    assert successors["thnn_conv2d_forward.output"] == "_slow_conv2d_forward.output"
    # As of another torch.
    later = find_removal("cholesky.out", {"linalg_cholesky", "linalg_cholesky.out"})
    assert later is not None
    assert later.successor == "linalg_cholesky.out"


@pytest.mark.parametrize("name", ["symeig.e", "conj.out", "torch.ops.aten._s_where"])
def test_a_removed_overload_names_its_successor(around: Around, name: str) -> None:
    bare = name.removeprefix("torch.ops.aten.")
    assert render_text(around(name)).startswith(f"{bare}  [removed from torch; use ")


def test_recorded_composites_are_known_to_torch(functions: NativeFunctions) -> None:
    recorded = json.loads(COMPOSITES.read_text())
    names = {str(each.func.name.name) for each in functions.functions}
    assert len(recorded["calls"]) > 200
    assert {
        *recorded["calls"],
        *(each for all_ in recorded["calls"].values() for each in all_),
    } <= names


def test_the_platforms_of_the_cuda_sources_are_those_that_cmake_names(
    root: Path, around: Around
) -> None:
    surroundings = around("add").surroundings
    assert surroundings
    text = (root / "src" / "cmake" / "Cuda.cmake").read_text()
    [names] = re.findall(r"\"(WITH_NVIDIA, .*) to ON, or WITH_CUDA_KERNELS", text)
    platforms_of_cuda = {each.upper() for each in surroundings.cuda_platforms}
    assert set(re.findall(r"WITH_(\w+)", names)) == platforms_of_cuda


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ("torch.sofmax", r"no operator 'torch\.sofmax'; did you mean 'softmax'\?$"),
        ("gemmm", r"no operator 'gemmm'; did you mean 'gemm'\?$"),
        ("add.Tensr", r"no operator 'add\.Tensr'"),
        ("zz*", r"that matches 'zz\*'$"),
    ],
)
def test_a_question_without_an_answer(question: str, message: str, around: Around) -> None:
    with pytest.raises(GenerationError, match=message):
        around(question)


def test_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torchgen", reason="torch is not installed")
    assert main(["inspect", "abs"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("abs\n")
    assert main(["inspect", "abz"]) == 2
    assert "did you mean 'abs" in capsys.readouterr().err

    out = tmp_path / "out"
    assert main(["inspect", "abs", "--json", "--output-dir", str(out), "--dry-run"]) == 0
    assert capsys.readouterr().out == f"would write {out}/inspect.json\n"
    assert not out.exists()
    assert main(["inspect", "abs", "--json", "--output-dir", str(out)]) == 0
    assert main(["inspect", "abs", "--output-dir", str(out)]) == 0
    assert capsys.readouterr().out == ""
    assert (out / "inspect.txt").read_text() == text
    monkeypatch.setenv(SELECTION_VARIABLE, "exp")
    assert main(["inspect", "abs", "--json", "--output-dir", str(out)]) == 0
    [operator] = json.loads((out / "inspect.json").read_text())["operators"]
    assert operator["overloads"][0]["reason"] == "not selected"


def test_a_reader_that_has_seen_enough(root: Path) -> None:
    pytest.importorskip("torchgen", reason="torch is not installed")
    with subprocess.Popen(
        [sys.executable, "-m", "codegen", "inspect"],
        cwd=root,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() != ""
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait() == 0
