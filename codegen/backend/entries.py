"""The kernels of one entry of a backend's file, by dispatch key."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import yaml

from codegen.aten import NativeFunctions
from codegen.backend.dialects import Dialect
from codegen.backend.model import DispatchKeys, Entry
from codegen.model import is_identifier
from codegen.nodes import is_plain, line_of

if TYPE_CHECKING:
    from torchgen.model import NativeFunction

FLAGS = frozenset({"structured", "device_guard", "override_meta"})  # options: true or false
_DEVICES = ("CPU", "CUDA")  # whose kernels torch shares with other devices

# Reports a problem at a node: what it is about, the reason and the remedy.
Refuse = Callable[[yaml.Node, str, str, str], None]


@dataclass(frozen=True, kw_only=True)
class Listed:
    """One entry of a list, as written."""

    section: str
    func: str  # "add.Tensor", or a whole schema
    options: Mapping[str, yaml.Node]
    node: yaml.Node

    @property
    def name(self) -> str:
        return self.func.partition("(")[0].strip()

    def is_true(self, option: str) -> bool | None:
        """The value of an option; None if the entry has no such option."""
        node = self.options.get(option)
        return None if node is None else str(node.value).lower() in ("true", "yes", "on")


class EntryReader:
    """Reads the kernels of entries, as the dialect says."""

    def __init__(
        self, dialect: Dialect, functions: NativeFunctions, backend: str, refuse: Refuse
    ) -> None:
        self._dialect = dialect
        self._functions = functions
        self._backend = backend
        self._refuse = refuse
        self._keys = DispatchKeys(functions)
        self._kernels_of_torch = {
            str(key): index for key, index in functions.backend_indices.items()
        }

    def read(self, listed: Listed, functionality: str) -> dict[str, Entry]:
        """The kernels of an entry by dispatch key; ``functionality`` is that of its list."""
        check = listed.options.get("device_check")
        entry = Entry(
            name=listed.name,
            line=line_of(listed.node),
            device_guard=listed.is_true("device_guard"),
            device_check=check is None or check.value != "NoCheck",
        )
        function = self._functions.by_name.get(entry.name)
        kernels = dict(self._dispatched(listed, entry)) or {
            f"{functionality}{self._backend}": entry
        }
        kernels |= self._further(listed, entry, function)
        if self._is_structured(listed, function, kernels):
            kernels[self._backend] = self._structure(listed, kernels[self._backend], function)
        elif "dispatch" in (self._dialect.own_kernels or ()) and function is not None:
            for key, each in kernels.items():
                kernels[key] = self._find_in_torch(listed, each, key, function)
        return kernels

    def _dispatched(self, listed: Listed, entry: Entry) -> Iterator[tuple[str, Entry]]:
        """Read ``dispatch``: the C++ names of the kernels by dispatch key, or keys with commas."""
        dispatch = listed.options.get("dispatch")
        is_map = dispatch is not None and is_plain(dispatch, "map")
        for node, value in dispatch.value if dispatch is not None and is_map else ():
            for key in map(str.strip, str(node.value).split(",")):
                if not self._keys.takes_kernels(key):
                    why = "not a dispatch key that takes kernels"
                    self._refuse(node, f"'{listed.name}' for {key}", why, "use another key")
                elif not is_identifier(str(value.value)):
                    why = "the kernel has no C++ identifier"
                    self._refuse(value, f"'{listed.name}'", why, "name a function")
                else:
                    yield key, replace(entry, kernel=str(value.value))

    def _further(
        self, listed: Listed, entry: Entry, function: NativeFunction | None
    ) -> dict[str, Entry]:
        """The kernels for another key that an option or the dialect adds."""
        autograd = f"Autograd{self._backend}"
        if "custom_autograd" in listed.options:
            own = "_".join(filter(None, (*entry.name.split("."), "autograd")))
            return {autograd: replace(entry, kernel=own)}
        if "sparse" in listed.options:
            return {f"Sparse{self._backend}": entry}
        is_composite = function is not None and function.has_composite_implicit_autograd_kernel
        return {autograd: entry} if self._dialect.composites_to_autograd and is_composite else {}

    def _is_structured(
        self, listed: Listed, function: NativeFunction | None, kernels: Mapping[str, Entry]
    ) -> bool:
        if self._dialect.is_structured is False:
            return False
        of_torch = function is not None and function.structured
        option = listed.is_true("structured")
        delegate = None if function is None else function.structured_delegate
        for is_wrong, reason, remedy in (
            (
                not of_torch,
                "torch has no structured kernel of it",
                f"write it to '{delegate}'" if delegate else "remove the option",
            ),
            (
                self._backend not in kernels,
                f"a structured kernel is for {self._backend} only",
                "list it under supported, or remove the option",
            ),
        ):
            if option and is_wrong:
                self._refuse(listed.node, f"structured '{listed.name}'", reason, remedy)
                return False
        is_wanted = self._dialect.is_structured if option is None else option
        return bool(of_torch and is_wanted and self._backend in kernels)

    def _structure(self, listed: Listed, entry: Entry, function: NativeFunction | None) -> Entry:
        """The entry of a structured kernel: a class of the backend, or torch's own."""
        from torchgen.api import dispatcher

        assert function is not None
        own = self._dialect.own_kernels
        if own is not None and own.isdisjoint(listed.options):
            names = self._names_in_torch(self._backend, function)
            if names["CPU"] and names["CPU"] == names["CUDA"]:
                entry = replace(entry, kernel=names["CPU"], is_in_torch=True)
            elif "dispatch" in own:
                self._note_cuda(listed)
        default = f"{dispatcher.name(function.func)}{self._dialect.structured_suffix}"
        guard = True if self._dialect.is_structured else None
        return replace(
            entry,
            is_structured=True,
            overrides_meta=bool(listed.is_true("override_meta")),
            kernel=entry.kernel or str(default),
            device_guard=guard if entry.device_guard is None else entry.device_guard,
        )

    def _find_in_torch(
        self, listed: Listed, entry: Entry, key: str, function: NativeFunction
    ) -> Entry:
        """The entry of a kernel that dispatch names; it is torch's if torch has one of the name."""
        names = self._names_in_torch(key, function) if entry.kernel else {}
        if entry.kernel in names.values() and entry.kernel != names["CPU"]:
            self._note_cuda(listed)
        return replace(entry, is_in_torch=bool(entry.kernel) and entry.kernel == names["CPU"])

    def _names_in_torch(self, key: str, function: NativeFunction) -> dict[str, str]:
        """The names of torch's kernels of the same functionality, by device; "" for none."""
        names = {}
        for device in _DEVICES:
            index = self._kernels_of_torch.get(key.replace(self._backend, device))
            metadata = index.get_kernel(function) if index else None
            names[device] = metadata.kernel if metadata else ""
        return names

    def _note_cuda(self, listed: Listed) -> None:
        reason = "torch's own kernel, which torch has for CUDA only"
        remedy = "define it yourself, in the class and namespace of the generated header"
        self._refuse(listed.node, f"'{listed.name}'", reason, remedy)
