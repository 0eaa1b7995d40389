"""A row has the same bits in every batch: of products with ``INFINI_OPS_BATCH_INVARIANT=1``.

Operators on rows need no option. Attention, routing, sampling and quantization have such tests in
their own files.
"""

from __future__ import annotations

import os
import sys

import pytest
from programs import output_of
from slot_zero import run

import torch

pytestmark = pytest.mark.cpu_kernels

# Row counts of each path: one row, few rows, small products, oneDNN's and the packed one.
PROGRAM = """
import sys

import infini.ops
import torch

ROWS, STEPS, COLUMNS = 150, 1030, 70


def linear(x, weight, rows):
    out = torch.empty(len(rows), COLUMNS, dtype=x.dtype)
    infini.ops.linear(x[rows], weight, weight[:, 0], out, implementation_index=0)
    return out


def matmul(x, weight, rows):
    out = torch.empty(len(rows), COLUMNS, dtype=x.dtype)
    infini.ops.matmul(x[rows], weight.t().contiguous(), out, implementation_index=0)
    return out


def gemm(x, weight, rows):
    out = x[rows, :COLUMNS].contiguous()
    infini.ops.gemm(x[rows], weight, 0.7, 0.3, False, True, out, implementation_index=0)
    return out


def gemm_by_column(x, weight, rows):
    out = x[rows, :COLUMNS].t().contiguous().t()
    infini.ops.gemm(x[rows], weight, 0.7, 0.3, False, True, out, implementation_index=0)
    return out


def grouped_gemm(x, weight, rows):
    ids = torch.arange(len(rows), dtype=torch.int32)
    experts = torch.zeros(1, dtype=torch.int32)
    count = torch.tensor([len(rows)], dtype=torch.int32)
    out = torch.empty(len(rows), COLUMNS, dtype=x.dtype)
    operands = x[rows], weight.unsqueeze(0), ids, experts, count
    infini.ops.grouped_gemm(*operands, len(rows), 1, out=out)
    return out


def exact(name, x, weight):
    x, weight = x.double(), weight.double()
    result = x @ weight.t()
    if name == "linear":
        return result + weight[:, 0]
    return 0.7 * result + 0.3 * x[:, :COLUMNS] if name.startswith("gemm") else result


def is_invariant(name, dtype):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(ROWS, STEPS, generator=generator).to(dtype)
    weight = torch.randn(COLUMNS, STEPS, generator=generator).to(dtype)
    everything = torch.arange(ROWS)
    product = globals()[name]
    whole = product(x, weight, everything)
    torch.testing.assert_close(whole.double(), exact(name, x, weight), rtol=0.02, atol=0.5)
    places = (7, 1), (0, 4), (9, 16), (3, 40), (2, 141)
    batches = [everything[first : first + count] for first, count in places]
    for threads in (1, 3):
        torch.set_num_threads(threads)
        if not all(torch.equal(product(x, weight, rows), whole[rows]) for rows in batches):
            return False
    return True


for name in ("linear", "matmul", "gemm", "gemm_by_column", "grouped_gemm"):
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        print(name, dtype, is_invariant(name, dtype))
"""


@pytest.mark.operators("gemm", "grouped_gemm", "linear", "matmul")
def test_a_row_has_the_same_bits_in_every_batch() -> None:
    environment = {**os.environ, "INFINI_OPS_BATCH_INVARIANT": "1"}
    lines = output_of([sys.executable, "-c", PROGRAM], env=environment).splitlines()
    assert len(lines) == 15
    assert [line for line in lines if not line.endswith(" True")] == []


ROW_OPERATORS = ("gelu_and_mul", "gelu_tanh_and_mul", "rms_norm", "scaled_softmax", "silu_and_mul")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.operators(name)) for name in ROW_OPERATORS]
)
def test_an_operator_on_rows_needs_no_option(name: str, dtype: torch.dtype) -> None:
    x = torch.randn(700, 334, generator=torch.Generator().manual_seed(0)).to(dtype)
    others = {"rms_norm": (torch.linspace(-1, 1, 334).to(dtype),), "scaled_softmax": (0.3,)}
    columns = 334 if name in others else 167

    def rows(first: int, count: int) -> torch.Tensor:
        out = torch.empty(count, columns, dtype=dtype)
        run(name, x[first : first + count], *others.get(name, ()), out=out)
        return out

    whole = rows(0, 700)
    for first, count in ((0, 1), (1, 1), (350, 3), (693, 7)):
        assert torch.equal(rows(first, count), whole[first : first + count])
