"""The parts of a mixture of experts, for a step of decoding and for a prompt."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from bench.kernel_cases.case import KernelCase, counted, dtype_name

EXPERTS, CHOSEN = 64, 6  # of one token
GROUPS, KEPT_GROUPS = 8, 4  # of the experts
BLOCK_SIZE = 16
Order = Callable[[torch.Tensor, int], tuple[torch.Tensor, torch.Tensor]]


def experts(tokens: int, dtype: torch.dtype) -> Iterator[KernelCase]:
    """The choice of experts, their products, and the sums of their results."""
    case = partial(
        KernelCase,
        title=f"{dtype_name(dtype)}, {counted(tokens, 'token')}",
        size=tokens,
        dtype=dtype,
        out_dtype=dtype,
    )
    choice = partial(case, out_dtype=torch.float32)
    for function in (torch.softmax, torch.sigmoid):
        choose = partial(_choose, function)
        yield choice(
            f"topk_{function.__name__}",
            lambda: (torch.randn(tokens, EXPERTS).to(dtype), True, None),
            partial(choose, order=_in_order),
            reference=lambda *arguments, out, choose=choose: choose(*arguments),  # noqa: ARG005
        )
    yield choice(
        "grouped_topk",
        lambda: (
            *(torch.randn(tokens, EXPERTS).to(dtype), GROUPS, KEPT_GROUPS, CHOSEN, True, 2.5),
            *(torch.rand(EXPERTS), 1),
        ),
        partial(_choose_in_groups, order=_in_order),
        reference=lambda *arguments, out: _choose_in_groups(*arguments),  # noqa: ARG005
    )
    yield case(
        "moe_sum",
        lambda: (torch.randn(tokens, CHOSEN, 2048).to(dtype),),
        lambda x: x.sum(1),
        reference=lambda x, out: torch.sum(x, 1, out=out),
    )
    yield _grouped_gemm(case, tokens, dtype)


def alignment(tokens: int) -> KernelCase:
    """The blocks of the tokens of each expert."""
    count = tokens * CHOSEN
    room = min(count * BLOCK_SIZE, count + EXPERTS * (BLOCK_SIZE - 1))

    def align(ids: torch.Tensor, *_: int) -> tuple[torch.Tensor, ...]:
        ids = ids.flatten()
        counts = ids.new_zeros(EXPERTS).scatter_add_(0, ids, torch.ones_like(ids))
        blocks = (counts + BLOCK_SIZE - 1) // BLOCK_SIZE
        ends = blocks.cumsum(0)
        order = ids.argsort(stable=True)
        before = (ends - blocks) * BLOCK_SIZE - (counts.cumsum(0) - counts)
        places = torch.arange(count, device=ids.device) + before[ids[order]]
        sorted_ids = ids.new_full((room,), count).scatter_(0, places, order)
        numbers = torch.arange(-(-room // BLOCK_SIZE), device=ids.device)
        owners = torch.searchsorted(ends, numbers, right=True)
        return sorted_ids, owners.where(numbers < ends[-1:], 0), ends[-1:] * BLOCK_SIZE

    return KernelCase(
        operator="moe_align_block_size",
        inputs=lambda: (torch.randint(EXPERTS, (tokens, CHOSEN)), EXPERTS, BLOCK_SIZE),
        exact=align,
        reference=lambda *arguments, out: align(*arguments),  # noqa: ARG005
        title=f"int64, {counted(tokens, 'token')}",
        size=tokens,
        dtype=torch.int64,
        out_dtype=torch.int64,
    )


def _in_order(weights: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Like topk, with equal ones in the order of the experts."""
    values, places = torch.sort(weights, dim=-1, descending=True, stable=True)
    return values[:, :count], places[:, :count]


def _in_float(
    function: Callable[..., torch.Tensor], scores: torch.Tensor, **arguments: int
) -> torch.Tensor:
    return function(scores.to(torch.promote_types(scores.dtype, torch.float32)), **arguments)


def _choose(
    function: Callable[..., torch.Tensor],
    scores: torch.Tensor,
    renormalize: bool,
    bias: None,
    order: Order = torch.topk,
) -> tuple[torch.Tensor, ...]:
    del renormalize, bias
    weights = _in_float(function, scores, **({"dim": -1} if function is torch.softmax else {}))
    weights, chosen = order(weights, CHOSEN)
    numbers = torch.arange(chosen.numel(), device=scores.device).view(CHOSEN, -1).T
    return weights / weights.sum(-1, keepdim=True), chosen, numbers


def _choose_in_groups(
    scores: torch.Tensor,
    groups: int,
    kept: int,
    count: int,
    renormalize: bool,
    factor: float,
    bias: torch.Tensor,
    scoring: int,
    order: Order = torch.topk,
) -> tuple[torch.Tensor, ...]:
    del renormalize, scoring
    weights = _in_float(torch.sigmoid, scores)
    sums = weights + bias
    of_groups = sums.unflatten(1, (groups, -1)).topk(2).values.sum(-1)
    is_kept = torch.zeros_like(of_groups, dtype=torch.bool).scatter(
        1, order(of_groups, kept)[1], True
    )
    is_kept = is_kept.repeat_interleave(EXPERTS // groups, 1)
    _, chosen = order(sums.masked_fill(~is_kept, -torch.inf), count)
    weights = weights.gather(1, chosen)
    return weights / weights.sum(-1, keepdim=True) * factor, chosen


def _grouped_gemm(case: Callable[..., KernelCase], tokens: int, dtype: torch.dtype) -> KernelCase:
    """The rows of the experts times their matrices; choice i has expert 7 * i."""
    # Not read from tensors, which can be without memory.
    owned = [
        [i for i in range(CHOSEN * tokens) if 7 * i % EXPERTS == expert]
        for expert in range(EXPERTS)
    ]

    def factors() -> tuple[Any, ...]:
        a, b = torch.randn(tokens, 512), torch.randn(EXPERTS, 256, 512)
        blocks = [own + [CHOSEN * tokens] * (-len(own) % BLOCK_SIZE) for own in owned]
        experts = [e for e, block in enumerate(blocks) for _ in range(len(block) // BLOCK_SIZE)]
        sorted_ids = torch.tensor([*itertools.chain(*blocks)])
        indices = sorted_ids, torch.tensor(experts), torch.tensor([len(sorted_ids)])
        return a.to(dtype), (b / 16).to(dtype), *indices, BLOCK_SIZE, CHOSEN

    def multiply(a: torch.Tensor, b: torch.Tensor, *_: Any) -> torch.Tensor:
        out = a.new_empty(CHOSEN * len(a), b.shape[1])
        for matrix, own in zip(b, owned, strict=True):
            if own:
                out[own] = a[[i // CHOSEN for i in own]] @ matrix.T
        return out

    return case(
        "grouped_gemm",
        factors,
        multiply,
        reference=lambda *arguments, out: multiply(*arguments),  # noqa: ARG005
        flops=2 * CHOSEN * tokens * 256 * 512,
    )
