"""What an argument of a schema becomes, or why nothing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from codegen.aten import schema_of
from codegen.model import (
    Argument,
    Declaration,
    Overload,
    Parameter,
    ParameterKind,
    SkipReason,
    Type,
)
from codegen.translate import MAX_PARAMETERS, overload_of, parameter_of


def declare(arguments: str, name: str = "foo.out") -> Declaration:
    """An out= function with these arguments."""
    model = pytest.importorskip("torchgen.model", reason="torch is not installed")
    text = f"{name}({arguments}, *, Tensor(a!) out) -> Tensor(a!)"
    schema = schema_of(model.FunctionSchema.parse(text))
    return Declaration(schema=schema, cpp_call="", is_inplace=False, tags=(), line=1)


def translate(argument: str) -> Parameter | SkipReason:
    return parameter_of(declare(argument).schema.arguments[0])


@pytest.mark.parametrize(
    ("argument", "kind", "default"),
    [
        ("Tensor x", ParameterKind.TENSOR, None),
        ("Tensor?[] x", ParameterKind.TENSOR, None),
        ("Tensor[]? x", ParameterKind.TENSOR, None),
        ("Scalar x=1.5", ParameterKind.SCALAR, 1.5),
        ("Scalar x=True", ParameterKind.SCALAR, True),
        ("Scalar[] x", ParameterKind.SCALAR, None),
        ("SymInt x=-1", ParameterKind.INT, -1),
        ("int x=Mean", ParameterKind.INT, 1),
        ("int[2] x=0", ParameterKind.INT, 0),
        ("SymInt[] x=[0,1]", ParameterKind.INT, (0, 1)),
        ("int[1]? x=None", ParameterKind.INT, None),
        ("DeviceIndex x", ParameterKind.INT, None),
        ("float x=1", ParameterKind.FLOAT, 1),
        ("float[]? x=None", ParameterKind.FLOAT, None),
        ("bool x=False", ParameterKind.BOOL, False),
        ("bool[3] x", ParameterKind.BOOL, None),
        ("str x='linear'", ParameterKind.STRING, "linear"),
        ('str x="L"', ParameterKind.STRING, "L"),
        ("ScalarType? x=None", ParameterKind.DATA_TYPE, None),
        ("Layout? x", ParameterKind.LAYOUT, None),
        ("MemoryFormat x=contiguous_format", ParameterKind.MEMORY_FORMAT, 0),
        ("Device x", ParameterKind.DEVICE, None),
        ("Generator? x=None", ParameterKind.GENERATOR, None),
    ],
)
def test_known_arguments(argument: str, kind: ParameterKind, default: object) -> None:
    parameter = translate(argument)
    assert isinstance(parameter, Parameter)
    assert parameter.kind is kind
    assert parameter.default == default
    assert type(parameter.default) is type(default)
    assert str(parameter.argument) == argument


@pytest.mark.parametrize(
    ("base", "reason"),
    [
        ("Dimname", SkipReason.DIMNAME),
        ("Storage", SkipReason.STORAGE),
        ("Stream", SkipReason.STREAM),
        ("QScheme", SkipReason.QSCHEME),
        ("ForkFormat", SkipReason.UNKNOWN_TYPE),
    ],
)
@pytest.mark.parametrize("list_size", [None, 0, 1])
def test_types_that_are_left_out(base: str, list_size: int | None, reason: SkipReason) -> None:
    argument = Argument(
        name="x",
        type=Type(base=base, list_size=list_size),
        annotation=None,
        default=None,
        keyword_only=False,
    )
    assert parameter_of(argument) is reason


@pytest.mark.parametrize(
    "type_",
    [
        *("GraphModule", "DimVector", "SymBool", "__torch__.torch.classes.foo.Bar"),
        *("Tensor[][]", "Tensor??", "int?[]", "Scalar?[]", "bool[]", "Scalar[]?", "str[]"),
        *("Device[]", "Generator[]", "ScalarType[2]"),
    ],
)
def test_types_that_torchgen_knows_and_we_do_not(type_: str) -> None:
    assert translate(f"{type_} x") is SkipReason.UNKNOWN_TYPE


@pytest.mark.parametrize(
    "argument",
    [
        *("ScalarType x=long", "Layout x=strided", "Tensor x=None", "Tensor x=0", "bool x=1"),
        *("int x=None", "int x=True", "int x=1.5", "int x=9223372036854775808", "float x=inf"),
        *("float x=1e999", "float x='a'", "int[] x=[1.5]", "int x=[1]", "float[] x=[1.0]"),
        *("Scalar[] x=1", "int[] x=[None]", "str x=a", "str x='\"'", "str x='\\\\'"),
        *("str x='\u00e9'", "Scalar x=1j", "int x=Median", "MemoryFormat x=Mean", "int x={1}"),
        *("float x=-nan", "bool[2] x=[True]"),
    ],
)
def test_defaults_that_we_do_not_know(argument: str) -> None:
    assert translate(argument) is SkipReason.UNKNOWN_DEFAULT


@pytest.mark.parametrize(
    ("arguments", "name", "reason"),
    [
        ("Tensor self, Tensor input", "foo.out", SkipReason.BAD_NAME),
        ("Tensor x-y", "foo.out", SkipReason.BAD_NAME),
        ("Tensor x", "foo.a.b", SkipReason.BAD_NAME),
        ("Tensor x", "foo.a b", SkipReason.BAD_NAME),
        ("Tensor x, Storage y", "foo.out", SkipReason.STORAGE),
    ],
)
def test_whole_overloads(arguments: str, name: str, reason: SkipReason) -> None:
    assert overload_of(declare(arguments, name)) is reason


def test_as_many_parameters_as_a_call_can_hold(root: Path) -> None:
    header = (root / "src" / "bindings" / "call_storage.h").read_text()
    limit = re.search(r"kMaxParameters = (\d+)", header)
    assert limit is not None
    assert int(limit[1]) == MAX_PARAMETERS
    most = ", ".join(f"int x{index}" for index in range(MAX_PARAMETERS - 1))
    assert isinstance(overload_of(declare(most)), Overload)
    assert overload_of(declare(f"{most}, int y")) is SkipReason.TOO_MANY_PARAMETERS
