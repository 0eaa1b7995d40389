"""Example calls and results of what mixtures of experts compute, for native_examples.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from native_operands import INFINITY, NAN, Example, Maker, in_margin, tolerance, wide

import torch


def exact_alignment(
    ids: torch.Tensor, experts: int, block_size: int, room: int | None = None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The choices sorted by expert, the expert of each block, and the elements of all blocks."""
    count = ids.numel()
    room = room or alignment_room(count, experts, block_size)
    chosen = [torch.nonzero(ids.reshape(-1) == expert).flatten() for expert in range(experts)]
    blocks = [-(-len(each) // block_size) for each in chosen]
    sorted_ids, expert_of = torch.full((room,), count), torch.zeros(-(-room // block_size)).long()
    start = 0
    for expert, (own, size) in enumerate(zip(chosen, blocks, strict=True)):
        sorted_ids[start * block_size :][: len(own)] = own
        expert_of[start : start + size] = expert
        start += size
    return sorted_ids, expert_of, torch.tensor([start * block_size])


def blocks_of(
    ids: torch.Tensor, experts: int, block_size: int, room: int | None = None
) -> dict[str, torch.Tensor]:
    """What ``moe_align_block_size`` writes, by name."""
    results = exact_alignment(ids, experts, block_size, room)
    return dict(
        zip(("sorted_token_ids", "experts_ids", "num_tokens_post_pad"), results, strict=True)
    )


def alignment_room(count: int, experts: int, block_size: int) -> int:
    """The room that vLLM gives to ``sorted_token_ids``."""
    return min(count * block_size, count + experts * (block_size - 1))


def alignment_examples(dtype: torch.dtype) -> Iterator[Example]:
    """``dtype`` is that of the indices that are written; int32 in place of a float type."""
    dtype = torch.int32 if dtype.is_floating_point else dtype

    def example(
        title: str,
        ids: torch.Tensor,
        experts: int,
        block_size: int,
        room: int | None = None,
        step: int = 1,
    ) -> Example:
        results = blocks_of(ids, experts, block_size, room)
        (first, (out, expected)), *others = (
            (
                name,
                (in_margin(torch.zeros(step * len(each), dtype=dtype))[::step], each.to(dtype)),
            )
            for name, each in results.items()
        )
        return Example(
            title=title,
            arguments={
                "topk_ids": in_margin(ids) if ids.is_contiguous() else ids,
                "num_experts": experts,
                "block_size": block_size,
            },
            name=first,
            out=out,
            expected=expected,
            others=dict(others),
        )

    def random(*shape: int, experts: int, low: int = 0) -> torch.Tensor:
        generator = torch.Generator().manual_seed(0)
        return torch.randint(low, experts, shape, dtype=torch.int32, generator=generator)

    yield example("plain", random(5, 2, experts=4), 4, 4)
    for tokens, count, experts, block_size in (
        *((1, 1, 1, 1), (1, 8, 8, 16), (7, 3, 5, 1), (33, 2, 8, 16), (3, 1, 60, 7)),
        *((100, 8, 128, 64), (16, 4, 3, 5)),
    ):
        title = f"{tokens} tokens, {count} of {experts}, blocks of {block_size}"
        ids = random(tokens, count, experts=experts)
        yield example(title, ids, experts, block_size)
        yield example(f"{title}, int64", ids.long(), experts, block_size)
        skipped = random(tokens, count, experts=experts, low=-2)
        yield example(f"{title}, skipped", skipped, experts, block_size)
        room = alignment_room(ids.numel(), experts, block_size)
        yield example(f"{title}, more room", ids, experts, block_size, room + 9 * block_size)
        least = room // block_size * block_size
        yield example(f"{title}, least room", ids, experts, block_size, least)
    yield example("one dimension", random(17, experts=4), 4, 4)
    yield example("no tokens", random(0, 2, experts=4), 4, 4)
    yield example("no tokens, but room", random(0, 2, experts=4), 4, 4, 12)
    yield example("nothing chosen", random(3, 0, experts=4), 4, 4)
    yield example("all skipped", torch.full((3, 2), -1), 4, 4)
    yield example("one expert", torch.full((9, 2), 2), 4, 4)
    yield example("strided", random(9, 6, experts=4)[::2, 1::2], 4, 4, step=3)
    yield example("transposed", random(3, 9, experts=4).t(), 4, 4)
    yield example("expanded", torch.tensor([[3], [1]]).expand(2, 4), 4, 4)
    yield example("large", random(4099, 8, experts=64), 64, 16)


def wrong_alignment() -> Iterator[dict[str, Any]]:
    """Nine slots and three blocks are needed."""
    right = {
        "topk_ids": torch.zeros(3, 1, dtype=torch.int32),
        "num_experts": 8,
        "block_size": 3,
        "sorted_token_ids": torch.zeros(9, dtype=torch.int32),
        "experts_ids": torch.zeros(3, dtype=torch.int32),
        "num_tokens_post_pad": torch.zeros(1, dtype=torch.int32),
    }
    yield {name: right[name] for name in ("topk_ids", "num_experts", "block_size")}
    for wrong in (
        {"topk_ids": torch.zeros(3)},
        {"topk_ids": torch.zeros(3, dtype=torch.int16)},
        {"topk_ids": torch.zeros(3, 1, 1, dtype=torch.int32)},
        {"topk_ids": torch.tensor(0)},
        {"num_experts": 0},
        {"num_experts": -1},
        {"num_experts": 65537},
        {"num_experts": 2**62},
        {"block_size": 0},
        {"block_size": -3},
        {"block_size": 2**31 - 1},
        {"block_size": 2**63 - 1},
        {"sorted_token_ids": torch.zeros(8, dtype=torch.int32)},
        {"sorted_token_ids": torch.zeros(9, 1, dtype=torch.int32)},
        {"sorted_token_ids": torch.zeros(9, dtype=torch.int16)},
        {"experts_ids": torch.zeros(2, dtype=torch.int32)},
        {"num_tokens_post_pad": torch.zeros((), dtype=torch.int32)},
        {"num_tokens_post_pad": torch.zeros(2, dtype=torch.int32)},
    ):
        yield right | wrong


def expert_sum_examples(dtype: torch.dtype) -> Iterator[Example]:
    make = Maker(dtype)

    def example(title: str, x: torch.Tensor, out: torch.Tensor | None = None) -> Example:
        exact = wide(x).sum(1)
        return Example(
            title=title,
            arguments={"input": x},
            out=make(*exact.shape) if out is None else out,
            expected=exact.to(dtype),
            tolerance=tolerance(dtype, size=4.0 * x.shape[1]),
        )

    yield example("plain", make(3, 2, 8))
    for count in (1, 2, 3, 8, 11):
        for columns in (1, 7, 16, 33, 513, 1040):
            yield example(f"{count} rows of {columns}", make(3, count, columns))
    yield example("no rows", make(3, 0, 40))
    yield example("no tokens", make(0, 2, 8))
    yield example("no columns", make(3, 2, 0))
    yield example("large", make(130, 6, 1030))
    yield example("one large token", make(1, 8, 50_021))
    yield example("columns apart", make(3, 2, 1400)[..., ::2], make(3, 1400)[:, ::2])
    yield example("tokens last", make(700, 2, 3).permute(2, 1, 0), make(700, 3).t())
    yield example("sliced", make(3, 5, 80)[:, 1:4, 3:44], make(3, 64)[:, 1:42])
    yield example("expanded", make(3, 1, 1).expand(3, 4, 530))
    yield example("one token for all", make(1, 4, 20).expand(5, 4, 20))
    hostile = make(4, 3, 20)
    hostile[0, 1, 2], hostile[1, 2, 19] = NAN, INFINITY
    hostile[2, 0, 17], hostile[2, 1, 17] = INFINITY, -INFINITY
    yield example("hostile", hostile)


def wrong_expert_sum() -> Iterator[dict[str, Any]]:
    for shape in ((3, 4), (3, 2, 5), (2, 2, 4), (3, 2, 4, 1), (1, 2, 4)):
        yield {"input": torch.ones(shape)}
    for dtype in (torch.float64, torch.float16, torch.int32, torch.complex64):
        yield {"input": torch.ones(3, 2, 4, dtype=dtype)}


def exact_grouped_gemm(
    a: torch.Tensor, b: torch.Tensor, ids: torch.Tensor, weights: torch.Tensor | None = None
) -> torch.Tensor:
    """Row i of the result is that of choice i; those of no expert are 0."""
    rows = wide(a).repeat_interleave(ids.numel() // max(len(a), 1), 0)
    experts = ids.flatten().long()
    result = torch.zeros(len(rows), b.shape[1], dtype=torch.float64)
    for expert in range(len(b)):
        result[experts == expert] = rows[experts == expert] @ wide(b[expert]).T
    return result if weights is None else result * wide(weights).view(-1, 1)


def grouped_gemm_examples(dtype: torch.dtype) -> Iterator[Example]:
    make, floats = Maker(dtype), Maker(torch.float32, 0, 1)

    def example(
        title: str,
        a: torch.Tensor,
        b: torch.Tensor,
        ids: torch.Tensor,
        block_size: int,
        *,
        out: torch.Tensor | None = None,
        weights: torch.Tensor | None = None,
        index: torch.dtype = torch.int32,
    ) -> Example:
        """``ids`` has a row of experts for each row of ``a``."""
        exact = exact_grouped_gemm(a, b, ids, weights)
        blocks = blocks_of(ids, len(b), block_size)
        return Example(
            title=title,
            arguments={
                "a": a,
                "b": b,
                **{name: in_margin(each.to(index)) for name, each in blocks.items()},
                "block_size": block_size,
                "top_k": ids.shape[1],
                **({} if weights is None else {"topk_weights": weights}),
            },
            out=make(*exact.shape) if out is None else out,
            expected=exact.to(dtype),
            # With weights the product is rounded first.
            tolerance=tolerance(dtype, ulps=4, size=16.0 * max(a.shape[1], 1)),
        )

    def random(tokens: int, count: int, experts: int, low: int = 0) -> torch.Tensor:
        generator = torch.Generator().manual_seed(tokens)
        return torch.randint(low, experts, (tokens, count), generator=generator)

    yield example("plain", make(5, 8), make(4, 6, 8), random(5, 2, 4), 4)
    for tokens, count, experts, n, k, block_size in (
        *((1, 1, 1, 1, 1, 1), (1, 4, 8, 33, 65, 16), (7, 1, 3, 64, 16, 4), (33, 2, 5, 17, 40, 16)),
        *((40, 3, 2, 96, 128, 64), (3, 2, 60, 20, 24, 8)),
    ):
        title = f"{tokens} tokens, {count} of {experts}, [{n}, {k}], blocks of {block_size}"
        a, b, ids = make(tokens, k), make(experts, n, k), random(tokens, count, experts)
        yield example(title, a, b, ids, block_size)
        weights = floats(tokens, count)
        yield example(f"{title}, weights", a, b, ids, block_size, weights=weights)
    plain = make(5, 8), make(4, 6, 8)
    yield example("int64", *plain, random(5, 2, 4), 4, index=torch.int64)
    yield example("skipped", *plain, random(5, 2, 4, low=-2), 4, weights=floats(10))
    yield example("all skipped", *plain, torch.full((5, 2), -1), 4)
    yield example("no tokens", make(0, 8), make(4, 6, 8), random(0, 2, 4), 4)
    yield example("nothing to sum", make(5, 0), make(4, 6, 0), random(5, 2, 4), 4)
    yield example("no columns", make(5, 8), make(4, 0, 8), random(5, 2, 4), 4)
    yield example("strided", make(9, 40)[::2, 3:36], make(4, 33, 7).mT, random(5, 2, 4), 4)
    columns = make(12, 10).t()
    yield example(
        "columns apart", make(16, 5).t(), make(4, 12, 16), random(5, 2, 4), 4, out=columns
    )
    every_other = make(8, 6, 16)[::2, :, ::2]
    yield example("slices", plain[0], every_other, random(5, 2, 4), 4, out=make(20, 12)[::2, ::2])
    yield example("large", make(130, 257), make(4, 129, 257), random(130, 2, 4), 16)


def wrong_grouped_gemm() -> Iterator[dict[str, Any]]:
    """For an out of [3, 4]."""
    make = Maker(torch.float32)
    blocks = torch.zeros(4, dtype=torch.int32)
    right = {
        "a": make(3, 5),
        "b": make(2, 4, 5),
        "sorted_token_ids": torch.arange(4, dtype=torch.int32),
        "experts_ids": blocks[:1],
        "num_tokens_post_pad": torch.tensor([4], dtype=torch.int32),
        "block_size": 4,
    }
    for wrong in (
        {"a": make(2, 5)},
        {"a": make(3, 4)},
        {"a": make(15)},
        {"a": make(3, 5).half()},
        {"b": make(2, 4, 4)},
        {"b": make(2, 5, 4)},
        {"b": make(4, 5)},
        {"b": make(2, 4, 5).double()},
        {"sorted_token_ids": right["sorted_token_ids"].float()},
        {"sorted_token_ids": right["sorted_token_ids"].view(1, 4)},
        {"experts_ids": blocks[:1].view(1, 1)},
        {"num_tokens_post_pad": torch.tensor(4, dtype=torch.int32)},
        {"block_size": 0},
        {"top_k": 0},
        {"top_k": 2},
        {"top_k": -1},
        {"topk_weights": make(3).half()},
        {"topk_weights": make(4)},
        {"topk_weights": make(6)[::2]},
    ):
        yield right | wrong
