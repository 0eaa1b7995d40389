"""Reads the YAML file of a backend; all that is wrong with it is reported together.

The file is written by hand and its words go into C++ source, so nothing is taken from it that
has not been checked. It means what it means to torchgen/gen_backend_stubs.py, which is less
strict: there, entries that stand twice, names that C++ refuses, and `symint` entries of
operators that the file does not list, go through.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from codegen.backend.model import BackendFile, DispatchKeys, Entry, Operators
from codegen.errors import GenerationError
from codegen.model import is_identifier
from codegen.nodes import compose, described, is_plain, line_of

if TYPE_CHECKING:
    from codegen.aten import NativeFunctions

KEYS = (
    *("backend", "cpp_namespace", "class_name", "extra_headers"),
    *("supported", "full_codegen", "autograd", "symint", "ir_gen", "non_native"),
    *("use_out_as_primary", "device_guard"),
)
_OPERATOR = "the name of an operator"
_NAMESPACE = "a C++ namespace such as torch_npu or torch::lazy"
_CLASS_NAME = "the name of a C++ class such as NPUNativeFunctions"
_KERNEL_LISTS = ("supported", "full_codegen", "autograd")
# A path as in C++, and what may stand around it there.
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
    """Reads and checks the file; raises ``GenerationError`` with every finding, one per line."""
    return _Reader(path, functions).read()


class _Reader:
    """Collects all findings of one file before it raises."""

    def __init__(self, path: Path, functions: NativeFunctions) -> None:
        self._path = path
        self._functions = functions
        self._findings: list[tuple[int, str]] = []
        self._operators = Operators(functions)
        self._keys = DispatchKeys(functions)
        self._sections: dict[str, yaml.Node] = {}  # in the order of the file
        self._meant: set[str] = set()  # keys that are likely misspelt
        self._lines: dict[str, int] = {}  # of their keys

    def read(self) -> BackendFile:
        self._read_sections(compose(self._path))
        lists = {key: list(self._entries(key)) for key in self._sections if key in _KERNEL_LISTS}
        self._check_duplicates(lists)
        self._check_variants(lists)
        supported = [entry for key in lists if key != "autograd" for entry in lists[key]]
        autograd = lists.get("autograd", [])
        symint = self._symint({entry.name for entry in (*supported, *autograd)})
        backend = self._backend()
        namespace = self._cpp_name("cpp_namespace", _NAMESPACE, example="torch_npu")
        class_name = self._cpp_name("class_name", _CLASS_NAME)
        file = BackendFile(
            path=self._path,
            backend=backend,
            cpp_namespace=namespace or "",
            class_name=class_name or f"{backend}NativeFunctions",
            extra_headers=tuple(self._extra_headers()),
            supported=tuple(supported),
            autograd=tuple(autograd),
            symint=symint,
            use_out_as_primary=self._flag("use_out_as_primary"),
            device_guard=self._flag("device_guard"),
        )
        self._check_lazy_lists()
        self._raise_findings()
        return file

    def _report(self, line: int, text: str) -> None:
        self._findings.append((line, text))

    def _add(self, node: yaml.Node, text: str) -> None:
        self._report(line_of(node), text)

    def _raise_findings(self) -> None:
        """Raises ``GenerationError`` if there are any: one per line, in the order of the file."""
        if self._findings:
            ordered = sorted(self._findings, key=lambda finding: finding[0])
            raise GenerationError(
                "\n".join(f"{self._path}:{line}: {text}" for line, text in ordered)
            )

    def _read_sections(self, root: yaml.Node | None) -> None:
        if root is None or not is_plain(root, "map"):
            got = "nothing" if root is None else described(root)
            line = 1 if root is None else line_of(root)
            raise GenerationError(
                f"{self._path}:{line}: got {got}, expected a mapping with backend, cpp_namespace "
                "and supported"
            )
        for key, value in root.value:
            name = key.value if is_plain(key, "str") else None
            if name not in KEYS:
                self._add(key, f"unknown key: got {described(key)}, {self._expected_key(name)}")
            elif name in self._sections:
                self._add(
                    key, f"'{name}' stands twice, first on line {self._lines[name]}; make them one"
                )
            else:
                self._sections[name] = value
                self._lines[name] = line_of(key)
        self._check_kernel_lists()

    def _expected_key(self, name: str | None) -> str:
        matches = difflib.get_close_matches(name or "", KEYS, n=1)
        if not matches:
            return f"expected one of {', '.join(KEYS)}"
        self._meant.add(matches[0])
        return f"did you mean '{matches[0]}'?"

    def _check_kernel_lists(self) -> None:
        """There must be something to generate."""
        if not self._meant.isdisjoint(_KERNEL_LISTS):
            return
        present = [self._sections[key] for key in _KERNEL_LISTS if key in self._sections]
        if all(node.value in ("", []) or is_plain(node, "null") for node in present):
            line = min((line_of(node) for node in present), default=1)
            self._report(
                line,
                f"{', '.join(_KERNEL_LISTS[:-1])} and {_KERNEL_LISTS[-1]} are all empty or "
                "missing; expected at least one operator, under 'supported'",
            )

    def _strings(self, key: str, item: str) -> Iterator[tuple[str, yaml.Node]]:
        """The strings of a list; reports what else there is."""
        node = self._sections.get(key)
        if node is None or is_plain(node, "null"):
            return
        if not is_plain(node, "seq"):
            self._add(node, f"{key}: got {described(node)}, expected a list, each entry {item}")
            return
        for each in node.value:
            if is_plain(each, "str") and each.value:
                yield each.value, each
                continue
            is_word = isinstance(each, yaml.ScalarNode) and not is_plain(each, "null")
            hint = "; put it in quotes if it is one" if is_word and each.value else ""
            self._add(each, f"{key}: got {described(each)}, expected {item}{hint}")

    def _entries(self, key: str) -> Iterator[Entry]:
        for name, node in self._strings(key, _OPERATOR):
            if name in self._operators:
                yield Entry(name=name, line=line_of(node))
            else:
                self._add(node, f"{key}: {self._operators.refusal(name)}")

    def _check_duplicates(self, lists: dict[str, list[Entry]]) -> None:
        first: dict[str, tuple[str, int]] = {}
        for line, key, name in sorted(
            (entry.line, key, entry.name) for key, entries in lists.items() for entry in entries
        ):
            if name not in first:
                first[name] = (key, line)
                continue
            earlier_key, earlier_line = first[name]
            where = "" if key == earlier_key else f" under {earlier_key},"
            self._report(
                line,
                f"{key}: '{name}' stands twice, first{where} on line {earlier_line}; remove one",
            )

    def _check_variants(self, lists: dict[str, list[Entry]]) -> None:
        """As torchgen: wrappers derive variants from each other, under one dispatch key."""
        backward = {entry.name: entry.line for entry in lists.get("autograd", ())}
        forward = {
            entry.name: (key, entry.line)
            for key, entries in lists.items()
            if key != "autograd"
            for entry in entries
            if entry.name not in backward  # a duplicate
        }
        for names in self._operators.variants() if forward and backward else ():
            other = next((name for name in names if name in forward), None)
            if other is None:
                continue
            key, line = forward[other]
            for name in names:
                if name in backward:
                    self._report(
                        backward[name],
                        f"autograd: '{name}' is a variant of '{other}', which stands under "
                        f"{key} on line {line}; expected {', '.join(names)} all under "
                        "autograd, or none of them",
                    )

    def _symint(self, listed: set[str]) -> frozenset[str]:
        first: dict[str, int] = {}
        for name, node in self._strings("symint", _OPERATOR):
            if name in first:
                where = f"first on line {first[name]}"
                self._add(node, f"symint: '{name}' stands twice, {where}; remove one")
            elif name not in self._operators:
                self._add(node, f"symint: {self._operators.refusal(name)}")
            elif name not in listed:
                self._add(
                    node,
                    f"symint: '{name}' has no kernel; list it under supported too, or remove it "
                    "here",
                )
            elif not self._functions.by_name[name].func.has_symint():
                # torchgen's emitters fail an assertion on such a kernel.
                schema = self._functions.by_name[name].func
                self._add(node, f"symint: '{name}' takes no SymInt: {schema}; remove it here")
            first.setdefault(name, line_of(node))
        return frozenset(first)

    def _check_lazy_lists(self) -> None:
        """The shape of what only torchgen's lazy-tensor generator uses."""
        for _ in self._strings("ir_gen", _OPERATOR):
            pass
        node = self._sections.get("non_native")
        if node is None or is_plain(node, "null"):
            return
        if not is_plain(node, "seq"):
            self._add(node, f"non_native: got {described(node)}, expected a list of mappings")
            return
        for each in node.value:
            if not is_plain(each, "map"):
                self._add(each, f"non_native: got {described(each)}, expected a mapping")

    def _word(self, key: str, expected: str, *, example: str | None = None) -> str | None:
        """A string; with an example, one that the file must have."""
        node = self._sections.get(key)
        if node is None:
            if example and key not in self._meant:
                self._report(1, f"no '{key}'; expected {expected}. Add '{key}: {example}'")
            return None
        if is_plain(node, "null") and not example:
            return None
        if not is_plain(node, "str"):
            self._add(node, f"{key}: got {described(node)}, expected {expected}")
            return None
        return str(node.value)

    def _backend(self) -> str:
        key = self._word("backend", "a dispatch key such as PrivateUse1", example="PrivateUse1")
        if key is None:
            return ""
        refusal = self._keys.refusal(key)
        node = self._sections["backend"]
        autograd = self._sections.get("autograd")
        has_list = autograd is not None and autograd.value and not is_plain(autograd, "null")
        if refusal:
            self._add(node, f"backend: {refusal}")
        elif has_list and not self._keys.has_autograd(key):
            self._add(
                node,
                f"backend: there is no dispatch key 'Autograd{key}' to register what autograd "
                f"lists on line {self._lines['autograd']}; use another backend, such as "
                "PrivateUse1, or remove autograd",
            )
        return key

    def _cpp_name(self, key: str, expected: str, *, example: str | None = None) -> str | None:
        name = self._word(key, expected, example=example)
        if name is not None:
            parts = name.split("::") if key == "cpp_namespace" else [name]
            if not all(is_identifier(each) and each not in _CPP_KEYWORDS.split() for each in parts):
                node = self._sections[key]
                self._add(node, f"{key}: got {described(node)}, expected {expected}")
        return name

    def _extra_headers(self) -> Iterator[str]:
        item = "a path such as npu/kernels.h or <vector>"
        for text, node in self._strings("extra_headers", item):
            header = _HEADER.fullmatch(text)
            if header is None:
                self._add(node, f"extra_headers: got {described(node)}, expected {item}")
            else:
                yield f'"{text}"' if header["path"] else text

    def _flag(self, key: str) -> bool:
        node = self._sections.get(key)
        if node is None:
            return False
        value = (
            yaml.SafeLoader.bool_values.get(node.value.lower()) if is_plain(node, "bool") else None
        )
        if value is None:
            self._add(node, f"{key}: got {described(node)}, expected true or false")
        return bool(value)
