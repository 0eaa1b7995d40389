"""What a backend registers with the dispatcher: its kernels, and wrappers made from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from codegen.aten import NativeFunctions
from codegen.backend import wrappers
from codegen.backend.model import BackendFile, Entry

if TYPE_CHECKING:
    from torchgen.model import BackendIndex, NativeFunction, NativeFunctionsGroup

# Backends that torch keeps functional: a structured out= kernel gives them nothing.
# c10/core/DispatchKey.cpp, non_functional_backend_dispatch_keyset
_FUNCTIONAL_BACKENDS = frozenset({"XLA", "Lazy"})

_COPIES = frozenset({"_copy_from", "_copy_from_and_resize"})


@dataclass(frozen=True, kw_only=True)
class Registration:
    """One operator overload under one dispatch key."""

    operator: str  # "add.Tensor"
    function: str  # expression: pointer to a function with the signature of the dispatcher
    definition: str = ""  # of that function, where it is not the kernel itself
    source: str = ""  # the operator from whose kernel it is derived
    header: str = ""  # that the definition needs: "add" of ATen/ops/add_ops.h


@dataclass(frozen=True, kw_only=True)
class Kernels:
    """The kernels that the file lists for one dispatch key, as torchgen's emitters want them."""

    file: BackendFile
    index: BackendIndex
    # Overrides of the autograd of operators, not their kernels.
    is_autograd: bool

    @property
    def key(self) -> str:
        return str(self.index.dispatch_key)

    def has(self, function: NativeFunction) -> bool:
        return bool(self.index.has_kernel(function))

    def is_symint(self, function: NativeFunction) -> bool:
        kernel = self.index.get_kernel(function)
        return kernel is not None and kernel.supports_symint()

    def guards(self, function: NativeFunction) -> bool:
        """Copies are between two devices: their kernels choose."""
        return self.file.device_guard and str(function.func.name) not in _COPIES

    def function(self, function: NativeFunction) -> str:
        """What to call for the kernel of ``function``, the guards of its device included."""
        if self.guards(function):
            return wrappers.name(self.key, function)
        return wrappers.kernel_name(self.file, self.index, function)


def make_kernels(
    file: BackendFile, entries: Sequence[Entry], parsed: NativeFunctions, *, is_autograd: bool
) -> Kernels:
    """The kernels of ``entries``, which name operators that ``parsed`` has."""
    from torchgen.model import BackendIndex, BackendMetadata, DispatchKey

    index = {}
    for entry in entries:
        function = parsed.by_name[entry.name]
        index[function.func.name] = BackendMetadata(
            kernel=wrappers.member_name(file, function),
            structured=False,
            cpp_namespace=f"::{file.cpp_namespace}",
        )
    return Kernels(
        file=file,
        index=BackendIndex(
            dispatch_key=DispatchKey.parse(f"{'Autograd' if is_autograd else ''}{file.backend}"),
            use_out_as_primary=file.use_out_as_primary,
            external=True,
            device_guard=file.device_guard,
            index=index,
        ),
        is_autograd=is_autograd,
    )


def make_registrations(kernels: Kernels, parsed: NativeFunctions) -> Iterator[Registration]:
    """All registrations of one dispatch key, in the order of torch's operators."""
    for function in parsed.functions:
        if kernels.has(function):
            yield _of_kernel(kernels, function)
            continue
        if str(function.func.name) == "_copy_from_and_resize":
            if kernels.has(copy_from := parsed.by_name["_copy_from"]):
                yield _copy_from_and_resize(kernels, function, copy_from)
            continue
        group = parsed.groups.get(str(function.func.name))
        if group is not None and (source := _source(kernels, group, function)):
            yield _derived(kernels, function, source)


def _of_kernel(kernels: Kernels, function: NativeFunction) -> Registration:
    operator = str(function.func.name)
    if kernels.guards(function):
        return Registration(
            operator=operator,
            function=f"&{wrappers.name(kernels.key, function)}",
            definition=wrappers.guarded(kernels.index, kernels.file.class_name, function),
        )
    pointer = wrappers.pointer_type(function, symint=kernels.is_symint(function))
    kernel = wrappers.kernel_name(kernels.file, kernels.index, function)
    # The kernel may be overloaded.
    return Registration(operator=operator, function=f"static_cast<{pointer}>(&{kernel})")


def _derived(kernels: Kernels, function: NativeFunction, source: NativeFunction) -> Registration:
    make = wrappers.COPYING if source.func.kind().name == "functional" else wrappers.ALLOCATING
    name = wrappers.name(kernels.key, function)
    return Registration(
        operator=str(function.func.name),
        function=f"&{name}",
        definition=make[function.func.kind().name](
            function,
            source,
            wrappers.Call(
                wrapper=name,
                kernel=kernels.function(source),
                symint=kernels.is_symint(source),
            ),
        ),
        source=str(source.func.name),
        header=function.root_name if function.func.kind().name == "functional" else "",
    )


def _copy_from_and_resize(
    kernels: Kernels, function: NativeFunction, copy_from: NativeFunction
) -> Registration:
    """Not a variant of ``_copy_from`` to torchgen; the CPU fallback needs both."""
    name = wrappers.name(kernels.key, function)
    return Registration(
        operator=str(function.func.name),
        function=f"&{name}",
        definition=wrappers.resizing(name, kernels.function(copy_from)),
        source=str(copy_from.func.name),
    )


def _source(
    kernels: Kernels, group: NativeFunctionsGroup, function: NativeFunction
) -> NativeFunction | None:
    """The kernel of the group to derive ``function`` from, if there is one that serves."""
    candidates = [group.functional, group.out]
    if kernels.file.use_out_as_primary:
        candidates.reverse()
    for source in candidates:
        if kernels.has(source) and _serves(kernels, source, function):
            return source
    return None


def _serves(kernels: Kernels, source: NativeFunction, function: NativeFunction) -> bool:
    if "inplace_view" in function.tags:
        return False  # it changes the argument, not the values in it
    kind = function.func.kind().name
    if source.func.kind().name == "functional":
        # torch's own kernel for all backends does better than a wrapper would: it ends in the out=
        # or functional one, and checks what that operator is particular about (``abs_`` refuses
        # complex numbers); a factory (``empty.out``) has nothing to copy.
        is_derived_by_torch = (
            function.has_composite_kernel
            if source.func.arguments.tensor_options is not None
            else function.has_composite_explicit_autograd_kernel
        )
        return wrappers.can_copy(function, source) and not is_derived_by_torch
    if kernels.is_autograd or has_composite(function, kernels.file.backend):
        return False
    if kind == "functional":
        return wrappers.can_allocate(function, source)
    return kind == "inplace" and wrappers.can_replace(function, source)


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
