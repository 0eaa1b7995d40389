"""The files of a backend, from the functions of the installed torch."""

from __future__ import annotations

import dataclasses
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from codegen.backend.document import read_backend_file
from codegen.backend.emit import render_backend
from codegen.backend.model import BackendFile, DispatchKeys, Entry

if TYPE_CHECKING:
    from codegen.aten import NativeFunctions

GOLDEN = Path(__file__).parent / "golden" / "backend"
GOLDEN_TORCH = "2.13.0"
UPDATE = "INFINI_OPS_UPDATE_GOLDEN"

UNSCALE = "_amp_foreach_non_finite_check_and_unscale"

# One of each shape, with what it shows.
SUPPORTED = (
    "_copy_from",  # copies of conjugate and negative views, _copy_from_and_resize
    "empty.memory_format",  # a factory: empty.out is torch's
    "empty_strided",
    "view",  # a symbolic size
    "abs",  # abs.out is derived, abs_ left to torch
    "add.Tensor",  # out= and in-place
    "arange.start_step",  # a factory with an out= that torch lacks
    "cat",  # a list of tensors
    "median.dim",  # two outputs
    UNSCALE,  # in-place lists, which return nothing
    "_native_batch_norm_legit_functional",  # arguments that are written beside the outputs
    "mul.out",  # structured: functional and in-place are torch's
    "glu_backward.grad_input",  # functional from out=
    "hardswish.out",  # functional and in-place from out=
    "log_sigmoid_forward.output",  # two outputs, one of them a workspace
    "masked_select.out",  # the size of the result is unknown
    "searchsorted.Tensor_out",  # an optional tensor, an optional string
    "resize_",  # an argument that changes itself
)
AUTOGRAD = ("mm",)


def backend_file(
    supported: tuple[str, ...] = SUPPORTED, autograd: tuple[str, ...] = AUTOGRAD, **changes: Any
) -> BackendFile:
    file = BackendFile(
        path=Path("demo.yaml"),
        backend="PrivateUse1",
        class_name="DemoFunctions",
        cpp_namespace="demo::native",
        extra_headers=('"demo/types.h"', "<vector>"),
        supported=tuple(Entry(name=name, line=1) for name in supported),
        autograd=tuple(Entry(name=name, line=1) for name in autograd),
        symint=frozenset({"view"}),
        use_out_as_primary=False,
        device_guard=False,
    )
    return dataclasses.replace(file, **changes)


def only(functions: NativeFunctions, file: BackendFile) -> NativeFunctions:
    """A torch that has only the operators of the file and their variants."""
    listed = {functions.by_name[each.name].root_name for each in (*file.supported, *file.autograd)}
    listed |= {"_copy_from_and_resize", "_native_batch_norm_legit", "as_strided", "conj_physical"}
    chosen = tuple(each for each in functions.functions if each.root_name in listed)
    return dataclasses.replace(functions, functions=chosen)


def registered(text: str) -> dict[str, str]:
    """What a file registers: the function by operator, under its first key."""
    block = text[text.index("TORCH_LIBRARY_IMPL") :].split("\n}\n")[0]
    return dict(re.findall(r'm\.impl\("([^"]+)", (.*)\);', block))


@pytest.mark.parametrize(
    ("folder", "changes"),
    [
        ("plain", {}),
        (
            "guarded",
            {
                "supported": ("_copy_from", "add.Tensor", "add.out", "glu_backward.grad_input"),
                "autograd": (),
                "device_guard": True,
                "use_out_as_primary": True,
            },
        ),
    ],
)
def test_golden_files(functions: NativeFunctions, folder: str, changes: dict[str, Any]) -> None:
    """The generated text, to be read in review.

    After a wanted change: ``INFINI_OPS_UPDATE_GOLDEN=1 pytest tests/codegen``.
    """
    if not functions.torch_version.startswith(GOLDEN_TORCH):
        pytest.skip(f"golden files are of torch {GOLDEN_TORCH}, not {functions.torch_version}")
    file = backend_file(**changes)
    files = render_backend(file, only(functions, file))
    files = {name: text.replace(functions.torch_version, "TORCH") for name, text in files.items()}
    target = GOLDEN / folder
    if os.environ.get(UPDATE):
        target.mkdir(parents=True, exist_ok=True)
        for path in target.iterdir():
            path.unlink()
        for name, text in files.items():
            (target / name).write_text(text)
    assert {path.name for path in target.iterdir()} == files.keys()
    for name, text in files.items():
        assert text == (target / name).read_text(), name


def test_every_key_that_a_file_may_name(functions: NativeFunctions, tmp_path: Path) -> None:
    """Most of them have no key for autograd."""
    keys = DispatchKeys(functions)
    assert len(keys.free) > 50
    for key in keys.free:
        path = tmp_path / f"{key}.yaml"
        path.write_text(
            f"backend: {key}\ncpp_namespace: demo\ndevice_guard: true\n"
            "supported: [abs, add.out, _copy_from]\n"
            f"autograd: {'[mm]' if keys.has_autograd(key) else '~'}\n"
        )
        file = read_backend_file(path, functions)
        files = render_backend(file, only(functions, file))
        registering = [key, *([f"Autograd{key}"] if keys.has_autograd(key) else [])]
        assert {name for name in files if name.endswith(".cpp")} == {
            *(f"Register{each}.cpp" for each in registering),
            f"Register{key}Fallback.cpp",
        }
        for each in registering:
            assert f"TORCH_LIBRARY_IMPL(aten, {each}, m)" in files[f"Register{each}.cpp"]


def derived(functions: NativeFunctions, *supported: str, **changes: Any) -> set[str]:
    """Return the registrations beside ``supported``."""
    text = render_backend(backend_file(supported, (), **changes), functions)
    return registered(text["RegisterPrivateUse1.cpp"]).keys() - set(supported)


@pytest.mark.parametrize(
    ("supported", "expected"),
    [
        ("add.Tensor", {"add_.Tensor", "add.out"}),
        ("add.out", set()),  # structured
        ("abs", {"abs.out"}),  # abs_ checks more than a wrapper
        ("hardswish.out", {"hardswish", "hardswish_"}),
        ("masked_select.out", set()),  # a size that depends on values
        ("_empty_per_channel_affine_quantized.out", set()),  # a factory, of tensors too
        ("_foreach_add.Scalar", set()),  # torch loops over the tensors
        # Lists, and an argument that is written beside them.
        (UNSCALE, {f"{UNSCALE}_"}),
        (
            "rrelu_with_noise_functional",
            {"rrelu_with_noise", "rrelu_with_noise_", "rrelu_with_noise.out"},
        ),
        ("empty.memory_format", set()),
        ("arange.start_step", {"arange.start_out"}),
        ("transpose.int", set()),  # transpose_ does not copy
        ("resize", set()),
        ("_copy_from", {"_copy_from_and_resize"}),
    ],
)
def test_what_is_derived(functions: NativeFunctions, supported: str, expected: set[str]) -> None:
    assert derived(functions, supported) == expected


def test_the_source_of_an_in_place_function(functions: NativeFunctions) -> None:
    """With both kernels it is the functional one, unless the file says otherwise."""
    both = ("hardswish", "hardswish.out")
    texts = [
        render_backend(backend_file(both, (), use_out_as_primary=primary), functions)[
            "RegisterPrivateUse1.cpp"
        ]
        for primary in (False, True)
    ]
    kernel = "::demo::native::DemoFunctions::hardswish"
    assert [f"auto results_ = {kernel}(self);" in text for text in texts] == [True, False]
    assert [f"{kernel}_out(self, out0_);" in text for text in texts] == [False, True]


def test_a_functional_backend_gets_nothing_from_structured_kernels(
    functions: NativeFunctions,
) -> None:
    files = render_backend(backend_file(("add.out",), (), backend="XLA"), functions)
    assert registered(files["RegisterXLA.cpp"]).keys() == {"add.out", "add.Tensor", "add_.Tensor"}


def test_only_copies_are_free_of_a_device_guard(functions: NativeFunctions) -> None:
    """They are between two devices, and torchgen would refuse that."""
    file = backend_file(("_copy_from", "add.Tensor", "eye"), (), device_guard=True)
    text = render_backend(file, functions)["RegisterPrivateUse1.cpp"]
    kernels = registered(text)
    assert kernels["_copy_from"] == "&wrapper_PrivateUse1___copy_from"
    wrapper = text.split("wrapper_PrivateUse1___copy_from(")[1].partition("\n}\n")[0]
    assert "copy_stored_values" in wrapper
    assert "guard" not in wrapper
    assert kernels["add.Tensor"] == "&wrapper_PrivateUse1_Tensor_add"
    assert "const OptionalDeviceGuard device_guard(device_of(self));" in text
    assert "const DeviceGuard device_guard(device_or_default(device));" in text
