"""The comparison with the CPU accepts every right answer and no wrong answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import oracles
import pytest
from harness import Arguments, invoke
from installed import overloads
from oracles import AGREES, compare, summary
from samples import Sample, load

import torch
from torch import Tensor

ATEN = torch.ops.aten
SQUARE = torch.tensor([[4.0, 1.0, 0.5], [1.0, 3.0, -1.0], [0.5, -1.0, 2.0]])
UNEVEN = torch.tensor([[1.0, 2.0], [3.0, -1.0], [0.5, 4.0], [2.0, 0.0]])
# Equal elements: an index may pick any of them.
TIES = torch.tensor([[2.0, 5.0, 5.0, 1.0], [3.0, 3.0, 0.0, 3.0]])

Change = Callable[[Arguments], object]


def run(overload: Any, inputs: Arguments) -> tuple[Arguments, Arguments, Arguments]:
    """Returns the inputs, and the outcomes of two calls with them."""

    def arguments() -> Arguments:
        bound: Arguments = {}
        for argument in overload._schema.arguments:
            if argument.name in inputs:
                value = inputs[argument.name]
                bound[argument.name] = value.clone() if isinstance(value, Tensor) else value
            else:
                bound[argument.name] = argument.default_value
        return bound

    outcomes = arguments(), arguments()
    for each in outcomes:
        invoke(overload, each)
    return arguments(), *outcomes


def outs(**kinds: torch.dtype) -> Arguments:
    return {name: torch.empty(0, dtype=dtype) for name, dtype in kinds.items()}


def verdict(overload: Any, inputs: Arguments, change: Change) -> str:
    before, expected, actual = run(overload, inputs)
    change(actual)
    return compare(overload, before, expected, actual)


def flip_signs(*names: str, dims: tuple[int, ...]) -> Change:
    """Changes the sign of the first vector of each factor: the first column or row."""

    def change(arguments: Arguments) -> None:
        for name, dim in zip(names, dims, strict=True):
            arguments[name].select(dim, 0).neg_()

    return change


def permute(*names: str) -> Change:
    def change(arguments: Arguments) -> None:
        for name in names:
            arguments[name].copy_(arguments[name].flip(-1))

    return change


def put(name: str, place: tuple[int, ...], value: float) -> Change:
    def change(arguments: Arguments) -> None:
        arguments[name][place] = value

    return change


def swap(left: str, right: str) -> Change:
    def change(arguments: Arguments) -> None:
        arguments[left], arguments[right] = arguments[right].clone(), arguments[left].clone()

    return change


def leave(arguments: Arguments) -> None:
    """Changes nothing."""


FLOAT, COMPLEX, INT, INT32 = torch.float32, torch.complex64, torch.int64, torch.int32
SVD = {"self": UNEVEN, **outs(U=FLOAT, S=FLOAT, V=FLOAT)}
LINALG_SVD = {"A": UNEVEN, **outs(U=FLOAT, S=FLOAT, Vh=FLOAT)}
EIGH = {"self": SQUARE, **outs(eigvals=FLOAT, eigvecs=FLOAT)}
EIG = {"self": SQUARE, **outs(eigenvalues=COMPLEX, eigenvectors=COMPLEX)}
QR = {"A": UNEVEN, **outs(Q=FLOAT, R=FLOAT)}
LU = {"A": SQUARE, **outs(P=FLOAT, L=FLOAT, U=FLOAT)}
LU_FACTOR = {"A": SQUARE, **outs(LU=FLOAT, pivots=INT32)}
LDL = {"self": SQUARE, **outs(LD=FLOAT, pivots=INT32)}
SORT = {"self": TIES, **outs(values=FLOAT, indices=INT)}
MAX = {"self": TIES, "dim": 1, **outs(max=FLOAT, max_values=INT)}
POOL = {
    "self": TIES.reshape(1, 2, 4),
    "kernel_size": [2, 2],
    **outs(out=FLOAT, indices=INT),
}
UNIQUE = {"self": TIES, "return_inverse": True, **outs(out0=FLOAT, out1=INT)}
NORMAL = {"self": torch.zeros(8)}

RIGHT: list[tuple[Any, Arguments, Change]] = [
    (ATEN.abs.out, {"self": UNEVEN, **outs(out=FLOAT)}, leave),
    (ATEN.abs.out, {"self": UNEVEN, **outs(out=FLOAT)}, put("out", (0, 0), 1.00005)),
    (ATEN.svd.U, SVD, flip_signs("U", "V", dims=(1, 1))),
    (ATEN.linalg_svd.U, LINALG_SVD, flip_signs("U", "Vh", dims=(1, 0))),
    (ATEN.linalg_eigh.eigvals, EIGH, flip_signs("eigvecs", dims=(1,))),
    (ATEN.linalg_eig.out, EIG, permute("eigenvalues", "eigenvectors")),
    (ATEN.linalg_eig.out, EIG, flip_signs("eigenvectors", dims=(1,))),
    (ATEN.linalg_qr.out, QR, flip_signs("Q", "R", dims=(1, 0))),
    (ATEN.max.dim_max, MAX, put("max_values", (0,), 2)),
    (
        ATEN.sort.values,
        SORT,
        lambda a: a["indices"].copy_(torch.tensor([[3, 0, 2, 1], [2, 3, 1, 0]])),
    ),
    (
        ATEN._unique.out,
        UNIQUE,
        lambda a: (a["out0"].copy_(a["out0"].flip(0)), a["out1"].copy_(4 - a["out1"])),
    ),
    (ATEN.normal_.default, NORMAL, lambda a: a["self"].normal_()),
]

WRONG: list[tuple[Any, Arguments, Change, str]] = [
    (
        ATEN.abs.out,
        {"self": UNEVEN, **outs(out=FLOAT)},
        put("out", (0, 0), 1.001),
        "off by up to 0.001",
    ),
    (ATEN.abs.out, {"self": UNEVEN, **outs(out=FLOAT)}, put("out", (0, 0), float("nan")), "1 of 8"),
    (ATEN.svd.U, SVD, flip_signs("U", dims=(1,)), "U S Vh"),
    (ATEN.svd.U, SVD, put("S", (0,), 9), "singular values"),
    (ATEN.linalg_svd.U, LINALG_SVD, put("Vh", (0, 0), 0.1), "U S Vh"),
    (ATEN.linalg_eigh.eigvals, EIGH, permute("eigvals"), "eigenvalues"),
    (ATEN.linalg_eigh.eigvals, EIGH, permute("eigvecs"), "V L Vh"),
    (ATEN.linalg_eig.out, EIG, permute("eigenvectors"), "A V - V L"),
    (ATEN.linalg_eig.out, EIG, lambda a: a["eigenvectors"].mul_(2), "lengths"),
    (ATEN.linalg_eig.out, EIG, put("eigenvalues", (0,), 7), "largest"),
    (ATEN.linalg_qr.out, QR, flip_signs("Q", dims=(1,)), "Q R"),
    (ATEN.linalg_qr.out, QR, put("R", (1, 0), 1), "Q R"),
    (ATEN.linalg_lu.out, LU, swap("L", "U"), "P L U"),
    (ATEN.linalg_lu_factor.out, LU_FACTOR, put("LU", (0, 0), 1), "P L U"),
    (ATEN.linalg_ldl_factor.out, LDL, put("LD", (0, 0), 1), "inverse"),
    (ATEN.max.dim_max, MAX, put("max_values", (0,), 0), "picked"),
    (ATEN.max.dim_max, MAX, put("max_values", (0,), 99), "its outputs cannot be combined"),
    (ATEN.sort.values, SORT, put("indices", (0, 0), 0), "picked"),
    (
        ATEN.sort.values,
        SORT,
        lambda a: a["indices"].copy_(torch.tensor([[3, 0, 1, 1], [2, 0, 1, 3]])),
        "picked twice",
    ),
    (ATEN.max_pool2d_with_indices.out, POOL, put("indices", (0, 0, 0), 0), "picked"),
    (ATEN._unique.out, UNIQUE, put("out1", (0, 0), 0), "picked"),
    (ATEN.normal_.default, NORMAL, lambda a: a["self"].resize_(3), "shape (3,), on the CPU (8,)"),
    (
        ATEN.abs.out,
        {"self": UNEVEN, **outs(out=FLOAT)},
        lambda a: a.update(out=a["out"].double()),
        "torch.float64",
    ),
]


@pytest.mark.parametrize(("overload", "inputs", "change"), RIGHT)
def test_another_right_answer_agrees(overload: Any, inputs: Arguments, change: Change) -> None:
    assert verdict(overload, inputs, change) == AGREES


@pytest.mark.parametrize(("overload", "inputs", "change", "message"), WRONG)
def test_a_wrong_answer_differs(
    overload: Any, inputs: Arguments, change: Change, message: str
) -> None:
    result = verdict(overload, inputs, change)
    assert result.startswith("differs: ")
    assert message in result


@pytest.mark.parametrize(
    ("dtype", "error", "agrees"),
    [
        (torch.float64, 1e-8, True),
        (torch.float64, 1e-6, False),
        (torch.float16, 5e-3, True),
        (torch.float16, 5e-2, False),
        (torch.bfloat16, 1e-2, True),
        (torch.bfloat16, 1e-1, False),
        (torch.complex64, 1e-5, True),
        (torch.complex64, 1e-2, False),
        (torch.int64, 1, False),
    ],
)
def test_each_dtype_has_its_tolerance(dtype: torch.dtype, error: float, *, agrees: bool) -> None:
    inputs = {"self": torch.ones(1, dtype=dtype), **outs(out=dtype)}
    result = verdict(ATEN.neg.out, inputs, lambda a: a["out"].add_(error))
    assert (result == AGREES) is agrees, result


def test_what_the_cpu_refuses_cannot_be_compared() -> None:
    sample = Sample("mm.out", "float32", {"self": 1, "mat2": 2, "out": 3})
    assert oracles.against_cpu(sample, ATEN.mm.out, {}).startswith(
        "not comparable: the CPU refuses it: "
    )


def test_every_operator_with_a_comparison_of_its_own_has_samples() -> None:
    # Not `hasattr(ATEN, name)`: torch 2.14 has no `qr` any more.
    assert oracles.SHARED.keys() <= {name.partition(".")[0] for name in load().samples}


def test_no_indices_are_compared_as_numbers() -> None:
    for overload in overloads():
        outs = [parameter.name for parameter in overload.parameters if parameter.is_out]
        if any("indices" in name for name in outs):
            assert overload.aten_name in oracles.SHARED, overload.qualified_name


def test_one_sample_that_differs_outweighs_all() -> None:
    assert summary(["agrees", "differs: out", "not comparable: x"]) == "differs: out"
    assert summary(["not comparable: x", "agrees"]) == "agrees"
    assert summary(["not comparable: x"]) == "not comparable: x"
    assert summary([]) == "not comparable: no sample ran"
