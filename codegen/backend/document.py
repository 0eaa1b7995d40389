"""Reads the YAML file of a backend and reports all its errors together.

The file is written by hand and its names are copied into C++ source, so everything is checked
before it is used. The keys have the same meaning as in torchgen/gen_backend_stubs.py, which is less
strict: it accepts duplicate entries, names that are invalid in C++, and `symint` entries of
operators that the file does not list.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from codegen.aten import NativeFunctions
from codegen.backend.dialects import AUTO, DIALECTS, detect_dialect, names_version
from codegen.backend.entries import FLAGS, EntryReader, Listed
from codegen.backend.model import (
    A_NAME,
    BackendFile,
    CustomOperator,
    DispatchKeys,
    Entry,
    Operators,
    device_refusal,
)
from codegen.errors import quote
from codegen.model import is_identifier
from codegen.nodes import Reader, describe_node, is_plain, line_of

if TYPE_CHECKING:
    from torchgen.model import NativeFunction

KEYS = (
    *("backend", "cpp_namespace", "class_name", "extra_headers"),
    *("supported", "full_codegen", "autograd", "symint", "ir_gen", "non_native"),
    *("use_out_as_primary", "device_guard", "custom", "custom_autograd"),
    "device",
)
_SEEDED = "nondeterministic_seeded"
MOST_PLACES = 20  # entries that a note lists
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


def read_backend_file(path: Path, functions: NativeFunctions, dialect: str = AUTO) -> BackendFile:
    """Read and check the file; raise ``GenerationError`` with the findings, one per line."""
    return _BackendReader(path, functions, dialect).read()


class _BackendReader(Reader):
    def __init__(self, path: Path, functions: NativeFunctions, dialect: str) -> None:
        super().__init__(path, "the YAML file of a backend")
        self._functions = functions
        self._operators = Operators(functions)
        self._root = self.compose()
        self._dialect = detect_dialect(self._root) if dialect == AUTO else DIALECTS[dialect]
        self._skipped: dict[tuple[str, str], list[str]] = {}  # places by reason and remedy
        self._entries: dict[str, dict[str, Entry]] = {}  # by dispatch key and operator
        self._first: dict[str, tuple[str, int]] = {}  # list and line of each operator
        self._own: list[Listed] = []
        self._symint: set[str] = set()
        self._declared: set[str] = set()  # the names of the operators with their own schemas
        self._names: set[str] = set()  # of all entries
        self._structured: dict[str, str] = {}  # the names of structured kernels by operator

    def read(self) -> BackendFile:
        self._read_top_level()
        self._check_kernel_lists()
        listed = [each for section in self._lists() for each in self._listed(section)]
        listed.sort(key=lambda each: line_of(each.node))
        backend = self._read_backend() or ""
        self._reader = EntryReader(self._dialect, self._functions, backend, self._refuse_or_skip)
        self._declared = {each.name for each in listed if each.section in self._dialect.custom}
        self._names = {each.name for each in listed}
        for each in listed:
            self._take(each)
        if self._dialect.is_strict:
            self._check_variants()
        self._read_symint()
        namespace = self._cpp_name("cpp_namespace", _NAMESPACE, example="torch_npu") or ""
        *outer, class_name = (self._cpp_name("class_name", _CLASS_NAME) or "").split("::")
        custom = self._custom()
        keys = (backend, f"Autograd{backend}")
        entries = {key: tuple(each.values()) for key, each in self._entries.items()}
        # Torchgen lists full_codegen after supported.
        supported = sorted(entries.get(keys[0], ()), key=self._torchgen_order)
        file = BackendFile(
            path=self.path,
            backend=backend,
            cpp_namespace="::".join([namespace, *outer]),
            class_name=class_name or f"{backend}NativeFunctions",
            extra_headers=tuple(self._extra_headers()),
            supported=tuple(supported),
            autograd=entries.get(keys[1], ()),
            symint=frozenset(self._symint),
            use_out_as_primary=self._flag("use_out_as_primary"),
            device_guard=self._flag("device_guard"),
            device=self._read_device(backend),
            others={key: each for key, each in entries.items() if key not in keys},
            custom=custom,
            notes=tuple(self._notes()),
        )
        # Check only the types of keys that only torchgen's lazy-tensor generator uses.
        list(self._strings("ir_gen", _OPERATOR))
        for node in self.items("non_native", "a list of mappings"):
            if not is_plain(node, "map"):
                self.refuse(node, "non_native", "a mapping")
        self.raise_findings()
        return file

    def _read_top_level(self) -> None:
        if "" in self._dialect.lists:
            if self._root is not None:
                self.sections[""] = self._root
            return
        keys = (*KEYS, *self._dialect.lists, *self._dialect.custom, "all_version")
        if self._dialect.is_strict:
            keys = KEYS
        self.read_sections(
            tuple(dict.fromkeys(keys)), "backend, cpp_namespace and supported", root=self._root
        )

    def _lists(self) -> list[str]:
        known = {**self._dialect.lists, **self._dialect.custom}
        return [key for key in self.sections if key in known]

    def _torchgen_order(self, entry: Entry) -> int:
        listed = list(self.sections)
        return listed.index(self._first[entry.name][0]) if entry.name in self._first else 0

    def _check_kernel_lists(self) -> None:
        """Report an error if the file has no list of operators; it may be empty."""
        lists = (*self._dialect.lists, *self._dialect.custom)
        if self.suggested_keys.isdisjoint(lists) and not self._lists():
            self.report(
                1,
                f"{', '.join(_KERNEL_LISTS[:-1])} and {_KERNEL_LISTS[-1]} are all missing; "
                "expected a list of operators, under 'supported'",
            )

    def _listed(self, section: str) -> Iterator[Listed]:
        """The entries of a list: a name, a mapping with ``func``, or a name with options."""
        for node in self.items(section, f"a list, each entry {_OPERATOR}"):
            if not is_plain(node, "map"):
                if self.is_string(section, node, _OPERATOR):
                    yield Listed(section=section, func=node.value, options={}, node=node)
                continue
            options = {key.value: value for key, value in node.value if is_plain(key, "str")}
            func = options.get("func")
            if func is not None and is_plain(func, "str"):
                name = func.value
            elif node.value and is_plain(node.value[0][1], "null"):
                name = str(node.value[0][0].value)  # `- maximum.out:` and its options
                options.pop(name, None)
            else:
                self.refuse(node, section, f"{_OPERATOR}, or a mapping with 'func'")
                continue
            for option, value in options.items():
                if not self._dialect.knows_option(option):
                    self._refuse_or_skip(
                        node, section, f"unknown option {quote(option)}", "remove it"
                    )
                elif option in FLAGS and not is_plain(value, "bool"):
                    reason = f"{option}: got {describe_node(value)}, expected true or false"
                    self._refuse_or_skip(value, f"'{name}'", reason, "correct it")
            yield Listed(section=section, func=name, options=options, node=node)

    def _strings(self, key: str, item: str) -> Iterator[tuple[str, yaml.Node]]:
        """The strings of a list; report any other value."""
        for node in self.items(key, f"a list, each entry {item}"):
            if self.is_string(key, node, item):
                yield node.value, node

    def _refuse_or_skip(self, node: yaml.Node, what: str, reason: str, remedy: str) -> None:
        if self._dialect.is_strict:
            self.report(node, f"{what}: {reason}; {remedy}")
        else:
            self._skip(node, what, reason, remedy)

    def _skip(self, node: yaml.Node, what: str, reason: str, remedy: str) -> None:
        place = f"{what} (line {line_of(node)})"
        self._skipped.setdefault((reason, remedy), []).append(place)

    def _notes(self) -> Iterator[str]:
        """One note for each reason, with the number of entries and the first of them."""
        for (reason, remedy), places in self._skipped.items():
            shown = ", ".join(places[:MOST_PLACES])
            more = f" and {len(places) - MOST_PLACES} more" if len(places) > MOST_PLACES else ""
            yield f"{self.path}: {reason}: {len(places)}: {shown}{more}; {remedy}"

    def _take(self, listed: Listed) -> None:
        """Add the kernels of one entry, or skip it with a reason."""
        if not self._applies(listed):
            reason = f"for other versions of torch than {self._functions.torch_version}"
            self._skip(listed.node, f"'{listed.name}'", reason, "nothing to do")
            return
        if listed.section == "symint":
            self._symint.add(listed.name)
        if listed.section in self._dialect.custom:
            self._own.append(listed)
        elif listed.name in self._operators:
            self._take_kernel(listed)
        elif listed.section == "symint" and listed.name.startswith("npu_"):
            self._own.append(listed)
        elif listed.name in self._declared:
            pass  # npu repeats such an operator under supported
        elif self._dialect.is_strict:
            text = functools.partial(self._refusal, listed.section, listed.name)
            self.report(listed.node, text)
        else:
            successor = self._operators.successor(listed.name)
            self._skip(
                listed.node,
                f"'{listed.name}'" + (f", now '{successor}'" if successor else ""),
                f"unknown to torch {self._functions.torch_version}",
                "rename it as in native_functions.yaml, or remove it",
            )

    def _refusal(self, section: str, name: str) -> str:
        return f"{section}: {self._operators.refusal(name)}"

    def _applies(self, listed: Listed) -> bool:
        """True if the entry is for this torch; only op-plugin's entries name versions."""
        options = [option for option in self._dialect.versions if option in listed.options]
        known = [each.value for each in self.items("all_version", "a list of versions")]
        return not options or any(
            names_version(_words(listed.options[option]), self._functions.torch_version, known)
            for option in options
        )

    def _take_kernel(self, listed: Listed) -> None:
        if (earlier := self._first.get(listed.name)) is not None:
            section, line = earlier
            if section != listed.section and listed.section == "symint":
                return  # op-plugin lists such an operator twice
            where = "" if section == listed.section else f" under {section},"
            text = f"duplicate entry '{listed.name}', first{where} on line {line}"
            if self._dialect.is_strict:
                self.report(listed.node, f"{listed.section}: {text}; remove one")
            else:
                what = f"'{listed.name}'"
                self._skip(listed.node, what, "duplicate entries", "the first one is taken")
            return
        self._first[listed.name] = (listed.section, line_of(listed.node))
        if self._delegates(listed):
            return
        for key, entry in self._reader.read(listed, self._dialect.lists[listed.section]).items():
            if "_symint" in entry.kernel:
                self._symint.add(entry.name)
            if entry.is_structured and self._is_of_another(listed, entry):
                continue
            self._entries.setdefault(key, {})[entry.name] = entry

    def _is_of_another(self, listed: Listed, entry: Entry) -> bool:
        """Report a second class of one name, such as those of all.out and all.all_out."""
        first = next(
            (name for name, kernel in self._structured.items() if kernel == entry.kernel), None
        )
        if first is not None:
            reason = f"structured_{entry.kernel} is the class of '{first}'"
            remedy = "name another one: dispatch: {KEY: NAME}"
            self._refuse_or_skip(listed.node, f"{listed.section}: '{entry.name}'", reason, remedy)
            return True
        self._structured[entry.name] = entry.kernel
        return False

    def _delegates(self, listed: Listed) -> bool:
        """True if torch computes the operator from the out= kernel, which has to be listed too.

        Torch has such a default for the variants of its structured kernels.
        """
        delegate = listed.options.get("structured_delegate")
        of_torch = self._functions.by_name[listed.name].structured_delegate
        is_implied = self._dialect.name == "musa" and "dispatch" not in listed.options
        if delegate is None and not (is_implied and str(of_torch) in self._names):
            return False
        if of_torch is None or (delegate is not None and str(of_torch) != delegate.value):
            why, remedy = "torch has no such structured delegate", "taken as a kernel of its own"
            self._refuse_or_skip(listed.node, f"'{listed.name}'", why, remedy)
            return False
        if str(of_torch) not in self._names:
            why = "the delegate is not listed"
            self._refuse_or_skip(listed.node, f"'{listed.name}' to '{of_torch}'", why, "list it")
        return True

    def _check_variants(self) -> None:
        """Require the variants of one operator under one key, as torchgen does.

        Their wrappers use each other.
        """
        listed = self._first
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

    def _read_symint(self) -> None:
        """Read the list of operators whose kernels take SymInt, which have an entry elsewhere."""
        seen: dict[str, int] = {}
        is_list_of_kernels = "symint" in self._dialect.lists
        for listed in () if is_list_of_kernels else self._listed("symint"):
            name, node = listed.name, listed.node
            function = self._functions.by_name.get(name)
            if function is None:
                self._take(listed)
            elif name in seen:
                text = f"symint: duplicate entry '{name}', first on line {seen[name]}; remove one"
                self.report(node, text)
            elif name not in self._first:
                remedy = "list it under supported too, or remove it here"
                self._refuse_or_skip(node, "symint", f"'{name}' has no kernel", remedy)
            elif name in self._structured:
                why = f"'{name}' is structured, and takes int64_t"
                self._refuse_or_skip(node, "symint", why, "remove it here")
            elif not function.func.has_symint():
                # torchgen's emitters fail with an assertion on such a kernel.
                why = f"'{name}' takes no SymInt: {function.func}"
                self._refuse_or_skip(node, "symint", why, "remove it here")
            else:
                self._symint.add(name)
            seen.setdefault(name, line_of(node))
        known = self._functions.by_name
        self._symint = {
            each for each in self._symint if each not in known or known[each].func.has_symint()
        }

    def _custom(self) -> tuple[CustomOperator, ...]:
        """The operators that the file declares itself. Their schemas are torchgen's."""
        operators: dict[tuple[str, str], CustomOperator] = {}
        for listed in self._own:
            namespace, _, schema = listed.func.rpartition("::")
            namespace = namespace or self._dialect.custom.get(listed.section, "npu")
            namespace = namespace or self._value("cpp_namespace").partition("::")[0]
            function = self._parse_custom(listed, schema)
            if function is None:
                continue
            own = replace(listed, func=str(function.func.name))
            functionality = "Autograd" if listed.section == "custom_autograd" else ""
            operator = (namespace, own.func)
            if operator in operators:
                what = f"'{own.func}'"
                self._refuse_or_skip(
                    listed.node, what, "duplicate entries", "the first one is taken"
                )
                continue
            operators[operator] = CustomOperator(
                namespace=namespace,
                function=function,
                entries=self._reader.read(own, functionality),
                is_defined=namespace not in self._dialect.external,
            )
        return tuple(operators.values())

    def _parse_custom(self, listed: Listed, schema: str) -> NativeFunction | None:
        from torchgen.model import Location, NativeFunction

        tags = {*_words(listed.options["tags"])} if "tags" in listed.options else set()
        # Torchgen requires the tag by the words of a name, and a composite kernel of an operator
        # without tensors. Both change nothing here.
        fields = {
            "func": schema,
            "variants": "function",
            "tags": sorted({*tags, _SEEDED}),
            "dispatch": {"CompositeExplicitAutograd": "unused"},
        }
        place = Location(str(self.path), line_of(listed.node))
        try:
            function, _ = NativeFunction.from_yaml(fields, place, {*tags, _SEEDED})
        except Exception as error:  # mostly AssertionError
            why = (str(error).splitlines() or [type(error).__name__])[0]
            reason = f"torchgen refuses the schema: {quote(why)}"
            self._refuse_or_skip(listed.node, f"'{listed.name}'", reason, "correct it")
            return None
        return replace(function, tags=tags)

    def _value(self, key: str) -> str:
        """The value of a key of the header, or the dialect's."""
        node = self.sections.get(key)
        return str(node.value) if node is not None else str(self._dialect.defaults.get(key, ""))

    def _word(self, key: str, expected: str, *, example: str | None = None) -> str | None:
        """Read a string; with ``example``, the key is required."""
        node = self.sections.get(key)
        if key in self._dialect.defaults and (node is None or key == "backend"):
            return str(self._dialect.defaults[key])
        if node is None:
            if example and key not in self.suggested_keys:
                self.report(1, f"no '{key}'; expected {expected}. Add '{key}: {example}'")
        elif is_plain(node, "str"):
            return str(node.value)
        elif example or not is_plain(node, "null"):
            self.refuse(node, key, expected)
        return None

    def _read_backend(self) -> str:
        key = self._word("backend", "a dispatch key such as PrivateUse1", example="PrivateUse1")
        if key is None:
            return ""
        keys = DispatchKeys(self._functions)
        autograd = self.sections.get("autograd")
        has_list = autograd is not None and autograd.value and not is_plain(autograd, "null")
        # Torch has kernels of its own for the key of a backend that it adopted later.
        refusal = None if self._dialect.name == "xpu" else keys.refusal(key)
        if not refusal and has_list and not keys.has_autograd(key):
            refusal = (
                f"there is no dispatch key 'Autograd{key}' to register what autograd lists on "
                f"line {self.lines['autograd']}; use another backend, such as PrivateUse1, or "
                "remove autograd"
            )
        if refusal:
            self.report(self.sections["backend"], f"backend: {refusal}")
        return key

    def _read_device(self, backend: str) -> str:
        name = self._word("device", A_NAME)
        if name is not None and (refusal := device_refusal(name, backend)):
            self.report(self.sections["device"], f"device: {refusal}")
        return name or ""

    def _cpp_name(self, key: str, expected: str, *, example: str | None = None) -> str | None:
        name = self._word(key, expected, example=example)
        if name is not None:
            parts = name.split("::")
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
            return bool(self._dialect.defaults.get(key, False))
        values = yaml.SafeLoader.bool_values if is_plain(node, "bool") else {}
        value = values.get(str(node.value).lower())
        if value is None:
            self.refuse(node, key, "true or false")
        return bool(value)


def _words(node: yaml.Node) -> list[str]:
    """The words of a list, or of a text with commas."""
    if is_plain(node, "seq"):
        return [str(each.value) for each in node.value]
    return [each.strip() for each in str(node.value).split(",")]
