"""The coverage report, and that it says what the dispatcher of the installed torch does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from codegen.backend.coverage import REQUIRED, Coverage, OverloadCoverage, Status, make_coverage
from codegen.backend.model import BackendFile, Entry
from codegen.backend.registrations import (
    Registration,
    has_composite,
    make_kernels,
    make_registrations,
)

if TYPE_CHECKING:
    from codegen.aten import NativeFunctions


@pytest.fixture(scope="module")
def bare(functions: NativeFunctions) -> Coverage:
    """Of a backend that has nothing."""
    return make_coverage(functions, "PrivateUse1", {})


def test_what_torch_computes_for_any_backend(functions: NativeFunctions) -> None:
    """Composite are exactly those for which the dispatcher has a kernel without a backend."""
    torch = pytest.importorskip("torch")
    if not torch.__version__.startswith(functions.torch_version.partition("+")[0]):
        pytest.skip("another torch than its torchgen")
    has_kernel = torch._C._dispatch_has_computed_kernel_for_dispatch_key
    wrong = [
        name
        for name, function in functions.by_name.items()
        if torch._C._dispatch_has_kernel(f"aten::{name}")
        and has_kernel(f"aten::{name}", "PrivateUse1") != has_composite(function, "PrivateUse1")
    ]
    assert wrong == []


def test_what_the_cpu_computes(bare: Coverage) -> None:
    """Of the operators that are not composite: those with a CPU kernel, except a few."""
    torch = pytest.importorskip("torch")
    has_kernel = torch._C._dispatch_has_computed_kernel_for_dispatch_key
    fallback = bare.with_status(Status.FALLBACK)
    assert len(fallback) > 500
    assert [each.name for each in fallback if not has_kernel(f"aten::{each.name}", "CPU")] == []
    without = {
        each.name
        for each in bare.with_status(Status.MISSING)
        if each.detail.startswith("no CPU kernel")
        and torch._C._dispatch_has_kernel(f"aten::{each.name}")
    }
    assert len(without) > 100
    assert [name for name in without if has_kernel(f"aten::{name}", "CPU")] == []


def test_what_every_backend_needs_is_named_first(bare: Coverage) -> None:
    """All of it but what the CPU fallback can do."""
    names = [each.name for each in bare.required_missing()]
    assert names == [name for name in REQUIRED if name != "_local_scalar_dense"]
    assert not {each.name for each in bare.other_missing()} & REQUIRED.keys()


@pytest.mark.parametrize("listed", [*REQUIRED])
def test_what_is_derived_from_a_required_kernel_is_not_required(
    functions: NativeFunctions, listed: str
) -> None:
    """A backend that lists only this operator gets the others from it, or needs them."""
    file = BackendFile(
        path=Path("npu.yaml"),
        backend="PrivateUse1",
        class_name="Kernels",
        cpp_namespace="npu",
        extra_headers=(),
        supported=(Entry(name=listed, line=1),),
        autograd=(),
        symint=frozenset(),
        use_out_as_primary=False,
        device_guard=False,
    )
    kernels = make_kernels(file, "PrivateUse1", file.supported, functions.by_name)
    derived = {each.operator for each in make_registrations(kernels, functions) if each.source}
    assert derived & REQUIRED.keys() == set()
    assert "_copy_from_and_resize" in derived or listed != "_copy_from"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("_copy_from_and_resize", "derived from _copy_from, which is missing"),
        ("cudnn_convolution", "no CPU kernel, only CUDA"),
        ("empty_strided", "creates tensors, which the CPU fallback itself needs"),
        ("view", "a view, which cannot share the memory of a copy on the CPU"),
        (
            "set_.source_Storage",
            "changes the argument itself, but the CPU fallback works on a copy",
        ),
        ("_nested_get_values", "no kernel in torch"),
        (
            "fbgemm_pack_gemm_matrix_fp16",
            "torch's kernel for all backends works only on torch's own devices",
        ),
        ("_to_sparse", "converts to a layout whose dispatch keys are not the backend's"),
    ],
)
def test_why_something_is_missing(bare: Coverage, name: str, reason: str) -> None:
    assert OverloadCoverage(name=name, status=Status.MISSING, detail=reason) in bare.overloads


def test_what_torch_has_a_kernel_of_that_serves_the_cpu_only(functions: NativeFunctions) -> None:
    kernel = Registration(operator="mode", function="&f")
    coverage = make_coverage(functions, "PrivateUse1", {"PrivateUse1": (kernel,)})
    names = [each.name for each in coverage.only_on_cpu()]
    assert {"conj_physical_", "kaiser_window", "mode.values"} <= set(names)
    assert "mode" not in names
    assert all(has_composite(functions.by_name[name], "PrivateUse1") for name in names)


def test_what_the_fallback_unit_has_a_default_for(
    functions: NativeFunctions, bare: Coverage
) -> None:
    """It replaces what torch lacks for new devices, and gives way to a kernel of the backend."""
    defaults = bare.defaults()
    assert {"unfold", "convolution_overrideable", "_thnn_fused_gru_cell"} <= defaults.keys()
    kernel = Registration(operator="unfold", function="&f")
    coverage = make_coverage(functions, "PrivateUse1", {"PrivateUse1": (kernel,)})
    assert defaults.keys() - coverage.defaults().keys() == {"unfold"}


@pytest.mark.parametrize("key", ["XLA", "Vulkan", "SparsePrivateUse1"])
def test_there_is_no_default_for_tensors_without_strides(
    functions: NativeFunctions, key: str
) -> None:
    assert make_coverage(functions, key, {}).defaults() == {}


def test_a_registration_decides(functions: NativeFunctions) -> None:
    kernel = Registration(operator="abs", function="&f")
    wrapper = Registration(operator="abs.out", function="&g", source="abs")
    coverage = make_coverage(functions, "PrivateUse1", {"PrivateUse1": (kernel, wrapper)})
    assert coverage.with_status(Status.SUPPORTED) == (
        OverloadCoverage(name="abs", status=Status.SUPPORTED, detail="PrivateUse1"),
    )
    assert coverage.with_status(Status.DERIVED) == (
        OverloadCoverage(name="abs.out", status=Status.DERIVED, detail="abs"),
    )
