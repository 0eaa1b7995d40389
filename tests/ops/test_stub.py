"""The installed stub matches the installed module; tests/codegen checks it with mypy."""

from __future__ import annotations

import ast
import pydoc
from functools import cache
from pathlib import Path

import pytest
from installed import class_name, operators

import infini.ops

PACKAGE = Path(infini.ops.__file__).parent
CALL_OPTIONS = {"implementation_index", "stream"}  # what every operator takes


@cache
def stub() -> ast.Module:
    return ast.parse((PACKAGE / "__init__.pyi").read_text())


def declared(kind: type[ast.FunctionDef | ast.ClassDef]) -> set[str]:
    """Returns the public functions or classes of the stub."""
    names = {node.name for node in stub().body if isinstance(node, kind)}
    return {name for name in names if not name.startswith("_")}


def test_the_package_is_marked_as_typed() -> None:
    assert (PACKAGE / "py.typed").read_text() == ""


def test_it_has_the_functions_and_classes_of_the_module() -> None:
    classes = {"Call", "Operator", "Platform"}
    functions = set(infini.ops.__all__) - classes
    assert declared(ast.FunctionDef) == functions
    paths = {"include_dir", "metadata_path", "native_metadata_path"}
    helpers = {"devices", "last_call", "platforms"} | paths
    assert declared(ast.ClassDef) == classes | set(map(class_name, functions - helpers))
    for name in declared(ast.FunctionDef) | declared(ast.ClassDef):
        assert callable(getattr(infini.ops, name)), name


def test_it_takes_the_parameters_of_every_overload() -> None:
    taken: dict[str, list[set[str]]] = {}
    for node in stub().body:
        if isinstance(node, ast.FunctionDef):
            names = {each.arg for each in [*node.args.args, *node.args.kwonlyargs]}
            taken.setdefault(node.name, []).append(names)
    for overload in operators():
        names = {parameter.name for parameter in overload.parameters} | CALL_OPTIONS
        # More than its own if an overload with defaults takes its calls too.
        assert any(names <= each for each in taken[overload.name]), overload


def test_it_exports_what_the_module_exports() -> None:
    (exported,) = [
        ast.literal_eval(node.value)
        for node in stub().body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    ]
    assert sorted(exported) == sorted(infini.ops.__all__)


def test_its_operator_class_has_the_members_of_the_module() -> None:
    (operator,) = [
        node for node in stub().body if isinstance(node, ast.ClassDef) and node.name == "Operator"
    ]
    members = {node.name for node in operator.body if isinstance(node, ast.FunctionDef)}
    assert members == {name for name in vars(infini.ops.Operator) if not name.startswith("_")}


class TestHelp:
    @pytest.mark.cpu_kernels
    def test_it_names_what_is_written_and_the_slots(self) -> None:
        text = pydoc.plain(pydoc.render_doc(infini.ops.add))
        assert "    add(Tensor input, Tensor other, Scalar alpha=1, Tensor out)\n" in text
        assert "    Writes into: out.\n" in text
        assert "    Active slots on cpu: 0, 8\n" in text
        assert "Writes into: values, indices." in infini.ops.topk.__doc__
        assert "Writes into: input." in infini.ops.abs_inplace.__doc__

    def test_defaults_are_shown_with_the_digits_of_the_schema(self) -> None:
        assert "Scalar negative_slope=0.01," in infini.ops.leaky_relu.__doc__

    def test_a_class_shows_its_operator_and_methods(self) -> None:
        text = pydoc.plain(pydoc.render_doc(infini.ops.Abs))
        assert "The operator ``infini.ops.abs``." in text
        assert "active_implementation_indices(device: str) -> list[int]" in text

    @pytest.mark.operators("abs", "topk")
    def test_the_module_lists_its_operators(self) -> None:
        text = pydoc.plain(pydoc.render_doc(infini.ops))
        for name in ("abs", "topk"):
            assert f"    {name} = <operator infini.ops.{name}>\n" in text
