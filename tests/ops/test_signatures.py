"""The library's signature of every overload is torch's: types, names, defaults, outs.

Samples cannot show all of it. They pass every argument, so a wrong default goes unnoticed. An
output that the library declares as an input is still written.
"""

from __future__ import annotations

import ast
import keyword
import re
from typing import Any

import pytest
from installed import (
    TORCH_SLOT,
    NativeOperator,
    Overload,
    native_operators,
    operator_names,
    overloads,
)

import infini.ops
from infini.ops import _core

Signature = list[tuple[str, str, object]]  # type, name and default of each parameter

REQUIRED = "no default"
# Defaults that are enumerators in native_functions.yaml.
ENUMERATORS = {"Mean": 1, "contiguous_format": 0}
# The library's names of the types that ATen has several names for.
KINDS = (  # in the order of C++ `Parameter::Type`
    *("Tensor", "Scalar", "int", "float", "bool", "str"),
    *("DataType", "Layout", "MemoryFormat", "Device", "Generator"),
)
TABLE_TYPES = {"SymInt": "int", "DeviceIndex": "int", "ScalarType": "DataType"}


def split(parameters: str) -> list[str]:
    """Splits at the commas that are not inside a default list."""
    return re.split(r", (?![^\[]*\])", parameters)


def python_name(aten_argument: str) -> str:
    if aten_argument == "self":
        return "input"
    return f"{aten_argument}_" if keyword.iskeyword(aten_argument) else aten_argument


def declared(overload: Overload) -> Signature:
    """Returns torch's own signature of an overload: inputs, then outs."""
    schema = overload.aten()._schema
    texts = str(schema).partition("(")[2].rpartition(") ->")[0]
    spelled = [text for text in split(texts) if text != "*"]
    # The text, without "(a!)", has sizes of lists, the object values of defaults.
    types = [re.sub(r"\(\w+!?[^)]*\)", "", text).partition(" ")[0] for text in spelled]
    parameters = sorted(
        zip(schema.arguments, types, strict=True), key=lambda parameter: parameter[0].is_out
    )
    return [
        (type_, python_name(argument.name), default_of(argument)) for argument, type_ in parameters
    ]


def default_of(argument: Any) -> object:
    return argument.default_value if argument.has_default_value() else REQUIRED


def written(overload: Overload) -> list[str]:
    """Returns the names of the arguments that torch declares as written."""
    arguments = overload.aten()._schema.arguments
    return [
        python_name(argument.name)
        for argument in sorted(arguments, key=lambda argument: argument.is_out)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]


def parsed(default: str | None, type_: str) -> object:
    """Returns the value of a default; one number for a list of fixed size is all of them."""
    if default is None:
        return REQUIRED
    value = ENUMERATORS[default] if default in ENUMERATORS else ast.literal_eval(default)
    size = re.search(r"\[(\d+)\]", type_)
    return [value] * int(size[1]) if size and isinstance(value, int) else value


def in_metadata(overload: Overload | NativeOperator) -> Signature:
    return [(each.type, each.name, parsed(each.default, each.type)) for each in overload.parameters]


def in_table(parameter: tuple[Any, ...]) -> tuple[str, str, object]:
    """Reads a parameter of the compiled table."""
    name, kind, size, is_optional, has_optional_elements, _, default = parameter
    type_ = KINDS[kind] + "?" * has_optional_elements
    if size >= 0:
        type_ += f"[{size or ''}]"
    return type_ + "?" * is_optional, name, default[0] if default else REQUIRED


def in_text(line: str) -> Signature:
    """Reads a line of an operator's documentation."""
    parameters = split(line.partition("(")[2].removesuffix(")"))
    matches = [re.fullmatch(r"(\S+) (\w+)(?:=(.*))?", text) for text in parameters if text != "*"]
    return [(match[1], match[2], parsed(match[3], match[1])) for match in matches if match]


def as_in_table(signature: Signature) -> Signature:
    return [
        (re.sub(r"^\w+", lambda name: TABLE_TYPES.get(name[0], name[0]), type_), name, default)
        for type_, name, default in signature
    ]


def of_operator(name: str) -> list[Overload]:
    return [overload for overload in overloads() if overload.name == name]


def test_the_metadata_has_the_schemas_of_torch() -> None:
    for overload in overloads():
        assert in_metadata(overload) == declared(overload), overload.qualified_name
        outs = [parameter.name for parameter in overload.parameters if parameter.is_out]
        assert outs == written(overload), overload.qualified_name


def table_of(name: str) -> list[Signature]:
    return [[in_table(row) for row in overload] for overload in _core.parameters(name)]


def texts_of(name: str) -> list[Signature]:
    lines = getattr(infini.ops, name).__doc__.partition("\n\n")[0].splitlines()
    return [in_text(line) for line in lines]


def test_the_table_has_the_schemas_of_torch() -> None:
    for name in operator_names():
        expected = [as_in_table(declared(overload)) for overload in of_operator(name)]
        assert table_of(name) == expected, name
        outs = [[row[0] for row in overload if row[5]] for overload in _core.parameters(name)]
        assert outs == [written(overload) for overload in of_operator(name)], name


def test_the_documentation_has_the_parameters_of_the_table() -> None:
    """Signatures are texts beside the table: the generator writes both."""
    for name in {*operator_names(), *(operator.name for operator in native_operators())}:
        assert texts_of(name) == table_of(name), name


def test_the_table_has_what_hand_written_bases_say() -> None:
    """The generator reads the text of the bases, the compiler their meaning."""
    for operator in native_operators():
        expected = as_in_table(in_metadata(operator))
        outs = ", ".join(each.name for each in operator.parameters if each.is_out)
        assert expected in table_of(operator.name), operator.name
        assert f"Writes into: {outs}." in getattr(infini.ops, operator.name).__doc__


# Overloads whose recorded call torch itself gives to another one: both take it.
SHARED_CALLS = {"upsample_bilinear2d.vec_out", "upsample_nearest2d.vec_out"}


@pytest.mark.filterwarnings("ignore")  # torch itself warns about some samples
def test_a_call_as_torch_makes_it_runs_the_overload_that_torch_runs() -> None:
    """By position what torch takes by position: ``linalg_pinv(A, 0.2)`` is the one of ``rcond``."""
    names = [overload.name for overload in overloads()]
    of_several = [overload for overload in overloads() if names.count(overload.name) > 1]
    ran = []
    for overload in of_several:
        for sample in overload.samples()[:1]:
            arguments = sample.bind(overload.aten()._schema, "cpu")
            try:
                overload.call(TORCH_SLOT, by_keyword=False)(arguments)
            except (RuntimeError, NotImplementedError):
                continue  # torch itself refuses these arguments
            call = infini.ops.last_call()
            assert call is not None
            ran.append(overload.qualified_name)
            if call.overload != overload.overload_name:
                assert overload.qualified_name in SHARED_CALLS
    assert len(ran) > 0.8 * len(of_several)
