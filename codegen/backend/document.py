"""Reads the YAML file of a backend and reports all its errors together.

The file is written by hand and its names are copied into C++ source, so everything is checked
before it is used. The keys have the same meaning as in torchgen/gen_backend_stubs.py, which is less
strict: it accepts duplicate entries, names that are invalid in C++, and `symint` entries of
operators that the file does not list.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import yaml

from codegen.aten import NativeFunctions
from codegen.backend.model import BackendFile, DispatchKeys, Entry, Operators
from codegen.model import is_identifier
from codegen.nodes import Reader, is_plain, line_of

KEYS = (
    *("backend", "cpp_namespace", "class_name", "extra_headers"),
    *("supported", "full_codegen", "autograd", "symint", "ir_gen", "non_native"),
    *("use_out_as_primary", "device_guard"),
)
_OPERATOR = "the name of an operator"
_NAMESPACE = "a C++ namespace such as torch_npu or torch::lazy"
_CLASS_NAME = "the name of a C++ class such as NPUNativeFunctions"
_KERNEL_LISTS = ("supported", "full_codegen", "autograd")
# A path as in C++, with or without its delimiters.
_HEADER = re.compile(r"""(?P<path>[\w.+/-]+)|<[\w.+/-]+>|"[\w.+/-]+\"""", re.ASCII)
_CPP_KEYWORDS = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t
char32_t class compl concept const const_cast consteval constexpr constinit continue co_await
co_return co_yield decltype default delete do double dynamic_cast else enum explicit export
extern false float for friend goto if inline int long mutable namespace new noexcept not
not_eq nullptr operator or or_eq private protected public register reinterpret_cast requires
return short signed sizeof static static_assert static_cast struct switch template this
thread_local throw true try typedef typeid typename union unsigned using virtual void volatile
wchar_t while xor xor_eq
"""


def read_backend_file(path: Path, functions: NativeFunctions) -> BackendFile:
    """Read and check the file; raise ``GenerationError`` with every finding, one per line."""
    return _BackendReader(path, functions).read()


class _BackendReader(Reader):
    def __init__(self, path: Path, functions: NativeFunctions) -> None:
        super().__init__(path, "the YAML file of a backend")
        self._functions = functions
        self._operators = Operators(functions)

    def read(self) -> BackendFile:
        self.read_sections(KEYS, "backend, cpp_namespace and supported")
        self._check_kernel_lists()
        lists = {key: list(self._entries(key)) for key in self.sections if key in _KERNEL_LISTS}
        listed = self._without_duplicates(lists)
        self._check_variants(listed)
        backend = self._backend()
        namespace = self._cpp_name("cpp_namespace", _NAMESPACE, example="torch_npu")
        class_name = self._cpp_name("class_name", _CLASS_NAME)
        file = BackendFile(
            path=self.path,
            backend=backend,
            cpp_namespace=namespace or "",
            class_name=class_name or f"{backend}NativeFunctions",
            extra_headers=tuple(self._extra_headers()),
            supported=tuple(each for key in lists if key != "autograd" for each in lists[key]),
            autograd=tuple(lists.get("autograd", ())),
            symint=self._symint(listed),
            use_out_as_primary=self._flag("use_out_as_primary"),
            device_guard=self._flag("device_guard"),
        )
        # Check only the types of keys that only torchgen's lazy-tensor generator uses.
        list(self._strings("ir_gen", _OPERATOR))
        for node in self.items("non_native", "a list of mappings"):
            if not is_plain(node, "map"):
                self.refuse(node, "non_native", "a mapping")
        self.raise_findings()
        return file

    def _check_kernel_lists(self) -> None:
        """Report an error if no operator is listed."""
        if not self.suggested_keys.isdisjoint(_KERNEL_LISTS):
            return
        present = [self.sections[key] for key in _KERNEL_LISTS if key in self.sections]
        if all(node.value in ("", []) or is_plain(node, "null") for node in present):
            self.report(
                min(map(line_of, present), default=1),
                f"{', '.join(_KERNEL_LISTS[:-1])} and {_KERNEL_LISTS[-1]} are all empty or "
                "missing; expected at least one operator, under 'supported'",
            )

    def _strings(self, key: str, item: str) -> Iterator[tuple[str, yaml.Node]]:
        """The strings of a list; report any other value."""
        for node in self.items(key, f"a list, each entry {item}"):
            if self.is_string(key, node, item):
                yield node.value, node

    def _entries(self, key: str) -> Iterator[Entry]:
        for name, node in self._strings(key, _OPERATOR):
            if name in self._operators:
                yield Entry(name=name, line=line_of(node))
            else:
                self.report(node, f"{key}: {self._operators.refusal(name)}")

    def _without_duplicates(self, lists: dict[str, list[Entry]]) -> dict[str, tuple[str, int]]:
        """Report duplicates; return the key and line of the first entry of each operator."""
        first: dict[str, tuple[str, int]] = {}
        for line, key, name in sorted(
            (entry.line, key, entry.name) for key, entries in lists.items() for entry in entries
        ):
            if name in first:
                earlier_key, earlier_line = first[name]
                where = "" if key == earlier_key else f" under {earlier_key},"
                self.report(
                    line,
                    f"{key}: duplicate entry '{name}', first{where} on line {earlier_line}; "
                    "remove one",
                )
            first.setdefault(name, (key, line))
        return first

    def _check_variants(self, listed: dict[str, tuple[str, int]]) -> None:
        """Require the variants of one operator under one key, as torchgen does.

        Their wrappers use each other.
        """
        backward = {name for name, (key, _) in listed.items() if key == "autograd"}
        forward = listed.keys() - backward
        for names in self._operators.variants() if forward and backward else ():
            other = next((name for name in names if name in forward), None)
            if other is None:
                continue
            key, line = listed[other]
            for name in filter(backward.__contains__, names):
                self.report(
                    listed[name][1],
                    f"autograd: '{name}' is a variant of '{other}', which is listed under "
                    f"{key} on line {line}; expected {', '.join(names)} all under "
                    "autograd, or none of them",
                )

    def _symint(self, listed: dict[str, tuple[str, int]]) -> frozenset[str]:
        entries = self._without_duplicates({"symint": list(self._entries("symint"))})
        for name, (_, line) in entries.items():
            schema = self._functions.by_name[name].func
            if name not in listed:
                self.report(
                    line,
                    f"symint: '{name}' has no kernel; list it under supported too, or remove it "
                    "here",
                )
            elif not schema.has_symint():
                # torchgen's emitters fail with an assertion on such a kernel.
                self.report(line, f"symint: '{name}' takes no SymInt: {schema}; remove it here")
        return frozenset(entries)

    def _word(self, key: str, expected: str, *, example: str | None = None) -> str | None:
        """Read a string; with ``example``, the key is required."""
        node = self.sections.get(key)
        if node is None:
            if example and key not in self.suggested_keys:
                self.report(1, f"no '{key}'; expected {expected}. Add '{key}: {example}'")
        elif is_plain(node, "str"):
            return str(node.value)
        elif example or not is_plain(node, "null"):
            self.refuse(node, key, expected)
        return None

    def _backend(self) -> str:
        key = self._word("backend", "a dispatch key such as PrivateUse1", example="PrivateUse1")
        if key is None:
            return ""
        keys = DispatchKeys(self._functions)
        autograd = self.sections.get("autograd")
        has_list = autograd is not None and autograd.value and not is_plain(autograd, "null")
        refusal = keys.refusal(key)
        if not refusal and has_list and not keys.has_autograd(key):
            refusal = (
                f"there is no dispatch key 'Autograd{key}' to register what autograd lists on "
                f"line {self.lines['autograd']}; use another backend, such as PrivateUse1, or "
                "remove autograd"
            )
        if refusal:
            self.report(self.sections["backend"], f"backend: {refusal}")
        return key

    def _cpp_name(self, key: str, expected: str, *, example: str | None = None) -> str | None:
        name = self._word(key, expected, example=example)
        if name is not None:
            parts = name.split("::") if key == "cpp_namespace" else [name]
            if not all(is_identifier(each) and each not in _CPP_KEYWORDS.split() for each in parts):
                self.refuse(self.sections[key], key, expected)
        return name

    def _extra_headers(self) -> Iterator[str]:
        item = "a path such as npu/kernels.h or <vector>"
        for text, node in self._strings("extra_headers", item):
            header = _HEADER.fullmatch(text)
            if header is None:
                self.refuse(node, "extra_headers", item)
            else:
                yield f'"{text}"' if header["path"] else text

    def _flag(self, key: str) -> bool:
        node = self.sections.get(key)
        if node is None:
            return False
        values = yaml.SafeLoader.bool_values if is_plain(node, "bool") else {}
        value = values.get(str(node.value).lower())
        if value is None:
            self.refuse(node, key, "true or false")
        return bool(value)
