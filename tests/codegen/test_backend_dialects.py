"""The YAML files of existing backends, in small files of the same forms."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from codegen.aten import NativeFunctions
from codegen.backend.dialects import names_version
from codegen.backend.document import read_backend_file
from codegen.backend.emit import render_backend
from codegen.backend.model import BackendFile
from codegen.errors import GenerationError

# A folder with files of existing backends, which are not part of this repository.
FILES = "INFINI_OPS_BACKEND_FILES"

MUSA = """\
- func: add.Tensor
- func: add.out
  structured: False
  dispatch:
    PrivateUse1: AddTensorOut
- func: isnan
  device_guard: True
  device_check: NoCheck
  dispatch:
    PrivateUse1, SparsePrivateUse1: IsNan
- func: view
  dispatch:
    PrivateUse1: view_symint
- func: _fused_thing
- func: isnan
- func: add.Scalar
  dispatch:
    CUDA: AddScalar
"""
MLU = """\
aten:
  - func: cat
    structured_delegate: cat.out
  - func: cat.out
    structured: True
  - func: lstm.input
    custom_autograd: True
vision:
  - func: nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor
custom:
  - func: mask_dropout(Tensor self, float p) -> Tensor
    tags: nondeterministic_seeded
    derived_type: bang
"""
NPU = """\
backend: NPU
cpp_namespace: at_npu::native
supported:
  - contiguous
  - func: copy_
    op_api: True
    device_check: NoCheck
  - copy_memory_
custom:
  - func: copy_memory_(Tensor(a!) self, Tensor src) -> Tensor(a!)
  - func: empty_like_it(int[] size, *, Device? device=None) -> Tensor
    dispatch:
      CompositeExplicitAutograd: empty_like_it
  - func: broken(Tensor self -> Tensor
symint:
  - abs
"""
OP_PLUGIN = """\
all_version: [v2.1, v2.13]
official:
  - func: abs(Tensor self) -> Tensor
    acl_op: all_version
    op_api: [v2.1, newest]
  - func: add.out(Tensor self, Tensor other, *, Scalar alpha=1, Tensor(a!) out) -> Tensor(a!)
    sparse: [v2.1, newest]
    op_api: all_version
    structured: True
  - func: neg(Tensor self) -> Tensor
    acl_op: v2.1
symint:
  - func: view(Tensor(a) self, SymInt[] size) -> Tensor(a)
    op_api: all_version
  - func: npu_view(Tensor self, SymInt[] size) -> Tensor
    op_api: all_version
"""
OWN = """\
backend: PrivateUse1
cpp_namespace: acme::ops
device_guard: true
supported:
  - maximum.out:
    structured: true
  - func: minimum.out
    structured: true
    device_guard: false
  - func: abs
    device_guard: false
  - func: neg
    dispatch: {PrivateUse1: Negate, SparsePrivateUse1: NegateSparse}
custom:
  - func: scale(Tensor self, float by=2, *, str mode="it's") -> Tensor
  - func: other::shift_(Tensor(a!) self, SymInt by) -> Tensor(a!)
"""
Read = Callable[..., BackendFile]


@pytest.fixture
def read(tmp_path: Path, functions: NativeFunctions) -> Read:
    def read(text: str, dialect: str = "auto") -> BackendFile:
        path = tmp_path / "backend.yaml"
        path.write_text(text)
        return read_backend_file(path, functions, dialect)

    return read


def kernels(file: BackendFile) -> dict[str, dict[str, str]]:
    """The C++ names by dispatch key and operator; "" for torchgen's."""
    lists = {file.backend: file.supported, f"Autograd{file.backend}": file.autograd, **file.others}
    return {
        key: {each.name: each.kernel for each in entries}
        for key, entries in lists.items()
        if entries
    }


def test_musa(read: Read) -> None:
    file = read(MUSA)
    assert (file.backend, file.cpp_namespace) == ("PrivateUse1", "at::musa")
    assert kernels(file) == {
        "PrivateUse1": {  # torch computes add.Tensor from add.out
            "add.out": "AddTensorOut",
            "isnan": "IsNan",
            "view": "view_symint",
            "add.Scalar": "",
        },
        "SparsePrivateUse1": {"isnan": "IsNan"},
    }
    assert file.symint == {"view"}
    isnan = file.supported[1]
    assert (isnan.device_guard, isnan.device_check) == (True, False)
    assert [re.sub("^.*yaml: ", "", note) for note in file.notes] == [
        f"unknown to torch {torch_version(file)}: 1: '_fused_thing' (line 14); rename it as in "
        "native_functions.yaml, or remove it",
        "duplicate entries: 1: 'isnan' (line 15); the first one is taken",
        "not a dispatch key that takes kernels: 1: 'add.Scalar' for CUDA (line 18); "
        "use another key",
    ]


KERNELS_OF_TORCH = """\
- func: sgn
- func: sgn.out
- func: amax
- func: amax.out
  dispatch:
    PrivateUse1: AMaxOut
- func: hypot.out
  structured: false
  dispatch:
    PrivateUse1: HypotOut
- func: view
  dispatch:
    PrivateUse1: view
    SparsePrivateUse1: view
- func: int_repr
  dispatch:
    QuantizedPrivateUse1: int_repr_quantized_cpu
- func: nll_loss_forward.output
- func: batch_norm_stats
  dispatch:
    PrivateUse1: batch_norm_stats_cuda
"""


def test_musa_uses_kernels_of_torch(read: Read, functions: NativeFunctions) -> None:
    """Those of the CPU's library; the file names those of CUDA's library, too."""
    file = read(KERNELS_OF_TORCH)
    listed = {each.name: each for each in file.supported}
    assert {name for name, each in listed.items() if each.is_in_torch} == {"sgn.out", "view"}
    structured = {name: each.kernel for name, each in listed.items() if each.is_structured}
    assert structured == {
        "sgn.out": "sgn_out",
        "amax.out": "AMaxOut",
        "nll_loss_forward.output": "nll_loss_forward_out",
    }
    assert listed["amax.out"].device_guard is True
    assert file.others["QuantizedPrivateUse1"][0].is_in_torch
    assert not file.others["SparsePrivateUse1"][0].is_in_torch
    [note] = file.notes
    assert "for CUDA only: 2: 'nll_loss_forward.output' (line 18), 'batch_norm_stats' (l" in note
    files = render_backend(file, functions)
    header, text = files["PrivateUse1NativeFunctions.h"], files["RegisterPrivateUse1.cpp"]
    assert "structured_sgn" not in header
    assert " view(" not in header.partition("struct SparsePrivateUse1")[0]
    assert "struct structured_AMaxOut : public at::meta::structured_amax {" in header
    assert "final : public at::native::structured_sgn_out {" in text
    assert "(&at::native::view));" in text
    assert {f"#include <ATen/ops/{name}_native.h>" for name in ("sgn", "view")} <= {
        *text.splitlines()
    }


def test_mlu_overrides_meta(read: Read, functions: NativeFunctions) -> None:
    text = "aten:\n"
    for name in ("upsample_nearest1d.out", "cat.out"):
        text += f"  - func: {name}\n    structured: True\n    override_meta: True\n"
    text += "  - func: sgn.out\n    structured: True\n"
    file = read(text)
    assert [each.is_in_torch for each in file.supported] == [False, False, True]
    header = render_backend(file, functions)["PrivateUse1NativeFunctions.h"]
    assert "structured_upsample_nearest1d_out_mlu : public at::meta::structured_upsamp" in header
    assert "  void meta(const at::Tensor & self, at::ArrayRef<int64_t> output_size, " in header
    assert "  structured_cat_out_mlu::meta_return_ty meta(const at::ITensorListRef & " in header


@pytest.mark.parametrize(
    ("listed", "message"),
    [
        ("add.Tensor", "structured 'add.Tensor': torch has no .*; write it to 'add.out'"),
        ("abs.out", "structured 'abs.out': torch has no .*; remove the option"),
        ("all.out", r"'all.out': structured_all_out is the class of 'all.all_out'; name another"),
    ],
)
def test_what_is_not_structured(read: Read, listed: str, message: str) -> None:
    text = "backend: PrivateUse1\ncpp_namespace: a\nsupported:\n"
    for name in ("all.all_out", listed):
        text += f"  - {{func: {name}, structured: true}}\n"
    with pytest.raises(GenerationError, match=f":5: .*{message}"):
        read(text)


def test_a_flag_is_true_or_false(read: Read) -> None:
    text = "backend: PrivateUse1\ncpp_namespace: a\nsupported:\n  - func: add.out\n"
    with pytest.raises(GenerationError, match=r":5: .* structured: got 'maybe', expected true or"):
        read(f"{text}    structured: maybe\n")


def test_a_structured_kernel_is_for_one_key_only(read: Read) -> None:
    head = "backend: PrivateUse1\ncpp_namespace: a\n"
    with pytest.raises(GenerationError, match=r":4: .* is for PrivateUse1 only; list it under"):
        read(f"{head}autograd:\n  - {{func: add.out, structured: true}}\n")
    name = "upsample_nearest1d.out"
    with pytest.raises(GenerationError, match=r":3: symint: .* is structured, and takes int64_t"):
        read(f"{head}symint: [{name}]\nsupported:\n  - {{func: {name}, structured: true}}\n")


def torch_version(file: BackendFile) -> str:
    [note] = [each for each in file.notes if "unknown to torch" in each]
    return note.partition("unknown to torch ")[2].partition(":")[0]


def test_mlu(read: Read) -> None:
    file = read(MLU)
    assert file.cpp_namespace == "torch_mlu::ops"
    assert kernels(file) == {
        "PrivateUse1": {"cat.out": "cat_out_mlu", "lstm.input": ""},
        "AutogradPrivateUse1": {"lstm.input": "lstm_input_autograd"},
    }
    assert [
        (each.namespace, str(each.function.func.name), each.is_defined) for each in file.custom
    ] == [
        ("torchvision", "nms", False),
        ("torch_mlu", "mask_dropout", True),
    ]
    assert file.custom[1].function.tags == {"nondeterministic_seeded"}
    assert file.notes == ()


def test_npu(read: Read) -> None:
    file = read(NPU)
    assert (file.backend, file.device_guard, file.use_out_as_primary) == ("PrivateUse1", True, True)
    # The kernel of an operator that torch makes from others is for its gradient, too.
    assert kernels(file) == {
        "PrivateUse1": {"contiguous": "", "copy_": ""},
        "AutogradPrivateUse1": {"contiguous": ""},
    }
    assert [(str(each.function.func.name), [*each.entries]) for each in file.custom] == [
        ("copy_memory_", ["PrivateUse1"]),
        ("empty_like_it", ["CompositeExplicitAutograd"]),
    ]
    assert len(file.notes) == 2
    assert any("'abs' has no kernel" in note for note in file.notes)
    assert any("refuses the schema" in note and "line 14" in note for note in file.notes)


def test_op_plugin(read: Read) -> None:
    file = read(OP_PLUGIN)
    assert kernels(file) == {
        "PrivateUse1": {"abs": "", "add.out": "", "view": ""},
        "SparsePrivateUse1": {"add.out": ""},
    }
    assert not any(each.is_structured for each in file.supported)
    assert file.class_of("SparsePrivateUse1") == "SparsePrivateUse1NativeFunctions"
    assert file.symint == {"view", "npu_view"}
    assert [str(each.function.func.name) for each in file.custom] == ["npu_view"]
    [note] = file.notes
    assert "for other versions of torch" in note
    assert "'neg' (line 10)" in note


@pytest.mark.parametrize(
    ("listed", "torch", "expected"),
    [
        (["all_version"], "2.13.0+cpu", True),
        (["v2.1"], "2.13.0", False),
        (["v2.1", "v2.13"], "2.12.1", True),
        (["v2.5", "newest"], "2.4.0", False),
        (["v2.5", "newest"], "2.99.0", True),
        (["v2.1", "v2.5", "v2.6"], "2.3.0", False),
        (["v2.1", "v2.5", "v2.6"], "2.5.1", True),
    ],
)
def test_versions_of_op_plugin(listed: list[str], torch: str, expected: bool) -> None:
    assert names_version(listed, torch, ["v2.1", "v2.13"]) is expected


@pytest.mark.parametrize("key", ["XPU", "XLA"])
def test_one_unknown_operator_is_one_note(read: Read, key: str) -> None:
    file = read(f"backend: {key}\ncpp_namespace: at\nsupported:\n  - abs\n  - gone\n  - abs\n")
    assert kernels(file) == {key: {"abs": ""}}
    assert [re.sub("^.*yaml: ", "", note).partition(";")[0] for note in file.notes] == [
        f"unknown to torch {torch_version(file)}: 1: 'gone' (line 5)",
        "duplicate entries: 1: 'abs' (line 6)",
    ]


def test_the_successor_of_a_removed_operator_is_named(read: Read) -> None:
    listed = "supported:\n  - abs\n  - symeig.e\n  - _cat.out\n"
    [note] = read(f"backend: XLA\ncpp_namespace: at\n{listed}").notes
    assert "2: 'symeig.e', now 'linalg_eigh' (line 5), '_cat.out', now 'cat.out' (line 6);" in note
    own = f"backend: PrivateUse1\ncpp_namespace: a\n{listed}"
    with pytest.raises(GenerationError, match=r":5: .*'symeig.e', .* removed; write 'linalg_eigh'"):
        read(own)


def test_own_files_are_strict(read: Read) -> None:
    with pytest.raises(GenerationError, match=r"backend\.yaml:4: .*no operator 'gone'"):
        read("backend: PrivateUse1\ncpp_namespace: a\nsupported:\n  - gone\n")
    with pytest.raises(GenerationError, match=r":4: supported: unknown option 'kernels'"):
        read("backend: PrivateUse1\ncpp_namespace: a\nsupported:\n  - func: abs\n    kernels: a\n")


def test_own(read: Read) -> None:
    file = read(OWN)
    assert kernels(file) == {
        "PrivateUse1": {
            "maximum.out": "maximum_out",
            "minimum.out": "minimum_out",
            "abs": "",
            "neg": "Negate",
        },
        "SparsePrivateUse1": {"neg": "NegateSparse"},
    }
    assert [(each.namespace, str(each.function.func.name)) for each in file.custom] == [
        ("acme", "scale"),
        ("other", "shift_"),
    ]


@pytest.mark.parametrize("text", [OWN, KERNELS_OF_TORCH], ids=["own", "torch"])
def test_what_is_generated_compiles(
    read: Read, functions: NativeFunctions, tmp_path: Path, text: str
) -> None:
    check_syntax(render_backend(read(text), functions), tmp_path)


@pytest.mark.parametrize("path", sorted(Path(os.environ.get(FILES, "/-")).glob("*.yaml")), ids=str)
def test_the_files_of_existing_backends(
    functions: NativeFunctions, tmp_path: Path, path: Path
) -> None:
    check_syntax(render_backend(read_backend_file(path, functions), functions), tmp_path)


def check_syntax(files: dict[str, str], folder: Path) -> None:
    compiler, torch = shutil.which("g++"), find_spec("torch")
    if compiler is None or torch is None or not torch.submodule_search_locations:
        pytest.skip("needs g++ and the headers of torch")
    include = Path(torch.submodule_search_locations[0]) / "include"
    for name, text in files.items():
        (folder / name).write_text(text)
    command = [compiler, "-std=c++20", "-fsyntax-only", "-I", str(include), "-I", str(folder)]
    command += ["-I", str(include / "torch/csrc/api/include")]
    for name in files:
        if name.endswith(".cpp") and "Fallback" not in name:
            finished = subprocess.run(
                [*command, str(folder / name)], capture_output=True, text=True, check=False
            )
            assert finished.returncode == 0, (name, finished.stderr[:4000])
