"""How much of torch is generated: all of it, or there is a reason."""

from __future__ import annotations

import dataclasses

import pytest

from codegen.model import (
    RESERVED_CLASS_NAMES,
    RESERVED_NAMES,
    Library,
    Schemas,
    SkippedOverload,
    SkipReason,
)
from codegen.selection import apply_selections, parse_variable
from codegen.translate import make_library

# torch 2.13 has 1,107 out= and 337 in-place overloads, of 1,139 base names.
LEAST_OVERLOADS = 1400


def generated(library: Library) -> set[tuple[str, str]]:
    return {
        (overload.schema.aten_name, overload.schema.overload_name) for overload in library.overloads
    }


def skipped(library: Library) -> dict[tuple[str, str], SkipReason]:
    return {(skip.aten_name, skip.overload_name): skip.reason for skip in library.skipped}


def declared(schemas: Schemas) -> set[tuple[str, str]]:
    return {
        (name, declaration.schema.overload_name)
        for name, declarations in schemas.by_name.items()
        for declaration in declarations
    }


def with_names(schemas: Schemas, **names: str) -> Schemas:
    """The schemas, and behind them operators that a fork has made: copies under other names."""
    by_name = dict(schemas.by_name)
    for new, old in names.items():
        by_name[new] = tuple(
            dataclasses.replace(
                declaration, schema=dataclasses.replace(declaration.schema, aten_name=new)
            )
            for declaration in schemas.by_name[old]
        )
    return dataclasses.replace(schemas, by_name=by_name)


def test_the_set_cannot_shrink_silently(schemas: Schemas) -> None:
    library = make_library(schemas)
    assert len(generated(library)) >= LEAST_OVERLOADS
    assert {skip.reason for skip in library.skipped} == {SkipReason.STORAGE}


@pytest.mark.parametrize("variable", ["", "abs,fft_*,set_"])
def test_every_overload_is_generated_or_skipped(variable: str, schemas: Schemas) -> None:
    library = make_library(schemas, apply_selections([parse_variable(variable)], schemas))
    reasons = skipped(library)
    assert len(reasons) == len(library.skipped)
    assert generated(library).isdisjoint(reasons)
    assert generated(library) | reasons.keys() == declared(schemas)
    assert (SkipReason.NOT_SELECTED in reasons.values()) == (variable != "")
    assert reasons["set_", "source_Storage"] is SkipReason.STORAGE


def test_the_reasons_are_a_fixed_vocabulary() -> None:
    """Readers of the metadata may depend on them."""
    assert {reason.value for reason in SkipReason} == {
        "excluded by the selection",
        "not selected",
        "not in this torch",
        "takes named dimensions",
        "takes a storage",
        "takes a stream object",
        "takes a quantizer scheme",
        "takes a type that the generator does not know",
        "has a default that the generator does not know",
        "has too many parameters",
        "has a name that is no identifier, or the same one twice",
        "its public name is taken",
        "its hand-written base has other parameters",
    }


def test_a_name_that_this_torch_lacks_is_skipped(schemas: Schemas) -> None:
    choice = dataclasses.replace(apply_selections([], schemas), missing=("gelo",))
    missing = SkippedOverload(aten_name="gelo", overload_name="", reason=SkipReason.NOT_IN_TORCH)
    assert missing in make_library(schemas, choice).skipped


@pytest.mark.parametrize(
    "name",
    [
        "abs_inplace",  # the public name of `abs_`
        "internal_softmax",  # of `_softmax`
        "fftFft",  # its class is FftFft, as that of `fft_fft`
        "tensor",  # its class would be the library's own Tensor
        "devices",  # would replace infini.ops.devices
    ],
)
def test_an_operator_of_a_fork_takes_no_name(name: str, schemas: Schemas) -> None:
    library = make_library(with_names(schemas, **{name: "abs"}))
    assert skipped(library)[name, "out"] is SkipReason.NAME_TAKEN
    assert generated(library) == generated(make_library(schemas))


def test_an_operator_of_a_fork_is_generated(schemas: Schemas) -> None:
    library = make_library(with_names(schemas, npu_abs="abs"))
    assert ("npu_abs", "out") in generated(library)


@pytest.mark.parametrize("name", ["lambda", "foo-bar", "2d", "ns::abs"])
def test_a_name_that_nothing_can_have(name: str, schemas: Schemas) -> None:
    library = make_library(with_names(schemas, **{name: "abs"}))
    assert skipped(library)[name, "out"] is SkipReason.BAD_NAME


def test_no_operator_of_torch_has_a_reserved_name(schemas: Schemas) -> None:
    library = make_library(schemas)
    assert RESERVED_NAMES.isdisjoint(operator.name for operator in library.operators)
    assert RESERVED_CLASS_NAMES.isdisjoint(operator.class_name for operator in library.operators)


def test_a_call_is_tried_on_the_overload_that_has_nothing_to_fill_in_first(
    schemas: Schemas,
) -> None:
    orders = {
        operator.name: [overload.schema.overload_name for overload in operator.overloads]
        for operator in make_library(schemas).operators
    }
    assert orders["all"] == ["out", "all_out", "dims_out"]  # all.dims_out has a default dim
    moved = [
        name
        for name, declarations in schemas.by_name.items()
        if (order := orders.get(schemas.public_names[name]))
        and order
        != [
            each.schema.overload_name for each in declarations if each.schema.overload_name in order
        ]
    ]
    assert moved == ["all", "any"]  # all others are in schema order
