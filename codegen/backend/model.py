"""The validated content of a backend's YAML file, and the operators and keys it can name."""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from codegen.aten import NativeFunctions
from codegen.errors import quote, suggestion
from codegen.questions import find_removal

if TYPE_CHECKING:
    from torchgen.model import NativeFunction

# Separate backends without keys for autograd, sparse tensors and so on.
_KEYS_WITHOUT_FUNCTIONALITIES = ("FPGA", "MAIA", "ORT", "Vulkan", "Metal")
_AUTOGRAD = "Autograd"
_A_DEVICE = "expected the key of a device that torch has no kernels for, such as PrivateUse1"
A_NAME = "a name of lower-case letters and _, such as acme"  # of a device
MOST_HINTS = 100  # limit of similarity searches; one among all operators takes 6 ms


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One operator listed in the file."""

    name: str  # as torchgen's OperatorName prints it: "add.Tensor"
    line: int
    kernel: str = ""  # the C++ name of the kernel, if it is not torchgen's
    device_guard: bool | None = None  # None: as the file says
    device_check: bool = True  # with the guard: all arguments must be on one device
    is_structured: bool = False  # a class with `impl`, which serves all variants of the operator
    overrides_meta: bool = False  # such a class with its own `meta`, too
    is_in_torch: bool = False  # libtorch has the kernel, in at::native


@dataclass(frozen=True, kw_only=True)
class CustomOperator:
    """An operator that the file declares itself, with its schema."""

    namespace: str  # of torch.ops
    function: NativeFunction
    entries: Mapping[str, Entry]  # its kernels by dispatch key
    is_defined: bool  # false: another library defines the schema


@dataclass(frozen=True, kw_only=True)
class BackendFile:
    """A valid file. Its keys have the same meaning as in torchgen/gen_backend_stubs.py."""

    path: Path
    backend: str  # dispatch key: "PrivateUse1"
    class_name: str  # of the kernels; by default torchgen's name for the key
    cpp_namespace: str
    extra_headers: tuple[str, ...]  # as `#include` takes them: '"npu/kernels.h"', "<vector>"
    supported: tuple[Entry, ...]  # `supported` and `full_codegen`, in the order of the file
    autograd: tuple[Entry, ...]
    symint: frozenset[str]
    use_out_as_primary: bool
    device_guard: bool
    device: str = ""  # the name of the device in Python, of which a package is generated
    others: Mapping[str, tuple[Entry, ...]] = field(default_factory=dict)  # by dispatch key
    custom: tuple[CustomOperator, ...] = ()
    notes: tuple[str, ...] = ()  # what was not taken, and why

    def class_of(self, key: str) -> str:
        """The class of the kernels of a dispatch key; it and its autograd key share one."""
        if key in (self.backend, f"{_AUTOGRAD}{self.backend}"):
            return self.class_name
        prefix = key.replace(self.backend, "")
        return f"{prefix}{self.class_name}"


def device_refusal(name: str, backend: str) -> str | None:
    """Why the device of a dispatch key can't have this name in Python; None if it can."""
    from torchgen.model import BACKEND_COMPONENTS

    if not re.fullmatch("[a-z_]+", name) or keyword.iskeyword(name):  # torch takes no digits
        return f"got {quote(name)}, expected {A_NAME}"
    if name in {str(key).lower() for key in (*BACKEND_COMPONENTS, *_KEYS_WITHOUT_FUNCTIONALITIES)}:
        return f"torch itself has a device {quote(name)}; expected another name"
    if backend and backend != "PrivateUse1":
        return f"torch renames the device of PrivateUse1 only, not of {backend}; remove 'device'"
    return None


class Operators:
    """The operators of a torch by name, and their variants."""

    def __init__(self, functions: NativeFunctions) -> None:
        self._functions = functions
        self._overloads: dict[str, list[str]] = {}  # base name -> names
        for function in functions.functions:
            name = function.func.name
            self._overloads.setdefault(str(name.name), []).append(str(name))

    def __contains__(self, name: str) -> bool:
        return name in self._functions.by_name

    def successor(self, name: str) -> str:
        """The operator that replaces one of an earlier torch; "" if none is known."""
        removal = find_removal(name, self._functions.by_name)
        return removal.successor if removal else ""

    def refusal(self, name: str) -> str:
        """Report that the operator or overload does not exist, and suggest a similar one."""
        torch = f"torch {self._functions.torch_version}"
        base, _, overload = name.partition(".")
        if successor := self.successor(name):
            return f"{torch} has no operator {quote(name)}, which was removed; write '{successor}'"
        if base not in self._overloads:
            return (
                f"{torch} has no operator {quote(name)}; expected name and overload as in "
                f"native_functions.yaml{self._near(name)}"
            )
        overloads = self._overloads[base]
        kind = f"overload {quote(overload)}" if overload else "overload without a name"
        near = suggestion(name, overloads) if overload else f"; did you mean '{overloads[0]}'?"
        return f"'{base}' has no {kind}; expected one of {', '.join(overloads)}{near}"

    def _near(self, name: str) -> str:
        unqualified = name.removeprefix("aten::")
        if unqualified in self:
            return f"; write '{unqualified}'"
        return suggestion(name, self._functions.by_name)

    def variants(self) -> list[list[str]]:
        """For each functional operator, the names of it and its in-place and out= variants."""
        groups = {id(group): group for group in self._functions.groups.values()}
        return [
            [str(function.func.name) for function in group.functions()] for group in groups.values()
        ]


class DispatchKeys:
    """The dispatch keys that a backend can use, and those with a key for autograd."""

    def __init__(self, functions: NativeFunctions) -> None:
        from torchgen.model import BACKEND_COMPONENTS, FUNCTIONALITY_KEYS, DispatchKey

        self._all = set(DispatchKey.__members__)
        self._in_tree = {str(key) for key in functions.backend_indices}
        of_devices = {
            *(key for key in _KEYS_WITHOUT_FUNCTIONALITIES if key in self._all),
            *(
                f"{functionality}{component}"
                for functionality in FUNCTIONALITY_KEYS
                for component in BACKEND_COMPONENTS
                if functionality != _AUTOGRAD
            ),
        }
        self.free = tuple(sorted(of_devices - self._in_tree))  # keys that a backend can use

    def refusal(self, key: str) -> str | None:
        """Why a backend can't use this key; None if it can."""
        if key in self.free:
            return None
        if key in self._in_tree:
            return f"torch has kernels of its own for {quote(key)}; {_A_DEVICE}"
        without = key.removeprefix(_AUTOGRAD)
        if key in self._all and without in self.free:
            return (
                f"{quote(key)} is the autograd key of '{without}'; write '{without}', and list "
                "the operators under 'autograd'"
            )
        if key in self._all:
            return f"{quote(key)} is not the dispatch key of a device; {_A_DEVICE}"
        return f"{quote(key)} is not a dispatch key; {_A_DEVICE}{suggestion(key, self.free)}"

    def has_autograd(self, key: str) -> bool:
        return f"{_AUTOGRAD}{key}" in self._all

    def takes_kernels(self, key: str) -> bool:
        """True if kernels of a single operator can be registered for the key."""
        without = key.removeprefix(_AUTOGRAD)
        composite = key.startswith("Composite") and key in self._all
        return key in self.free or (key in self._all and without in self.free) or composite
