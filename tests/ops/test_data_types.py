"""Every element type of torch, by name and through DLPack."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from harness import equal
from reasons import SkipReason, skip

import infini.ops
import torch

DATA_TYPES = sorted(
    {value for value in vars(torch).values() if isinstance(value, torch.dtype)}, key=str
)
FLOAT8 = [data_type for data_type in DATA_TYPES if "float8" in str(data_type)]


class Foreign:
    """An array that has only DLPack's methods."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor

    def __dlpack__(self, **options: Any) -> Any:
        return self._tensor.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._tensor.__dlpack_device__()


def sum_as(data_type: torch.dtype | str) -> str:
    """Returns the sum in a dtype, or its error; most dtypes have no sum."""
    out = torch.zeros(())
    try:
        infini.ops.sum(torch.ones(2), dtype=data_type, out=out)
    except RuntimeError as error:
        return str(error).partition("\n")[0]
    return str(out)


@pytest.mark.parametrize("data_type", DATA_TYPES, ids=str)
def test_a_parameter_takes_the_name_of_a_type(data_type: torch.dtype) -> None:
    name = str(data_type).removeprefix("torch.")
    assert sum_as(name) == sum_as(data_type)


def test_a_name_that_no_type_has_fits_no_overload() -> None:
    with pytest.raises(TypeError, match="no overload takes"):
        sum_as("unknown")


def test_a_name_that_only_a_newer_torch_knows() -> None:
    if hasattr(torch, "bcomplex32"):
        skip(SkipReason.NOT_IN_THIS_TORCH, "it has every type that the library names")
    with pytest.raises(ValueError, match="this torch has no data type 'bcomplex32'"):
        sum_as("bcomplex32")


@pytest.mark.parametrize(
    "values",
    [
        *(np.array([1, 250], dtype=name) for name in ("uint8", "uint16", "uint32", "uint64")),
        *(np.array([-1, 2], dtype=name) for name in ("int8", "int16", "int32", "int64")),
        *(np.array([-0.5, 2], dtype=name) for name in ("float16", "float32", "float64")),
        *(np.array([0.5j, 2], dtype=name) for name in ("complex64", "complex128")),
        np.array([True, False]),
    ],
    ids=lambda values: str(values.dtype),
)
def test_an_array_has_the_values_of_its_type(values: np.ndarray[Any, Any]) -> None:
    out = torch.zeros(2, dtype=torch.complex128)
    infini.ops.copy(out, values, out=out)
    assert out.tolist() == values.tolist()


@pytest.mark.parametrize("data_type", FLOAT8, ids=str)
def test_eight_bit_floats_come_through_dlpack(data_type: torch.dtype) -> None:
    x = torch.tensor([0.5, 1, 2]).to(data_type)
    out = torch.zeros(3, dtype=data_type)
    infini.ops.copy(Foreign(x), Foreign(x), Foreign(out))
    assert equal(out.float(), x.float())
