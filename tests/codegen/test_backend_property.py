"""For any operators of a backend, the generated files are consistent."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codegen.backend.emit import render_backend
from codegen.backend.model import BackendFile, Entry

if TYPE_CHECKING:
    from codegen.aten import NativeFunctions

REGISTRATION = re.compile(r'^  m\.impl\("([^"]+)", (.*)\);$', re.MULTILINE)
KERNEL = re.compile(r"::demo::DemoFunctions::(\w+)")
DECLARATION = re.compile(r"^  static .*?\b(\w+)\(.*\);$", re.MULTILINE)


@given(data=st.data())
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_operators(functions: NativeFunctions, data: st.DataObject) -> None:
    file = data.draw(backend_files(functions))
    files = render_backend(file, functions)
    header = files["PrivateUse1NativeFunctions.h"]
    declared = set(DECLARATION.findall(header))
    called: set[str] = set()
    # The operators that the fallback registers by name, beside the one for all others.
    sent = set(re.findall(r'^ +"(\S+)",$', files["RegisterPrivateUse1Fallback.cpp"], re.MULTILINE))
    assert sent <= functions.by_name.keys()
    for key, listed in (("PrivateUse1", file.supported), ("AutogradPrivateUse1", file.autograd)):
        text = files.get(f"Register{key}.cpp", "")
        assert bool(text) or not listed
        block = text.partition("TORCH_LIBRARY_IMPL")[2].partition("\n}\n")[0]
        counts = Counter(name for name, _ in REGISTRATION.findall(block))
        assert counts.keys() <= functions.by_name.keys()
        assert not counts or max(counts.values()) == 1
        assert {entry.name for entry in listed} <= counts.keys()
        assert not sent & counts.keys()
        assert_defined(text)
        called |= set(KERNEL.findall(text))
    assert called == declared
    assert len(DECLARATION.findall(header)) == len(file.supported) + len(file.autograd)
    assert_partition(json.loads(files["coverage.json"]), functions, file)


def assert_defined(text: str) -> None:
    """Each wrapper is defined once, before it is used."""
    definitions = re.findall(r"^\S.* (wrapper_\w+)\(.*\) \{$", text, re.MULTILINE)
    assert len(definitions) == len(set(definitions))
    for name in definitions:
        assert f"&{name});" in text
    assert set(re.findall(r"\bwrapper_\w+", text)) == set(definitions)
    assert text.count("{") == text.count("}")


def assert_partition(
    coverage: dict[str, object], functions: NativeFunctions, file: BackendFile
) -> None:
    overloads = coverage["overloads"]
    assert isinstance(overloads, list)
    names = [each["name"] for each in overloads]
    assert names == sorted(functions.by_name)
    counts = Counter(each["status"] for each in overloads)
    assert {key: count for key, count in coverage["counts"].items() if count} == counts  # type: ignore[attr-defined]
    supported = {each["name"] for each in overloads if each["status"] == "supported"}
    assert supported == {entry.name for entry in (*file.supported, *file.autograd)}
    for each in overloads:
        assert (each["status"] == "missing") == bool(each.get("reason"))
        if each["status"] == "derived":
            assert each["source"] in supported


def test_the_order_of_the_file_is_not_that_of_the_output(functions: NativeFunctions) -> None:
    names = sorted(functions.by_name)[::50]
    forwards, backwards = (
        render_backend(backend_file(order, []), functions) for order in (names, names[::-1])
    )
    assert forwards == backwards


@st.composite
def backend_files(draw: st.DrawFn, functions: NativeFunctions) -> BackendFile:
    """Valid ones: variants of one operator are not split over both lists."""
    names = sorted(functions.by_name)
    supported = draw(st.lists(st.sampled_from(names), unique=True, max_size=60))
    taken = {id(functions.groups[name]) for name in supported if name in functions.groups}
    autograd = [
        name
        for name in draw(st.lists(st.sampled_from(names), unique=True, max_size=10))
        if name not in supported and id(functions.groups.get(name)) not in taken
    ]
    sized = [name for name in [*supported, *autograd] if functions.by_name[name].func.has_symint()]
    symint = draw(st.sets(st.sampled_from(sized))) if sized else set()
    return backend_file(
        supported,
        autograd,
        symint=frozenset(symint),
        use_out_as_primary=draw(st.booleans()),
        device_guard=draw(st.booleans()),
    )


def backend_file(
    supported: list[str],
    autograd: list[str],
    *,
    symint: frozenset[str] = frozenset(),
    use_out_as_primary: bool = False,
    device_guard: bool = False,
) -> BackendFile:
    return BackendFile(
        path=Path("demo.yaml"),
        backend="PrivateUse1",
        class_name="DemoFunctions",
        cpp_namespace="demo",
        extra_headers=(),
        supported=tuple(Entry(name=name, line=1) for name in supported),
        autograd=tuple(Entry(name=name, line=1) for name in autograd),
        symint=symint,
        use_out_as_primary=use_out_as_primary,
        device_guard=device_guard,
    )
