"""Public names of ATen operators."""

from __future__ import annotations

import pytest

from codegen.aten import Schemas
from codegen.names import class_name, parameter_name, public_name


@pytest.mark.parametrize(
    ("aten_name", "inplace", "expected"),
    [
        ("abs", False, "abs"),
        ("abs_", True, "abs_inplace"),
        ("_softmax", False, "internal_softmax"),
        ("_fill_mem_eff_dropout_mask_", True, "internal_fill_mem_eff_dropout_mask_inplace"),
        ("__iand__", True, "internal_iand_inplace"),
        ("__lshift__", False, "internal_lshift"),
    ],
)
def test_public_name(aten_name: str, inplace: bool, expected: str) -> None:
    assert public_name(aten_name, inplace=inplace) == expected


def test_class_name() -> None:
    assert class_name("log_softmax") == "LogSoftmax"
    assert class_name("upsample_nearest2d") == "UpsampleNearest2d"


def test_self_is_spelled_input_and_keywords_stay_usable() -> None:
    assert parameter_name("self") == "input"
    assert parameter_name("from") == "from_"
    assert parameter_name("dim") == "dim"


def test_no_two_aten_names_share_a_public_or_a_class_name(schemas: Schemas) -> None:
    names = [
        public_name(name, inplace=functions[0].func.name.name.inplace)
        for name, functions in schemas.by_name.items()
    ]
    assert len(set(names)) == len(names)
    assert len({class_name(name) for name in names}) == len(names)
