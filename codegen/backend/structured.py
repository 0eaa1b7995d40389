"""Structured kernels: torch checks arguments and allocates outputs, the backend writes values.

Torch has a class `at::meta::structured_*` for each operator. Its `meta` computes the shapes and
types of the outputs. The class of the backend derives from it, and has the kernel: `impl`. The
functional, in-place and out= variants are registered from this one class.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from codegen.backend.model import Entry

if TYPE_CHECKING:
    from torchgen.api.types import Binding
    from torchgen.dest.register_dispatch_key import StructuredRegisterDispatchKey
    from torchgen.model import BackendIndex, NativeFunction, NativeFunctionsGroup

VARIANTS = frozenset({"functional", "inplace", "out"})


@dataclass(frozen=True, kw_only=True)
class Method:
    """A member function that the author of the backend defines."""

    returns: str
    name: str
    arguments: tuple[Binding, ...]

    def declare(self, class_name: str = "") -> str:
        arguments = ", ".join(each.decl() for each in self.arguments)
        return f"{self.returns} {class_name and f'{class_name}::'}{self.name}({arguments})"


def class_name(entry: Entry) -> str:
    return f"structured_{entry.kernel}"


def methods(entry: Entry, group: NativeFunctionsGroup) -> Iterator[Method]:
    """The member functions of the class of a structured kernel."""
    from torchgen.api import structured

    if entry.overrides_meta:
        returns = f"{class_name(entry)}::meta_return_ty" if group.out.precomputed else "void"
        arguments = tuple(structured.meta_arguments(group))
        yield Method(returns=returns, name="meta", arguments=arguments)
    yield Method(returns="void", name="impl", arguments=tuple(structured.impl_arguments(group)))


def declare_class(entry: Entry, group: NativeFunctionsGroup) -> str:
    from torchgen.api import meta

    base = f"at::meta::structured_{meta.name(group)}"
    lines = [f"struct {class_name(entry)} : public {base} {{"]
    lines += [f"  {each.declare()};" for each in methods(entry, group)]
    return "\n".join([*lines, "};"])


def define_variant(
    index: BackendIndex, entry: Entry, group: NativeFunctionsGroup, function: NativeFunction
) -> tuple[str, str]:
    """The name and the definition of the function to register for one variant of ``group``.

    ``index`` has the dispatch key, the kernel of the out= variant, and whether it is guarded.
    """
    from torchgen.api.types import NativeSignature
    from torchgen.context import native_function_manager
    from torchgen.model import DeviceCheckType
    from torchgen.selective_build.selector import SelectiveBuilder
    from torchgen.utils import Target

    if not entry.device_check:
        function = replace(function, device_check=DeviceCheckType.NoCheck)
    emitter = _emitter_class()(
        replace(index, use_out_as_primary=True),
        Target.ANONYMOUS_DEFINITION,
        SelectiveBuilder.get_nop_selector(),
        rocm=False,
        symint=False,
        class_method_name=None,
        skip_dispatcher_op_registration=False,
        g=group,
    )
    with native_function_manager(function):
        name = NativeSignature(
            function.func, prefix=f"wrapper_{index.dispatch_key}_", symint=False
        ).name()
    return str(name), str(emitter.gen_one(function))


def _emitter_class() -> type[StructuredRegisterDispatchKey]:
    """Torchgen's emitter, which refuses the keys of backends outside of torch.

    The class around the kernel is that of torch's kernels for all backends, whose guard fits any
    device; without a guard, it is that of the CPU.
    """
    from torchgen.dest.register_dispatch_key import StructuredRegisterDispatchKey
    from torchgen.model import DispatchKey

    class Emitter(StructuredRegisterDispatchKey):  # type: ignore[misc]
        def gen_class(self, *arguments: object, **names: object) -> str:
            guarded = DispatchKey.CompositeExplicitAutogradNonFunctional
            key = guarded if self.backend_index.device_guard else DispatchKey.CPU
            index = replace(self.backend_index, dispatch_key=key)
            emitter = StructuredRegisterDispatchKey(**{**vars(self), "backend_index": index})
            return str(emitter.gen_class(*arguments, **names))

    return Emitter
