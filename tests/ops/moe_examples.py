"""Example calls and results of the operators of mixtures of experts, for native_examples.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from native_operands import INFINITY, NAN, Example, Maker, in_margin, tolerance, wide

import torch

Pair = tuple[torch.Tensor, torch.Tensor]


def exact_choice(
    probabilities: torch.Tensor, keys: torch.Tensor, count: int, *, renormalize: bool
) -> Pair:
    """The weights and the experts of the largest keys; of equal ones the lowest comes first."""
    # As numbers, NaN is the largest for torch.sort, too.
    experts = torch.sort(keys, dim=-1, descending=True, stable=True).indices[:, :count]
    weights = probabilities.gather(-1, experts)
    if renormalize:
        total = weights.sum(-1, keepdim=True)
        weights = weights / torch.where(total == 0, 1, total)
    return weights, experts


def token_expert_indices(tokens: int, count: int) -> torch.Tensor:
    return torch.arange(tokens * count).view(count, tokens).T


def topk_examples(dtype: torch.dtype, function: str) -> Iterator[Example]:
    """Of ``topk_softmax``, whose ``function`` is "softmax", and of ``topk_sigmoid``."""
    make, floats = Maker(dtype, -8, 8), Maker(torch.float32)

    def example(
        title: str,
        scores: torch.Tensor,
        count: int,
        *,
        bias: torch.Tensor | None = None,
        renormalize: bool = False,
        weights: torch.Tensor | None = None,
        index: torch.dtype = torch.int32,
        is_strided: bool = False,
    ) -> Example:
        shape = len(scores), count
        probabilities = (
            torch.softmax(wide(scores), -1) if function == "softmax" else wide(scores).sigmoid()
        )
        # A monotonic function keeps the order of the scores, also where it rounds.
        keys = wide(scores) if bias is None else probabilities + wide(bias)
        exact, experts = exact_choice(probabilities, keys, count, renormalize=renormalize)
        steps = 2 if is_strided else 1
        indices, numbers = (
            in_margin(torch.zeros(shape[0], steps * count, dtype=index))[:, ::steps]
            for _ in range(2)
        )
        arguments: dict[str, Any] = {"gating_output": scores}
        if renormalize:
            arguments["renormalize"] = True
        if bias is not None:
            arguments["e_score_correction_bias"] = bias
        return Example(
            title=title,
            arguments=arguments,
            name="topk_weights",
            out=floats(*shape) if weights is None else weights,
            expected=exact.float(),
            others={
                "topk_indices": (indices, experts.to(index)),
                "token_expert_indices": (numbers, token_expert_indices(*shape).to(index)),
            },
            tolerance=tolerance(torch.float32, ulps=128),
        )

    def spread(*shape: int) -> torch.Tensor:
        """Scores whose functions differ by more than an error, and biases that reorder them."""
        values = torch.linspace(-3, 3, shape[-1]).expand(shape)
        order = torch.rand(shape, generator=torch.Generator().manual_seed(shape[-1])).argsort(-1)
        return in_margin(values.gather(-1, order).to(dtype))

    yield example("plain", make(5, 8), 2)
    for experts, count in ((1, 1), (7, 7), (16, 2), (17, 4), (33, 9), (60, 4), (128, 8), (257, 8)):
        for renormalize in (False, True):
            title = f"{count} of {experts}, {renormalize}"
            yield example(title, make(6, experts), count, renormalize=renormalize)
            bias = in_margin(torch.linspace(-0.5, 0.5, experts).roll(experts // 3))
            yield example(
                f"{title}, bias", spread(6, experts), count, renormalize=renormalize, bias=bias
            )
    yield example("int64", make(5, 8), 2, index=torch.int64)
    yield example("one token", make(1, 8), 3)
    yield example("no tokens", make(0, 8), 3)
    yield example("nothing chosen", make(3, 8), 0)
    yield example("no experts", make(3, 0), 0)
    yield example("large", make(1031, 64), 6, renormalize=True)
    yield example("sliced", make(9, 40)[::2, 1:34], 5, weights=floats(5, 10)[:, ::2])
    yield example("transposed", make(33, 5).t(), 5, weights=floats(5, 5).t(), is_strided=True)
    yield example("expanded", make(1, 9).expand(4, 9), 3)
    strided = in_margin(torch.linspace(-0.5, 0.5, 18))[::2]
    yield example("strided bias", spread(4, 9), 3, bias=strided)
    ties = make.of([[1.0, 3, 3, 1, 3, 2], [0.0, -0.0, 0, -1, -0.0, 0], [2.0] * 6])
    for renormalize in (False, True):
        yield example(f"ties, {renormalize}", ties, 4, renormalize=renormalize)
    same = in_margin(torch.zeros(6))
    yield example("ties of the sums", make.of([[2.0] * 6, [1.0, 1, 2, 2, 1, 1]]), 5, bias=same)
    blocks = make.of([[float(i // 20) for i in range(70)]])
    yield example("ties in several parts", blocks, 25)
    yield example("ascending", make.of([list(map(float, range(70)))]), 40)
    deep = make.of([[100.0, -100, 0, 50, -50, 101], [-1000.0, -1001, -1002, -1003, -1004, -1000]])
    yield example("deep", deep, 6)
    hostile = make(5, 40)
    hostile[0, 37], hostile[1, 3], hostile[1, 20] = NAN, NAN, NAN
    hostile[2, 7], hostile[3, 1:] = -INFINITY, -INFINITY
    yield example("hostile", hostile, 4)
    if function == "softmax":
        # No weight is a number.
        yield example("infinite", make.of([[1.0, INFINITY, 2], [-INFINITY] * 3]), 3)
    else:
        yield example("infinite", make.of([[1.0, INFINITY, -INFINITY], [-INFINITY] * 3]), 3)
        unseen = make.of([[-INFINITY] * 4])
        yield example("no weight", unseen, 2, renormalize=True)


def wrong_topk() -> Iterator[dict[str, Any]]:
    """For outs of [3, 4] and float32, and for others."""
    make = Maker(torch.float32)
    right = {
        "gating_output": make(3, 6),
        "topk_weights": make(3, 4),
        "topk_indices": torch.zeros(3, 4, dtype=torch.int32),
        "token_expert_indices": torch.zeros(3, 4, dtype=torch.int32),
    }
    yield {"gating_output": right["gating_output"]}  # indices of float32
    for wrong in (
        {"gating_output": make(3, 3)},
        {"gating_output": make(2, 6)},
        {"gating_output": make(6)},
        {"gating_output": make(3, 6).double()},
        {"gating_output": make(3, 6).int()},
        {"topk_weights": make(3, 4).half()},
        {"topk_weights": make(3, 4).double()},
        {"topk_weights": make(3, 5)},
        {"topk_weights": make(12)},
        {"topk_indices": torch.zeros(3, 3, dtype=torch.int32)},
        {"topk_indices": torch.zeros(3, 4, dtype=torch.int16)},
        {"topk_indices": torch.zeros(3, 1, dtype=torch.int32).expand(3, 4)},
        {"token_expert_indices": torch.zeros(2, 4, dtype=torch.int32)},
        {"token_expert_indices": torch.zeros(3, 4)},
        {"e_score_correction_bias": make(5)},
        {"e_score_correction_bias": make(1, 6)},
        {"e_score_correction_bias": make(6).half()},
    ):
        yield right | wrong
    yield right | {"token_expert_indices": right["topk_indices"]}


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
        results = [each.to(dtype) for each in exact_alignment(ids, experts, block_size, room)]
        names = ("sorted_token_ids", "experts_ids", "num_tokens_post_pad")
        outs = [in_margin(torch.zeros(step * len(each), dtype=dtype))[::step] for each in results]
        return Example(
            title=title,
            arguments={
                "topk_ids": in_margin(ids) if ids.is_contiguous() else ids,
                "num_experts": experts,
                "block_size": block_size,
            },
            name=names[0],
            out=outs[0],
            expected=results[0],
            others=dict(zip(names[1:], zip(outs[1:], results[1:], strict=True), strict=True)),
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
