"""A layer of a mixture of experts by these operators alone, and what they share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from moe_examples import alignment_room
from routing_examples import exact_choice

import infini.ops
import torch

pytestmark = pytest.mark.cpu_kernels
ROUTERS = ("topk_softmax", "topk_sigmoid", "grouped_topk")
LAYER = (
    *("topk_softmax", "moe_align_block_size", "grouped_gemm", "silu_and_mul"),
    "moe_sum",
)
TOLERANCES = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


@dataclass(frozen=True)
class Layer:
    """Weights of a layer: scores of experts, and their two products."""

    gate: torch.Tensor  # [experts, hidden]
    up: torch.Tensor  # [experts, 2 * inner, hidden]
    down: torch.Tensor  # [experts, hidden, inner]

    @staticmethod
    def random(dtype: torch.dtype, experts: int = 8, hidden: int = 48, inner: int = 40) -> Layer:
        generator = torch.Generator().manual_seed(0)

        def make(*shape: int) -> torch.Tensor:
            return (torch.randn(shape, generator=generator) / shape[-1] ** 0.5).to(dtype)

        return Layer(
            make(experts, hidden), make(experts, 2 * inner, hidden), make(experts, hidden, inner)
        )

    def __call__(self, x: torch.Tensor, count: int, block_size: int) -> torch.Tensor:
        """By this library."""
        experts, width, _ = self.up.shape
        tokens, choices = len(x), len(x) * count
        weights = torch.empty(tokens, count)
        ids, numbers = torch.empty(2, tokens, count, dtype=torch.int32)
        infini.ops.topk_softmax(x @ self.gate.T, True, weights, ids, numbers)
        room = alignment_room(choices, experts, block_size)
        sizes = room, -(-room // block_size), 1
        blocks = [torch.empty(size, dtype=torch.int32) for size in sizes]
        infini.ops.moe_align_block_size(ids, experts, block_size, *blocks)
        up = x.new_empty(choices, width)
        infini.ops.grouped_gemm(x, self.up, *blocks, block_size, count, up)
        inner = x.new_empty(choices, width // 2)
        infini.ops.silu_and_mul(up, inner)
        down = x.new_empty(choices, x.shape[1])
        infini.ops.grouped_gemm(inner, self.down, *blocks, block_size, 1, weights, down)
        out = torch.empty_like(x)
        infini.ops.moe_sum(down.view(tokens, count, x.shape[1]), out)
        return out

    def eager(self, x: torch.Tensor, count: int) -> torch.Tensor:
        """By torch's loop over the experts, in float64."""
        scores = torch.softmax((x @ self.gate.T).double(), -1)
        weights, ids = exact_choice(scores, scores, count, renormalize=True)
        out = torch.zeros(x.shape, dtype=torch.float64)
        for expert, (up, down) in enumerate(zip(self.up, self.down, strict=True)):
            tokens, choices = (ids == expert).nonzero(as_tuple=True)
            first, second = (x[tokens].double() @ up.double().T).chunk(2, -1)
            own = (torch.nn.functional.silu(first) * second) @ down.double().T
            out.index_add_(0, tokens, own * weights[tokens, choices].unsqueeze(-1))
        return out


@pytest.mark.operators(*LAYER)
@pytest.mark.parametrize("tokens", [0, 1, 3, 37, 130])
@pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
def test_a_layer_is_torchs_loop_over_the_experts(dtype: torch.dtype, tokens: int) -> None:
    layer = Layer.random(dtype)
    x = torch.randn(tokens, 48, generator=torch.Generator().manual_seed(1)).to(dtype)
    for count, block_size in ((1, 1), (2, 16), (8, 5)):
        out = layer(x, count, block_size).double()
        tolerance = TOLERANCES[dtype]
        torch.testing.assert_close(out, layer.eager(x, count), rtol=tolerance, atol=tolerance)


def route(name: str, scores: torch.Tensor, index: slice) -> tuple[torch.Tensor, torch.Tensor]:
    rows = scores[index]
    weights = torch.full((len(rows), 6), torch.nan)
    ids, numbers = torch.full((2, len(rows), 6), -1, dtype=torch.int32)
    bias = torch.linspace(-0.1, 0.1, scores.shape[1])
    if name == "grouped_topk":
        infini.ops.grouped_topk(rows, 8, 3, 6, True, 2.5, bias, 1, weights, ids)
    else:
        getattr(infini.ops, name)(rows, True, bias, weights, ids, numbers)
    return weights, ids


@pytest.fixture
def _threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("_threads")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.operators(name)) for name in ROUTERS]
)
def test_a_token_has_the_same_bits_in_every_batch(name: str) -> None:
    scores = torch.randn(700, 64, generator=torch.Generator().manual_seed(0))
    results = []
    for threads in (1, 3):
        torch.set_num_threads(threads)
        results.append(route(name, scores, slice(None)))
        alone = [route(name, scores, slice(i, i + 1)) for i in (0, 1, 350, 699)]
        for (weights, ids), i in zip(alone, (0, 1, 350, 699), strict=True):
            assert torch.equal(weights[0], results[0][0][i])
            assert torch.equal(ids[0], results[0][1][i])
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))


@pytest.mark.usefixtures("_threads")
@pytest.mark.operators("moe_sum")
def test_a_sum_has_the_same_bits_with_every_number_of_threads() -> None:
    x = torch.randn(64, 8, 3000, generator=torch.Generator().manual_seed(0))
    whole, one = torch.empty(64, 3000), torch.empty(1, 3000)
    for threads in (1, 3):
        torch.set_num_threads(threads)
        infini.ops.moe_sum(x, whole)
        infini.ops.moe_sum(x[5:6], one)
        expected = torch.zeros(64, 3000)
        for each in x.unbind(1):
            expected += each
        assert torch.equal(whole, expected)
        assert torch.equal(one[0], expected[5])


@pytest.mark.operators("moe_align_block_size")
@pytest.mark.parametrize("ids", [[[0, 1], [2, 4]], [0, 1, 2, 4]], ids=str)
def test_an_expert_out_of_range_is_an_error_before_anything_is_written(ids: Any) -> None:
    place = "1, 1" if isinstance(ids[0], list) else "3"
    outs = [torch.full((size,), 7, dtype=torch.int32) for size in (16, 8, 1)]
    message = rf"moe_align_block_size: topk_ids\[{place}\]: got expert 4, expected one below 4"
    with pytest.raises(ValueError, match=message):
        infini.ops.moe_align_block_size(torch.tensor(ids), 4, 4, *outs)
    assert all((out == 7).all() for out in outs)


@pytest.mark.operators("grouped_gemm")
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            {"num_tokens_post_pad": [6]},
            r"num_tokens_post_pad\[0\]: got 6, expected at most 2 blocks",
        ),
        (
            {"num_tokens_post_pad": [12]},
            r"num_tokens_post_pad\[0\]: got 12, expected at most 2 blocks",
        ),
        ({"num_tokens_post_pad": [-4]}, r"num_tokens_post_pad\[0\]: got -4, expected at most 2"),
        ({"experts_ids": [0, 3]}, r"experts_ids\[1\]: got 3, expected 0 to 2"),
        ({"experts_ids": [-1, 0]}, r"experts_ids\[0\]: got -1, expected 0 to 2"),
        (
            {"sorted_token_ids": [0, 5, 5, 5, 1, -2, 2, 5]},
            r"sorted_token_ids\[5\]: got -2, expected at least 0",
        ),
        (
            {"sorted_token_ids": [0, 5, 5, 5, 1, 0, 2, 5]},
            r"sorted_token_ids\[5\]: got 0, expected each choice once",
        ),
    ],
)
def test_blocks_out_of_range_are_an_error_before_anything_is_written(
    wrong: dict[str, list[int]], message: str
) -> None:
    right = {
        "sorted_token_ids": [0, 3, 5, 5, 1, 2, 4, 5],
        "experts_ids": [0, 2],
        "num_tokens_post_pad": [8],
    }
    blocks = {name: torch.tensor(values) for name, values in (right | wrong).items()}
    out = torch.full((5, 6), 7.0)
    with pytest.raises(ValueError, match=f"^grouped_gemm: {message}.*pass what moe_align_block"):
        infini.ops.grouped_gemm(
            torch.ones(5, 8), torch.ones(3, 6, 8), **blocks, block_size=4, out=out
        )
    assert (out == 7).all()
