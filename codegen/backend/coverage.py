"""How every operator of torch is computed on a backend."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from codegen.aten import NativeFunctions
from codegen.backend.registrations import FUNCTIONAL_BACKENDS, Registration, has_composite

if TYPE_CHECKING:
    from torchgen.model import NativeFunction

SCHEMA_VERSION = 1

# Without these operators little works, no fallback can replace them, and no other kernel provides
# them: _copy_from_and_resize is derived from _copy_from.
REQUIRED: Mapping[str, str] = {
    "empty.memory_format": "makes tensors",
    "empty_strided": "makes tensors with strides: to(), results of the CPU fallback",
    "_copy_from": "copies to, from and on the device: to(), copy_(), the CPU fallback",
    "as_strided": "views: slices, transposed and expanded tensors",
    "view": "views with another shape",
    "_reshape_alias": "reshape() of tensors that are not contiguous",
    "resize_": "out= arguments take the shape of the result",
    "set_.source_Storage": "tensors on given storage: torch.load()",
    "set_.source_Storage_storage_offset": "tensors on given storage: copy.deepcopy()",
    "_local_scalar_dense": "item(), printing",
}
# Torch has a kernel of these operators for every backend, but it works only on torch's own devices:
# it dereferences the addresses of elements, or looks for a kernel in a table that has none for
# other devices. The generated fallback runs them on the CPU. Neither the schemas nor the dispatcher
# know these operators: only calls on a device show them, which tests/codegen/test_minimal_device.py
# makes.
ONLY_ON_CPU = frozenset(
    {
        *("_batch_norm_no_update", "_grid_sampler_2d_cpu_fallback"),
        *("_grid_sampler_2d_cpu_fallback_backward", "_nnpack_spatial_convolution"),
        *("_reshape_from_tensor", "_saturate_weight_to_fp16", "_sobol_engine_draw"),
        "_sobol_engine_ff_",
        *("_sobol_engine_initialize_state_", "_sobol_engine_scramble_", "_stack.out"),
        *("choose_qparams_optimized", "conj_physical_", "mkldnn_convolution"),
        *("kaiser_window", "kaiser_window.beta", "kaiser_window.periodic"),
        *("mode.values", "range.out_"),
    }
)
# These operators pack weights into a form that only the CPU can read.
_PACKING = "fbgemm_"
# These create tensors of another layout, which the CPU fallback can't copy to the device.
_TO_OTHER_LAYOUTS = frozenset({"_to_sparse", "to_mkldnn"})
_ALLOCATIONS = frozenset({"empty.memory_format", "empty_strided"})


@dataclass(frozen=True, kw_only=True)
class Default:
    """A kernel in the generated fallback unit, for a backend that lists none of its own."""

    function: str  # expression, as m.impl takes it
    how: str
    header: str = ""  # needed by the function: "unfold_native" for ATen/ops/unfold_native.h


def _native(function: str, header: str, how: str) -> Default:
    return Default(function=f"TORCH_FN(at::native::{function})", how=how, header=f"{header}_native")


def _boxed(function: str, how: str) -> Default:
    return Default(
        function=f"torch::CppFunction::makeFromBoxedFunction<&{function}>()",
        how=how,
    )


_VIEW = "torch's own view"
_CELL = "from other operators, because torch has a kernel for CUDA only"
# Torch has these for its own devices only, and the CPU fallback can't replace them.
_DEFAULTS: Mapping[str, Default] = {
    "unfold": _native("unfold", "unfold", _VIEW),
    "view_as_complex": _native("view_as_complex", "view_as_complex", _VIEW),
    "view_as_real": _native("view_as_real", "view_as_real", _VIEW),
    "set_": Default(function="&set_to_nothing", how="from set_.source_Storage_storage_offset"),
    "set_.source_Tensor": _native("set_tensor_", "set", "from set_.source_Storage_storage_offset"),
    "convolution_overrideable": _boxed("convolution_on_cpu", "convolution on the CPU"),
    "convolution_backward_overrideable": _boxed(
        "convolution_backward_on_cpu", "convolution_backward on the CPU"
    ),
    "_thnn_fused_lstm_cell": Default(function="&lstm_cell", how=_CELL, header="cat_ops"),
    "_thnn_fused_lstm_cell_backward_impl": Default(
        function="&lstm_cell_backward", how=_CELL, header="cat_ops"
    ),
    "_thnn_fused_gru_cell": Default(function="&gru_cell", how=_CELL, header="cat_ops"),
    "_thnn_fused_gru_cell_backward": Default(
        function="&gru_cell_backward", how=_CELL, header="cat_ops"
    ),
}


class Status(str, Enum):
    """How an overload is computed on the backend."""

    SUPPORTED = "supported"  # by a kernel of the backend
    DERIVED = "derived"  # by a generated wrapper of such a kernel
    GENERATED = "generated"  # by a default in the generated fallback unit
    COMPOSITE = "composite"  # by torch, from other operators
    FALLBACK = "fallback"  # on the CPU
    MISSING = "missing"  # not at all


# The meaning of the detail of an overload, by status.
_DETAILS = {
    Status.SUPPORTED: "key",
    Status.DERIVED: "source",
    Status.GENERATED: "how",
    Status.MISSING: "reason",
}


@dataclass(frozen=True, kw_only=True)
class OverloadCoverage:
    name: str
    status: Status
    # The dispatch key of the kernel, the operator that it is derived from, how the generated one
    # works, or why it is missing.
    detail: str = ""

    def fields(self) -> dict[str, str]:
        detail = {_DETAILS[self.status]: self.detail} if self.status in _DETAILS else {}
        return {"name": self.name, "status": self.status.value, **detail}


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """All overloads of a torch, sorted by name."""

    backend: str
    torch_version: str
    overloads: tuple[OverloadCoverage, ...]

    def with_status(self, status: Status) -> tuple[OverloadCoverage, ...]:
        return tuple(each for each in self.overloads if each.status == status)

    def share(self, status: Status) -> float:
        """The share of overloads with this status, in percent."""
        return round(100 * len(self.with_status(status)) / len(self.overloads), 1)

    def only_on_cpu(self) -> tuple[OverloadCoverage, ...]:
        """Fallback overloads with a torch kernel, which torch would use instead of the CPU."""
        return tuple(each for each in self.with_status(Status.FALLBACK) if each.name in ONLY_ON_CPU)

    def packing(self) -> tuple[OverloadCoverage, ...]:
        """Missing overloads of which torch has a kernel that ends the process on other devices."""
        missing = self.with_status(Status.MISSING)
        return tuple(each for each in missing if each.name.startswith(_PACKING))

    def defaults(self) -> dict[str, Default]:
        return {each.name: _DEFAULTS[each.name] for each in self.with_status(Status.GENERATED)}

    def required_missing(self) -> tuple[OverloadCoverage, ...]:
        """Missing overloads of ``REQUIRED``, in the order in which a backend needs them."""
        missing = {each.name: each for each in self.with_status(Status.MISSING)}
        return tuple(missing[name] for name in REQUIRED if name in missing)

    def other_missing(self) -> tuple[OverloadCoverage, ...]:
        return tuple(each for each in self.with_status(Status.MISSING) if each.name not in REQUIRED)


def make_coverage(
    parsed: NativeFunctions,
    backend: str,
    registrations: Mapping[str, tuple[Registration, ...]],
) -> Coverage:
    """Compute the status of every overload; ``registrations`` lists them for each dispatch key."""
    registered = {
        each.operator: OverloadCoverage(
            name=each.operator,
            status=Status.DERIVED if each.source else Status.SUPPORTED,
            detail=each.source or key,
        )
        for key, key_registrations in registrations.items()
        for each in key_registrations
    }
    overloads = [
        registered.get(str(function.func.name)) or _classify_unregistered(parsed, backend, function)
        for function in parsed.functions
    ]
    return Coverage(
        backend=backend,
        torch_version=parsed.torch_version,
        overloads=tuple(sorted(overloads, key=lambda each: each.name)),
    )


def _classify_unregistered(
    parsed: NativeFunctions, backend: str, function: NativeFunction
) -> OverloadCoverage:
    name = str(function.func.name)
    if name in _DEFAULTS and is_strided(backend):
        return OverloadCoverage(name=name, status=Status.GENERATED, detail=_DEFAULTS[name].how)
    if name in ONLY_ON_CPU:
        return OverloadCoverage(name=name, status=Status.FALLBACK)
    if has_composite(function, backend) and not name.startswith(_PACKING):
        return OverloadCoverage(name=name, status=Status.COMPOSITE)
    reason = _why_no_fallback(parsed, function)
    status = Status.MISSING if reason else Status.FALLBACK
    return OverloadCoverage(name=name, status=status, detail=reason)


def is_strided(backend: str) -> bool:
    """True if tensors with this key have strides and a storage; torch functionalizes others."""
    from torchgen.model import BACKEND_COMPONENTS

    return backend in map(str, BACKEND_COMPONENTS) and backend not in FUNCTIONAL_BACKENDS


def _why_no_fallback(parsed: NativeFunctions, function: NativeFunction) -> str:
    """Why at::native::cpu_fallback cannot compute the function; "" if it can."""
    name = str(function.func.name)
    keys = sorted(
        str(key) for key, index in parsed.backend_indices.items() if index.has_kernel(function)
    )
    if name.startswith(_PACKING):
        return "torch's kernel for all backends works only on torch's own devices"
    if name == "_copy_from_and_resize":
        return "derived from _copy_from, which is missing"
    if "CPU" not in keys:
        return f"no CPU kernel, only {', '.join(keys)}" if keys else "no kernel in torch"
    if "inplace_view" in function.tags:
        return "changes the argument itself, but the CPU fallback works on a copy"
    if function.is_view_op:
        return "a view, which cannot share the memory of a copy on the CPU"
    if function.root_name in _TO_OTHER_LAYOUTS:
        return "converts to a layout whose dispatch keys are not the backend's"
    if name in _ALLOCATIONS:
        return "creates tensors, which the CPU fallback itself needs"
    arguments = function.func.arguments.flat_all
    if not any(each.type.is_tensor_like() or str(each.type) == "Device?" for each in arguments):
        return "no argument selects the backend"
    return ""


def render_json(coverage: Coverage) -> str:
    """Render ``coverage.json``, one overload per line."""
    head = {
        "schema_version": SCHEMA_VERSION,
        "torch_version": coverage.torch_version,
        "backend": coverage.backend,
        "total": len(coverage.overloads),
        "counts": {status.value: len(coverage.with_status(status)) for status in Status},
        "percent": {status.value: coverage.share(status) for status in Status},
        "required_missing": [each.name for each in coverage.required_missing()],
    }
    lines = ",\n".join(json.dumps(each.fields()) for each in coverage.overloads)
    return f'{json.dumps(head)[:-1]},\n"overloads": [\n{lines}\n]}}\n'
