"""Public names of ATen operators."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from codegen.model import (
    RESERVED_CLASS_NAMES,
    RESERVED_NAMES,
    RESERVED_PARAMETERS,
    Schemas,
    class_name,
    parameter_name,
    public_name,
)


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


@pytest.mark.parametrize("name", sorted(RESERVED_PARAMETERS))
def test_parameters_that_every_call_has(name: str) -> None:
    assert parameter_name(name) == f"{name}_"


def test_no_two_aten_names_share_a_public_or_a_class_name(schemas: Schemas) -> None:
    names = list(schemas.public_names.values())
    assert len(set(names)) == len(names)
    assert len({class_name(name) for name in names}) == len(names)


def test_the_names_that_the_library_has_are_reserved(root: Path) -> None:
    """In the scopes of operators and of their classes."""
    headers = sorted((root / "src" / "include").rglob("*.h"))
    headers.append(root / "codegen" / "templates" / "device_type.h.j2")
    text = "\n".join(path.read_text() for path in headers)
    declared = r"^(?:class|struct|enum class|using) (?:INFINI_OPS_API )?(\w+)"
    classes = re.findall(declared, text, re.MULTILINE)
    python = (root / "src" / "infini" / "ops" / "__init__.py").read_text()
    classes += re.findall(r"^class (\w+)", python, re.MULTILINE)
    assert "Tensor" in classes
    assert "Operator" in classes
    assert RESERVED_CLASS_NAMES.issuperset(classes), "add it to codegen/model.py"
    functions = re.findall(r"^def ([a-z]\w*)", python, re.MULTILINE)
    assert RESERVED_NAMES.issuperset(functions), "add it to codegen/model.py"
