"""What the YAML file of a backend says, validated, and what it may name: operators and keys."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from codegen.aten import NativeFunctions
from codegen.errors import nearest, quoted

# Backends of their own without a key for autograd, sparse tensors and so on.
_KEYS_WITHOUT_FUNCTIONALITIES = ("FPGA", "MAIA", "ORT", "Vulkan", "Metal")
_AUTOGRAD = "Autograd"
_A_DEVICE = "expected that of a device which torch leaves to others, such as PrivateUse1"
MOST_HINTS = 100  # near matches; one among all operators costs 6 ms


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One operator of the file."""

    name: str  # as torchgen's OperatorName prints it: "add.Tensor"
    line: int


@dataclass(frozen=True, kw_only=True)
class BackendFile:
    """A valid file; the keys mean what they mean to torchgen/gen_backend_stubs.py."""

    path: Path
    backend: str  # dispatch key: "PrivateUse1"
    class_name: str  # of the kernels; what torchgen gives the key if the file says none
    cpp_namespace: str
    extra_headers: tuple[str, ...]  # as `#include` takes them: '"npu/kernels.h"', "<vector>"
    supported: tuple[Entry, ...]  # `supported` and `full_codegen`, in the order of the file
    autograd: tuple[Entry, ...]
    symint: frozenset[str]
    use_out_as_primary: bool
    device_guard: bool


class Operators:
    """The operators of a torch by name, and which of them are variants of each other."""

    def __init__(self, functions: NativeFunctions) -> None:
        self._functions = functions
        self._overloads: dict[str, list[str]] = {}  # base name -> names
        for function in functions.functions:
            name = function.func.name
            self._overloads.setdefault(str(name.name), []).append(str(name))
        self._hints_left = MOST_HINTS

    def __contains__(self, name: str) -> bool:
        return name in self._functions.by_name

    def refusal(self, name: str) -> str:
        """Says that there is no such operator, or no such overload, and what comes near."""
        torch = f"torch {self._functions.torch_version}"
        base, _, overload = name.partition(".")
        if base not in self._overloads:
            return (
                f"{torch} has no operator {quoted(name)}; expected name and overload as in "
                f"native_functions.yaml{self._near(name)}"
            )
        overloads = self._overloads[base]
        kind = f"overload {quoted(overload)}" if overload else "overload without a name"
        near = nearest(name, overloads) if overload else f"; did you mean '{overloads[0]}'?"
        return f"'{base}' has no {kind}; expected one of {', '.join(overloads)}{near}"

    def _near(self, name: str) -> str:
        unqualified = name.removeprefix("aten::")
        if unqualified in self:
            return f"; write '{unqualified}'"
        self._hints_left -= 1
        return nearest(name, self._functions.by_name) if self._hints_left >= 0 else ""

    def variants(self) -> list[list[str]]:
        """The names of each functional operator with its in-place and out= form."""
        groups = {id(group): group for group in self._functions.groups.values()}
        return [
            [str(function.func.name) for function in group.functions()] for group in groups.values()
        ]


class DispatchKeys:
    """The dispatch keys that a backend may have, and those that have one for autograd."""

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
        self.free = tuple(sorted(of_devices - self._in_tree))  # what a backend may have

    def refusal(self, key: str) -> str | None:
        """Why a backend can't have this key; None where it can."""
        if key in self.free:
            return None
        if key in self._in_tree:
            return f"torch has kernels of its own for {quoted(key)}; {_A_DEVICE}"
        without = key.removeprefix(_AUTOGRAD)
        if key in self._all and without in self.free:
            return (
                f"{quoted(key)} is the key of autograd for '{without}'; write '{without}', and the "
                "operators under 'autograd'"
            )
        if key in self._all:
            return f"the dispatch key {quoted(key)} is not that of a device; {_A_DEVICE}"
        return f"{quoted(key)} is not a dispatch key; {_A_DEVICE}{nearest(key, self.free)}"

    def has_autograd(self, key: str) -> bool:
        return f"{_AUTOGRAD}{key}" in self._all
