"""The model of a schema loses nothing: its text is what torchgen parsed."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codegen.aten import find_torch, load_schemas, native_functions, schema_of
from codegen.errors import GenerationError

if TYPE_CHECKING:
    from collections.abc import Callable

model: Any = pytest.importorskip("torchgen.model", reason="torch is not installed")


def test_every_schema_of_the_installed_torch_comes_back() -> None:
    """Not only those that write: factories, views and named dimensions too."""
    from torchgen.gen import parse_native_yaml

    torch = find_torch()
    parsed = parse_native_yaml(str(torch.schema_file), str(torch.tags_file))
    texts = [str(function.func) for function in parsed.native_functions]
    assert len(texts) > 3000
    assert [str(schema_of(function.func)) for function in parsed.native_functions] == texts


def test_functions_are_declared_as_in_atens_headers() -> None:
    """The generated code declares them itself, and is linked with torch's definitions."""
    torch = find_torch()
    headers = sorted((torch.torch / "include" / "ATen" / "ops").glob("*_ops.h"))
    declared = {
        match[1]: match[2]
        for header in headers
        for match in re.finditer(
            r"struct TORCH_API (\w+) \{.*?static ([^;]* call\([^;]*\));", header.read_text(), re.S
        )
    }
    declarations = chain.from_iterable(load_schemas(torch).by_name.values())
    ours = {each.schema.function: each.cpp_call for each in declarations}
    assert len(ours) > 1400
    assert ours == {name: declared[name] for name in ours}


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("__version__ = '2.9.1+vendor'\n", "2.9.1+vendor"),
        ("__version__: str = '2.9.1'\n", "2.9.1"),
        ("__version__ = '1'\n__version__ = '2'\n", "2"),
        ("__version__ = get_version()\n", "2.8.0+acme"),
        ("v = 1\n__version__ = f'{v}.0'\n", "2.8.0+acme"),
        ("__version__ = (\n", "2.8.0+acme"),
        ("", "2.8.0+acme"),
    ],
)
def test_the_version_of_a_torch(tmp_path: Path, text: str, version: str) -> None:
    """A file that computes it leaves the version of the installed distribution."""
    torch = find_torch()
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "version.py").write_text(text)
    (tmp_path / "torch-2.8.0+acme.dist-info").mkdir()
    metadata = tmp_path / "torch-2.8.0+acme.dist-info" / "METADATA"
    metadata.write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.8.0+acme\n")
    moved = replace(torch, torch=tmp_path / "torch")
    with native_functions(moved) as parsed:
        assert parsed.torch_version == version


def test_a_torch_without_a_version(tmp_path: Path) -> None:
    (tmp_path / "version.py").write_text("__version__ = get_version()\n")
    message = r"version\.py: expected a string assigned to __version__, or torch-\*\.dist-info in "
    with (
        pytest.raises(GenerationError, match=message),
        native_functions(replace(find_torch(), torch=tmp_path)),
    ):
        pass


NAMES = st.from_regex(r"[a-z][a-z0-9]{0,5}", fullmatch=True)
BASES = st.sampled_from([base.name for base in model.BaseTy])
SUFFIXES = st.sampled_from(["", "?", "[]", "[2]", "[]?", "[3]?", "?[]", "?[]?", "[][]"])
DEFAULTS = st.sampled_from(["None", "1", "-2", "[0,1]", "1.5", "'fro'", "Mean", "False"])


@st.composite
def arguments(draw: Callable[..., Any], names: list[str]) -> list[str]:
    texts = []
    for name in names:
        default = draw(st.one_of(st.just(""), DEFAULTS.map("={}".format)))
        texts.append(f"{draw(BASES)}{draw(SUFFIXES)} {name}{default}")
    return texts


@st.composite
def schemas(draw: Callable[..., Any]) -> str:
    """The text of a valid functional, in-place or out= schema."""
    names = draw(st.lists(NAMES, unique=True, max_size=8))
    split = draw(st.integers(0, len(names)))
    positional = draw(arguments(names[:split]))
    keywords = draw(arguments(names[split:]))
    kind = draw(st.sampled_from(["functional", "inplace", "view", "out", "out list"]))
    base = draw(NAMES)
    overload = draw(st.sampled_from(["", ".out", ".Tensor_out", ".dim"]))
    returns = "()"
    if kind == "functional":
        returns = draw(st.sampled_from(["()", "Tensor", "Tensor[]", "(Tensor values, int n)"]))
    elif kind == "inplace":
        base += "_"
        positional = ["Tensor(a!) self", *positional]
        returns = "Tensor(a!)"
    elif kind == "view":
        annotation = draw(st.sampled_from(["a", "a|b", "a -> *"]))
        suffix = draw(st.sampled_from(["", "[]"]))
        positional = [f"Tensor({annotation}) self", *positional]
        returns = f"Tensor(a){suffix}"
    elif kind == "out":
        letters = "zyxw"[: draw(st.integers(1, 4))]
        keywords += [f"Tensor({letter}!) OUT{letter}" for letter in letters]
        outs = [f"Tensor({letter}!)" for letter in letters]
        returns = outs[0] if len(outs) == 1 else f"({', '.join(outs)})"
    else:
        keywords += ["Tensor(z!)[] OUT"]
    listed = ", ".join([*positional, *(["*", *keywords] if keywords else [])])
    return f"{base}{overload}({listed}) -> {returns}"


@settings(deadline=None)
@given(schemas())
def test_any_schema_comes_back(text: str) -> None:
    parsed = model.FunctionSchema.parse(text)
    schema = schema_of(parsed)
    assert str(schema) == text
    writes = {argument.name for argument in schema.arguments if argument.is_written}
    assert writes == {argument.name for argument in parsed.arguments.flat_all if argument.is_write}
