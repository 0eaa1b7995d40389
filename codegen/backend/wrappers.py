"""The C++ of functions between the dispatcher and the kernels of a backend.

torchgen writes those that guard the device. Its own wrappers of out= and in-place functions
need two kernels that a backend may not have, do not check what they write into, crash on
mutable functions and do not compile for lists: they are written here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from codegen.backend.model import BackendFile

if TYPE_CHECKING:
    from torchgen.api.types import DispatcherSignature
    from torchgen.model import Argument, BackendIndex, NativeFunction


@dataclass(frozen=True, kw_only=True)
class Call:
    """Which function to write, and which kernel it calls."""

    wrapper: str
    kernel: str
    symint: bool  # both: a size of the kernel may be symbolic


def name(key: str, function: NativeFunction) -> str:
    """Unique for an overload under a key, and as torchgen calls them."""
    prefix = f"wrapper_{key}_{function.func.name.overload_name}_"
    return str(_signature(function, prefix=prefix).name())


def member_name(file: BackendFile, function: NativeFunction) -> str:
    """The kernel in its class: torchgen's name, marked where its sizes are symbolic."""
    from torchgen.api import dispatcher

    suffix = "_symint" if str(function.func.name) in file.symint else ""
    return str(dispatcher.name(function.func)) + suffix


def kernel_name(file: BackendFile, index: BackendIndex, function: NativeFunction) -> str:
    """The kernel that the owner of the backend writes."""
    kernel = index.get_kernel(function)
    assert kernel is not None
    return f"{kernel.cpp_namespace}::{file.class_name}::{kernel.kernel}"


def pointer_type(function: NativeFunction, *, symint: bool) -> str:
    from torchgen.context import native_function_manager

    with native_function_manager(function):
        return str(_signature(function, symint=symint).ptr_type())


def guarded(index: BackendIndex, class_name: str, function: NativeFunction) -> str:
    """Checks that all arguments are on one device and makes it the current one, by torchgen."""
    from torchgen.dest import RegisterDispatchKey
    from torchgen.selective_build.selector import SelectiveBuilder
    from torchgen.utils import Target

    kernel = index.get_kernel(function)
    assert kernel is not None
    emitter = RegisterDispatchKey(
        index,
        Target.ANONYMOUS_DEFINITION,
        SelectiveBuilder.get_nop_selector(),
        rocm=False,
        symint=kernel.supports_symint(),
        class_method_name=class_name,
        skip_dispatcher_op_registration=False,
    )
    return str(emitter.gen_unstructured(function))


def can_copy(function: NativeFunction, functional: NativeFunction) -> bool:
    """Whether what ``functional`` returns is all that ``function`` writes and returns."""
    return len(functional.func.returns) == len(_fresh_returns(function)) + len(_written(function))


def can_allocate(functional: NativeFunction, out: NativeFunction) -> bool:
    """Whether the Meta key can tell what ``functional`` returns, and ``out`` writes only that."""
    return (
        "dynamic_output_shape" not in functional.tags
        and functional.func.arguments.tensor_options is None
        and any(argument.type.is_tensor_like() for argument in functional.func.arguments.flat_all)
        and all(each.type.is_tensor_like() for each in functional.func.returns)
        and len(functional.func.returns) == len(_written(out)) == len(out.func.arguments.out)
    )


def can_replace(inplace: NativeFunction, out: NativeFunction) -> bool:
    """Whether ``out`` writes one thing, and ``inplace`` nothing but ``self``."""
    return len(_written(inplace)) == len(_written(out)) == len(out.func.arguments.out) == 1


def _copying(function: NativeFunction, functional: NativeFunction, call: Call) -> str:
    """An out=, in-place or mutable function: copies what the functional kernel returns."""
    given = _given(function, functional)
    arguments = [given[each.name] for each in functional.func.arguments.flat_all]
    lines = [f"auto results_ = {call.kernel}({', '.join(arguments)});"]
    count = len(functional.func.returns)
    fresh = len(_fresh_returns(function))
    results = [_element("results_", index, count) for index in range(count)]
    for result, written in zip(results[fresh:], _written(function), strict=True):
        verb = "write_out" if written in function.func.arguments.out else "update"
        lines.append(f"{verb}({result}, {written.name});")
    return _definition(function, call, lines, [f"std::move({each})" for each in results[:fresh]])


def _allocating(functional: NativeFunction, out: NativeFunction, call: Call) -> str:
    """A functional one: the Meta key tells the shapes, the out= kernel writes the values."""
    from torchgen.api.translate import translate
    from torchgen.api.types import Expr
    from torchgen.context import native_function_manager

    tensors = {
        each.name for each in functional.func.arguments.flat_all if each.type.is_tensor_like()
    }
    with native_function_manager(functional):
        given = [
            Expr(f"on_meta({each.name})", each.nctype) if each.name in tensors else each
            for each in _signature(functional, symint=call.symint).arguments()
        ]
        wanted = _signature(functional, symint=True).arguments()
        on_meta = [each.expr for each in translate(given, wanted, method=False)]
    count = len(functional.func.returns)
    names = [f"out{index}_" for index in range(count)]
    devices = ", ".join(
        f"device_of({each.name})"
        for each in functional.func.arguments.flat_all
        if each.name in tensors
    )
    operator = f"at::_ops::{functional.func.name.unambiguous_name()}"
    lines = [
        f"auto shapes_ = {operator}::redispatch({', '.join(['kMeta_', *on_meta])});",
        f"const auto device_ = device_among({{{devices}}});",
    ]
    for index, each in enumerate(names):
        lines.append(f"auto {each} = empty_as({_element('shapes_', index, count)}, device_);")
    lines.append(_call_of_out(functional, out, call, names))
    return _definition(functional, call, lines, [f"std::move({each})" for each in names])


def _replacing(inplace: NativeFunction, out: NativeFunction, call: Call) -> str:
    """An in-place one: not every out= kernel may write into what it reads."""
    (written,) = _written(inplace)
    lines = [
        f"auto out0_ = empty_as({written.name});",
        _call_of_out(inplace, out, call, ["out0_"]),
        f"update(out0_, {written.name});",
    ]
    return _definition(inplace, call, lines, [])


def resizing(name: str, copy_from: str) -> str:
    """``_copy_from_and_resize``."""
    return f"""\
at::Tensor {name}(const at::Tensor & self, const at::Tensor & dst) {{
  if (self.sizes() != dst.sizes()) dst.resize_(self.sizes());
  return {copy_from}(self, dst, /*non_blocking=*/false);
}}
"""


_Make = Callable[["NativeFunction", "NativeFunction", Call], str]

# By the kind of the function to derive: from a functional kernel, and from an out= one.
COPYING: Mapping[str, _Make] = {"out": _copying, "inplace": _copying, "mutable": _copying}
ALLOCATING: Mapping[str, _Make] = {"functional": _allocating, "inplace": _replacing}


def _call_of_out(
    function: NativeFunction, out: NativeFunction, call: Call, names: list[str]
) -> str:
    outs = [each.name for each in out.func.arguments.out]
    given = {**_given(function, out), **dict(zip(outs, names, strict=True))}
    arguments = [given[each.name] for each in out.func.arguments.flat_all]
    return f"{call.kernel}({', '.join(arguments)});"


def _given(function: NativeFunction, kernel: NativeFunction) -> dict[str, str]:
    """Expressions for the arguments of ``kernel`` in a wrapper of ``function``."""
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


def _definition(function: NativeFunction, call: Call, lines: list[str], returned: list[str]) -> str:
    from torchgen.context import native_function_manager

    with native_function_manager(function):
        signature = _signature(function, symint=call.symint)
        head = signature.defn(name=call.wrapper)
        type_ = signature.returns_type().cpp_type()
    written = {str(each.annotation): each.name for each in _written(function) if each.annotation}
    rest = iter(returned)
    values = [
        next(rest) if each.annotation is None else written[str(each.annotation)]
        for each in function.func.returns
    ]
    if len(values) == 1:
        # Moving a whole local variable out keeps the compiler from building it in place.
        value = values[0].removesuffix(")") if values[0].startswith("std::move(") else values[0]
        lines = [*lines, f"return {value.removeprefix('std::move(')};"]
    elif values:
        lines = [*lines, f"return {type_}({', '.join(values)});"]
    body = "".join(f"  {line}\n" for line in lines)
    return f"{head} {{\n{body}}}\n"


def _element(variable: str, index: int, count: int) -> str:
    return variable if count == 1 else f"std::get<{index}>({variable})"


def _written(function: NativeFunction) -> list[Argument]:
    """What the function writes into, in the order in which its functional form returns it."""
    arguments = function.func.arguments
    return [*arguments.out, *(each for each in arguments.flat_non_out if each.is_write)]


def _fresh_returns(function: NativeFunction) -> list[object]:
    return [each for each in function.func.returns if each.annotation is None]


def _signature(
    function: NativeFunction, *, symint: bool = True, prefix: str = ""
) -> DispatcherSignature:
    from torchgen.api.types import DispatcherSignature

    return DispatcherSignature.from_schema(function.func, prefix=prefix, symint=symint)
