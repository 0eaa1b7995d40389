"""What a backend registers with the dispatcher: its kernels, and wrappers made from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from codegen.aten import NativeFunctions
from codegen.backend import wrappers
from codegen.backend.wrappers import Kernels

if TYPE_CHECKING:
    from torchgen.model import NativeFunction

# Backends that torch keeps functional: a structured out= kernel gives them nothing.
# c10/core/DispatchKey.cpp, non_functional_backend_dispatch_keyset
_FUNCTIONAL_BACKENDS = frozenset({"XLA", "Lazy"})

# Writes the wrapper of one function that calls the kernel of another.
_Make = Callable[["Kernels", "NativeFunction", "NativeFunction"], str]


@dataclass(frozen=True, kw_only=True)
class Registration:
    """One operator overload under one dispatch key."""

    operator: str  # "add.Tensor"
    function: str  # expression: pointer to a function with the signature of the dispatcher
    definition: str = ""  # of that function, where it is not the kernel itself
    source: str = ""  # the operator from whose kernel it is derived
    header: str = ""  # that the definition needs: "add" of ATen/ops/add_ops.h


def make_registrations(kernels: Kernels, parsed: NativeFunctions) -> Iterator[Registration]:
    """All registrations of one dispatch key, in the order of torch's operators."""
    for function in parsed.functions:
        operator = str(function.func.name)
        if kernels.has(function):
            yield _of_kernel(kernels, function)
            continue
        if operator == "_copy_from_and_resize":  # the CPU fallback needs both
            sources = [parsed.by_name["_copy_from"]]
        elif group := parsed.groups.get(operator):
            sources = [group.functional, group.out]
            if kernels.file.use_out_as_primary:
                sources.reverse()
        else:
            continue
        for source in filter(kernels.has, sources):
            if make := _make(kernels, source, function):
                yield _derived(kernels, function, source, make)
                break


def _of_kernel(kernels: Kernels, function: NativeFunction) -> Registration:
    operator = str(function.func.name)
    if kernels.guards(function):
        return Registration(
            operator=operator,
            function=f"&{kernels.wrapper(function)}",
            definition=wrappers.guarded(kernels, function),
        )
    # The kernel may be overloaded.
    pointer = wrappers.pointer_type(kernels, function)
    return Registration(
        operator=operator, function=f"static_cast<{pointer}>(&{kernels.kernel(function)})"
    )


def _derived(
    kernels: Kernels, function: NativeFunction, source: NativeFunction, make: _Make
) -> Registration:
    return Registration(
        operator=str(function.func.name),
        function=f"&{kernels.wrapper(function)}",
        definition=make(kernels, function, source),
        source=str(source.func.name),
        header=function.root_name if make is wrappers.allocating else "",
    )


def _make(kernels: Kernels, source: NativeFunction, function: NativeFunction) -> _Make | None:
    """How to derive ``function`` from the kernel of ``source``, if that serves."""
    if str(function.func.name) == "_copy_from_and_resize":
        return wrappers.resizing
    if "inplace_view" in function.tags:
        return None  # it changes the argument, not the values in it
    if source.func.kind().name == "functional":
        # torch's own kernel for all backends does better than a wrapper would: it ends in the out=
        # or functional one, and checks what that operator is particular about (``abs_`` refuses
        # complex numbers); a factory (``empty.out``) has nothing to copy.
        is_derived_by_torch = (
            function.has_composite_kernel
            if source.func.arguments.tensor_options is not None
            else function.has_composite_explicit_autograd_kernel
        )
        serves = wrappers.can_copy(function, source) and not is_derived_by_torch
        return wrappers.copying if serves else None
    if kernels.is_autograd or has_composite(function, kernels.file.backend):
        return None
    kind = function.func.kind().name
    if kind == "functional" and wrappers.can_allocate(function, source):
        return wrappers.allocating
    if kind == "inplace" and wrappers.can_replace(function, source):
        return wrappers.replacing
    return None


def has_composite(function: NativeFunction, backend: str) -> bool:
    """Whether torch has a kernel for every backend, made from other operators."""
    if (
        function.has_composite_implicit_autograd_kernel
        or function.has_composite_explicit_autograd_kernel
    ):
        return True
    return backend not in _FUNCTIONAL_BACKENDS and (
        function.has_composite_explicit_autograd_non_functional_kernel
        or function.structured_delegate is not None
    )
