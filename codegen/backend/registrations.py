"""The registrations of a backend with the dispatcher: its kernels, and wrappers of them.

torchgen generates the wrappers that guard the device. Its wrappers of out= and in-place functions
have problems: they need two kernels that a backend may not have, do not check the tensors that they
write, crash on mutable functions, and do not compile for lists. This module generates those
wrappers instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from codegen.aten import NativeFunctions
from codegen.backend import structured
from codegen.backend.model import BackendFile, Entry

if TYPE_CHECKING:
    from torchgen.api.types import DispatcherSignature
    from torchgen.model import Argument, BackendIndex, NativeFunction, NativeFunctionsGroup

# Torch functionalizes these backends, so a structured out= kernel is of no use to them.
#
# Source: c10/core/DispatchKey.cpp, non_functional_backend_dispatch_keyset
FUNCTIONAL_BACKENDS = frozenset({"XLA", "Lazy"})

_COPIES = frozenset({"_copy_from", "_copy_from_and_resize"})


@dataclass(frozen=True, kw_only=True)
class Kernels:
    """The kernels that the file lists for one dispatch key, as torchgen's emitters need them."""

    file: BackendFile
    index: BackendIndex
    # The kernels override the autograd of operators.
    is_autograd: bool
    entries: Mapping[str, Entry]  # by operator
    namespace: str = "aten"  # of the operators

    @property
    def key(self) -> str:
        return str(self.index.dispatch_key)

    def has(self, function: NativeFunction) -> bool:
        return bool(self.index.has_kernel(function))

    def is_structured(self, function: NativeFunction) -> bool:
        """True if the kernel is a class that serves all variants of the operator."""
        entry = self.entries.get(str(function.func.name))
        return entry is not None and entry.is_structured

    def is_in_torch(self, function: NativeFunction) -> bool:
        return self.entries[str(function.func.name)].is_in_torch

    def is_symint(self, function: NativeFunction) -> bool:
        """True if the kernel takes symbolic sizes."""
        return str(function.func.name) in self.file.symint

    def guards(self, function: NativeFunction) -> bool:
        """True if the device is guarded. Copies use two devices: their kernels choose one."""
        operator = str(function.func.name)
        entry = self.entries.get(operator)
        own = None if entry is None else entry.device_guard
        return (self.file.device_guard if own is None else own) and operator not in _COPIES

    def resolves_views(self, function: NativeFunction) -> bool:
        """True if the kernel gets the stored values of conjugate and negative views: it copies."""
        is_copy = self.namespace == "aten" and str(function.func.name) == "_copy_from"
        return is_copy and not self.is_autograd

    def wrapper(self, function: NativeFunction) -> str:
        """The name of the wrapper: torchgen's name, unique for an overload under the key."""
        prefix = f"wrapper_{self.key}_{function.func.name.overload_name}_"  # as torchgen's
        return str(_signature(function, prefix=prefix).name())

    def kernel(self, function: NativeFunction) -> str:
        """The qualified name of the kernel, which the author of the backend or torch defines."""
        metadata = self.index.get_kernel(function)
        assert metadata is not None
        if self.is_in_torch(function):
            return f"{metadata.cpp_namespace}::{metadata.kernel}"
        return f"::{self.file.cpp_namespace}::{self.file.class_of(self.key)}::{metadata.kernel}"

    def callee(self, function: NativeFunction) -> str:
        """The C++ function to call: the wrapper of the kernel, or the kernel itself."""
        is_wrapped = self.guards(function) or self.resolves_views(function)
        return self.wrapper(function) if is_wrapped else self.kernel(function)


def make_kernels(
    file: BackendFile,
    key: str,
    entries: Sequence[Entry],
    by_name: Mapping[str, NativeFunction],
    *,
    namespace: str = "aten",
) -> Kernels:
    """Collect the kernels of ``entries``, which name operators of ``by_name``, for a key."""
    from torchgen.model import BackendIndex, BackendMetadata, DispatchKey

    functions = {entry.name: by_name[entry.name] for entry in entries}
    index = BackendIndex(
        dispatch_key=DispatchKey.parse(key),
        use_out_as_primary=file.use_out_as_primary,
        external=True,
        device_guard=file.device_guard,
        index={
            functions[entry.name].func.name: BackendMetadata(
                kernel=entry.kernel or member_name(file, functions[entry.name]),
                structured=False,
                cpp_namespace="at::native" if entry.is_in_torch else f"::{file.cpp_namespace}",
            )
            for entry in entries
        },
    )
    return Kernels(
        file=file,
        index=index,
        is_autograd=key.startswith("Autograd"),
        entries={entry.name: entry for entry in entries},
        namespace=namespace,
    )


def member_name(file: BackendFile, function: NativeFunction) -> str:
    """The kernel's name in its class: torchgen's name, with a suffix if its sizes are symbolic."""
    from torchgen.api import dispatcher

    suffix = "_symint" if str(function.func.name) in file.symint else ""
    return str(dispatcher.name(function.func)) + suffix


@dataclass(frozen=True, kw_only=True)
class Registration:
    """One operator overload under one dispatch key."""

    operator: str  # "add.Tensor"
    function: str  # expression: pointer to a function with the signature of the dispatcher
    definition: str = ""  # definition of that function, unless it is the kernel itself
    source: str = ""  # the operator whose kernel it calls, if derived
    header: str = ""  # needed by the function: "add_ops" for ATen/ops/add_ops.h


# Generates a wrapper of one function that calls the kernel of another.
_WrapperMaker = Callable[[Kernels, "NativeFunction", "NativeFunction"], str]


def make_registrations(kernels: Kernels, parsed: NativeFunctions) -> Iterator[Registration]:
    """All registrations of one dispatch key, in the order of torch's operators."""
    for function in parsed.functions:
        operator = str(function.func.name)
        group = parsed.groups.get(operator)
        if kernels.has(function) and not kernels.is_structured(function):
            yield kernel_registration(kernels, function)
            continue
        if group and kernels.is_structured(group.out):
            if function.func.kind().name in structured.VARIANTS:
                yield _structured_registration(kernels, function, group)
            continue
        if operator == "_copy_from_and_resize":  # the CPU fallback needs both
            sources = [parsed.by_name["_copy_from"]]
        elif group:
            sources = [group.functional, group.out]
            if kernels.file.use_out_as_primary:
                sources.reverse()
        else:
            continue
        for source in filter(kernels.has, sources):
            if make := _choose_wrapper(kernels, source, function):
                yield _derived_registration(kernels, function, source, make)
                break


def kernel_registration(kernels: Kernels, function: NativeFunction) -> Registration:
    from torchgen.context import native_function_manager

    operator = str(function.func.name)
    header = f"{function.root_name}_native" if kernels.is_in_torch(function) else ""
    if kernels.guards(function):
        return Registration(
            operator=operator,
            function=f"&{kernels.wrapper(function)}",
            definition=_guarding_wrapper(kernels, function),
            header=header,
        )
    if kernels.resolves_views(function):
        return Registration(
            operator=operator,
            function=f"&{kernels.wrapper(function)}",
            definition=_resolving_wrapper(kernels, function),
        )
    with native_function_manager(function):  # the kernel may be overloaded
        pointer = _signature(function, symint=kernels.is_symint(function)).ptr_type()
    return Registration(
        operator=operator,
        function=f"static_cast<{pointer}>(&{kernels.kernel(function)})",
        header=header,
    )


def _structured_registration(
    kernels: Kernels, function: NativeFunction, group: NativeFunctionsGroup
) -> Registration:
    """A variant of an operator whose out= variant has a structured kernel."""
    entry = kernels.entries[str(group.out.func.name)]
    index = replace(kernels.index, device_guard=kernels.guards(group.out))
    name, definition = structured.define_variant(index, entry, group, function)
    return Registration(
        operator=str(function.func.name),
        function=f"&{name}",
        definition=definition,
        source="" if function is group.out else entry.name,
        header=f"{function.root_name}_native" if entry.is_in_torch else "",
    )


def _derived_registration(
    kernels: Kernels, function: NativeFunction, source: NativeFunction, make: _WrapperMaker
) -> Registration:
    return Registration(
        operator=str(function.func.name),
        function=f"&{kernels.wrapper(function)}",
        definition=make(kernels, function, source),
        source=str(source.func.name),
        header=f"{function.root_name}_ops" if make is _allocating_wrapper else "",
    )


def _choose_wrapper(
    kernels: Kernels, source: NativeFunction, function: NativeFunction
) -> _WrapperMaker | None:
    """How to derive ``function`` from the kernel of ``source``; None if that is not possible."""
    if str(function.func.name) == "_copy_from_and_resize":
        return _resizing_wrapper
    if "inplace_view" in function.tags:
        return None  # it changes the argument itself, not its values
    if source.func.kind().name == "functional":
        # For these, torch's own kernel for all backends is better than a wrapper. It calls the out=
        # or functional operator, and makes the checks of that operator (``abs_`` refuses complex
        # numbers). A factory (``empty.out``) has nothing to copy.
        is_derived_by_torch = (
            function.has_composite_kernel
            if source.func.arguments.tensor_options is not None
            else function.has_composite_explicit_autograd_kernel
        )
        serves = _can_copy(function, source) and not is_derived_by_torch
        return _copying_wrapper if serves else None
    if kernels.is_autograd or has_composite(function, kernels.file.backend):
        return None
    kind = function.func.kind().name
    if kind == "functional" and _can_allocate(function, source):
        return _allocating_wrapper
    if kind == "inplace" and _can_replace(function, source):
        return _replacing_wrapper
    return None


def has_composite(function: NativeFunction, backend: str) -> bool:
    """True if torch has a kernel for every backend, made from other operators."""
    if (
        function.has_composite_implicit_autograd_kernel
        or function.has_composite_explicit_autograd_kernel
    ):
        return True
    return backend not in FUNCTIONAL_BACKENDS and (
        function.has_composite_explicit_autograd_non_functional_kernel
        or function.structured_delegate is not None
    )


def notes_on_composites(file: BackendFile, parsed: NativeFunctions) -> Iterator[str]:
    """Yield a note if kernels replace operators of torch together with their gradients."""
    replaced = [
        f"'{entry.name}' (line {entry.line})"
        for entry in file.supported
        if parsed.by_name[entry.name].has_composite_implicit_autograd_kernel
    ]
    if replaced:
        yield (
            f"{file.path}: supported: CompositeImplicitAutograd in native_functions.yaml: "
            f"{', '.join(replaced)}. Torch computes such an operator, and its gradient, from other "
            f"operators. A kernel under supported replaces both: backward() fails on "
            f"{file.backend}. Remove it here and list the operators that it calls; or list it "
            "under autograd, where the kernel provides the gradient, too"
        )


def _guarding_wrapper(kernels: Kernels, function: NativeFunction) -> str:
    """The device-guarding wrapper: it checks that all arguments are on one device. By torchgen."""
    from torchgen.dest import RegisterDispatchKey
    from torchgen.model import DeviceCheckType
    from torchgen.selective_build.selector import SelectiveBuilder
    from torchgen.utils import Target

    operator = str(function.func.name)
    if not kernels.entries[operator].device_check:
        function = replace(function, device_check=DeviceCheckType.NoCheck)
    emitter = RegisterDispatchKey(
        # An entry can have a guard in a file without one.
        replace(kernels.index, device_guard=True),
        Target.ANONYMOUS_DEFINITION,
        SelectiveBuilder.get_nop_selector(),
        rocm=False,
        symint=kernels.is_symint(function),
        class_method_name=(
            None if kernels.is_in_torch(function) else kernels.file.class_of(kernels.key)
        ),
        skip_dispatcher_op_registration=False,
    )
    return str(emitter.gen_unstructured(function))


def _resolving_wrapper(kernels: Kernels, copy_from: NativeFunction) -> str:
    """Define ``_copy_from``: its kernel copies the stored values of its arguments."""
    parameters = "const at::Tensor & self, const at::Tensor & dst, bool non_blocking"
    return f"""\
at::Tensor {kernels.wrapper(copy_from)}({parameters}) {{
  return copy_stored_values(&{kernels.kernel(copy_from)}, self, dst, non_blocking);
}}
"""


def _can_copy(function: NativeFunction, functional: NativeFunction) -> bool:
    """True if ``functional`` returns exactly the values that ``function`` writes and returns."""
    return len(functional.func.returns) == len(_fresh_returns(function)) + len(
        _written_arguments(function)
    )


def _can_allocate(functional: NativeFunction, out: NativeFunction) -> bool:
    """True if the Meta key can compute the returned shapes, and ``out`` writes nothing else."""
    return (
        "dynamic_output_shape" not in functional.tags
        and functional.func.arguments.tensor_options is None
        and any(argument.type.is_tensor_like() for argument in functional.func.arguments.flat_all)
        and all(each.type.is_tensor_like() for each in functional.func.returns)
        and len(functional.func.returns)
        == len(_written_arguments(out))
        == len(out.func.arguments.out)
    )


def _can_replace(inplace: NativeFunction, out: NativeFunction) -> bool:
    """True if ``out`` writes one tensor, and ``inplace`` writes only ``self``."""
    return (
        len(_written_arguments(inplace))
        == len(_written_arguments(out))
        == len(out.func.arguments.out)
        == 1
    )


def _copying_wrapper(kernels: Kernels, function: NativeFunction, functional: NativeFunction) -> str:
    """Define an out=, in-place or mutable function: it copies the functional kernel's results."""
    given = _argument_expressions(function, functional)
    arguments = [given[each.name] for each in functional.func.arguments.flat_all]
    lines = [f"auto results_ = {kernels.callee(functional)}({', '.join(arguments)});"]
    count = len(functional.func.returns)
    fresh = len(_fresh_returns(function))
    results = [_element("results_", index, count) for index in range(count)]
    for result, written in zip(results[fresh:], _written_arguments(function), strict=True):
        verb = "write_out" if written in function.func.arguments.out else "update"
        lines.append(f"{verb}({result}, {written.name});")
    return _definition(kernels, function, functional, lines, results[:fresh])


def _allocating_wrapper(kernels: Kernels, functional: NativeFunction, out: NativeFunction) -> str:
    """Define a functional one: the Meta key computes shapes, the out= kernel writes the values."""
    from torchgen.api.translate import translate
    from torchgen.api.types import Expr
    from torchgen.context import native_function_manager

    arguments = functional.func.arguments.flat_all
    tensors = [each.name for each in arguments if each.type.is_tensor_like()]
    with native_function_manager(functional):
        given = [
            Expr(f"on_meta({each.name})", each.nctype) if each.name in tensors else each
            for each in _signature(functional, symint=kernels.is_symint(out)).arguments()
        ]
        wanted = _signature(functional, symint=True).arguments()
        on_meta = [each.expr for each in translate(given, wanted, method=False)]
    count = len(functional.func.returns)
    names = [f"out{index}_" for index in range(count)]
    devices = ", ".join(f"device_of({each})" for each in tensors)
    operator = f"at::_ops::{functional.func.name.unambiguous_name()}"
    lines = [
        f"auto shapes_ = {operator}::redispatch({', '.join(['kMeta_', *on_meta])});",
        f"const auto device_ = device_among({{{devices}}});",
    ]
    for index, each in enumerate(names):
        lines.append(f"auto {each} = empty_as({_element('shapes_', index, count)}, device_);")
    lines.append(_call_of_out(kernels, functional, out, names))
    return _definition(kernels, functional, out, lines, names)


def _replacing_wrapper(kernels: Kernels, inplace: NativeFunction, out: NativeFunction) -> str:
    """Define an in-place one with a temporary: an out= kernel may not support its input as out."""
    (written,) = _written_arguments(inplace)
    lines = [
        f"auto out0_ = empty_as({written.name});",
        _call_of_out(kernels, inplace, out, ["out0_"]),
        f"update(out0_, {written.name});",
    ]
    return _definition(kernels, inplace, out, lines, [])


def _resizing_wrapper(kernels: Kernels, function: NativeFunction, copy_from: NativeFunction) -> str:
    """Define ``_copy_from_and_resize``, which torchgen does not treat as a variant."""
    return f"""\
at::Tensor {kernels.wrapper(function)}(const at::Tensor & self, const at::Tensor & dst) {{
  if (self.sizes() != dst.sizes()) dst.resize_(self.sizes());
  return {kernels.callee(copy_from)}(self, dst, /*non_blocking=*/false);
}}
"""


def _call_of_out(
    kernels: Kernels, function: NativeFunction, out: NativeFunction, names: list[str]
) -> str:
    outs = [each.name for each in out.func.arguments.out]
    given = {**_argument_expressions(function, out), **dict(zip(outs, names, strict=True))}
    arguments = [given[each.name] for each in out.func.arguments.flat_all]
    return f"{kernels.callee(out)}({', '.join(arguments)});"


def _argument_expressions(function: NativeFunction, kernel: NativeFunction) -> dict[str, str]:
    """C++ expressions for the arguments of ``kernel`` in a wrapper of ``function``."""
    given = {each.name: each.name for each in function.func.arguments.flat_all}
    if kernel.func.arguments.tensor_options is not None:
        out = function.func.arguments.out[0].name
        given |= {
            "dtype": f"{out}.scalar_type()",
            "layout": f"{out}.layout()",
            "device": f"{out}.device()",
            "pin_memory": "::std::nullopt",
        } | given
    return given


def _definition(
    kernels: Kernels,
    function: NativeFunction,
    source: NativeFunction,
    lines: list[str],
    returned: list[str],
) -> str:
    """The wrapper of ``function`` around the kernel of ``source``; both symbolic, or neither."""
    from torchgen.context import native_function_manager

    with native_function_manager(function):
        signature = _signature(function, symint=kernels.is_symint(source))
        head = signature.defn(name=kernels.wrapper(function))
        type_ = signature.returns_type().cpp_type()
    written = {
        str(each.annotation): each.name for each in _written_arguments(function) if each.annotation
    }
    # Moving a whole local variable out keeps the compiler from building it in place.
    move = "{}" if len(function.func.returns) == 1 else "std::move({})"
    fresh = map(move.format, returned)
    values = [
        next(fresh) if each.annotation is None else written[str(each.annotation)]
        for each in function.func.returns
    ]
    if values:
        value = values[0] if len(values) == 1 else f"{type_}({', '.join(values)})"
        lines = [*lines, f"return {value};"]
    body = "".join(f"  {line}\n" for line in lines)
    return f"{head} {{\n{body}}}\n"


def _element(variable: str, index: int, count: int) -> str:
    return variable if count == 1 else f"std::get<{index}>({variable})"


def _written_arguments(function: NativeFunction) -> list[Argument]:
    """The written arguments, in the order in which the functional variant returns them."""
    arguments = function.func.arguments
    return [*arguments.out, *(each for each in arguments.flat_non_out if each.is_write)]


def _fresh_returns(function: NativeFunction) -> list[object]:
    return [each for each in function.func.returns if each.annotation is None]


def _signature(
    function: NativeFunction, *, symint: bool = True, prefix: str = ""
) -> DispatcherSignature:
    from torchgen.api.types import DispatcherSignature

    return DispatcherSignature.from_schema(function.func, prefix=prefix, symint=symint)
