"""Example calls and results of the operators that choose experts, for native_examples.py."""

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
    yield example("ascending", make.of([list(map(float, range(70)))]), 32)
    deep = make.of([[100.0, -100, 0, 50, -50, 101], [-1000.0, -1001, -1002, -1003, -1004, -1000]])
    yield example("deep", deep, 6)
    hostile = make(5, 40)
    hostile[0, 37], hostile[1, 0], hostile[1, 20] = NAN, NAN, NAN
    hostile[2, 7], hostile[3, 1:] = -INFINITY, -INFINITY
    yield example("hostile", hostile, 4)
    yield example("hostile, all", hostile[:, :24], 24)
    yield example("hostile bias", hostile[:, :9], 3, bias=in_margin(torch.zeros(9)))
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


def grouped_topk_examples(dtype: torch.dtype) -> Iterator[Example]:
    floats = Maker(torch.float32)

    def example(
        title: str,
        scores: torch.Tensor,
        groups: tuple[int, int],
        count: int,
        *,
        bias: torch.Tensor | None = None,
        renormalize: bool = True,
        factor: float = 1.0,
        scoring: int = 1,
        weights: torch.Tensor | None = None,
        index: torch.dtype = torch.int32,
    ) -> Example:
        tokens, experts = scores.shape
        group_count, kept = groups
        bias = in_margin(torch.zeros(experts)) if bias is None else bias
        exact = wide(scores).sigmoid() if scoring else wide(scores)
        keys = (exact + wide(bias)).view(tokens, group_count, experts // group_count)
        best = torch.sort(keys, dim=-1, descending=True).values[..., :2].sum(-1)
        places = torch.sort(best, dim=-1, descending=True, stable=True).indices[:, :kept]
        is_left = torch.ones(tokens, group_count, dtype=torch.bool).scatter_(1, places, False)
        keys = keys.masked_fill(is_left.unsqueeze(-1), -INFINITY).view(tokens, experts)
        values, chosen = exact_choice(exact, keys, count, renormalize=renormalize)
        return Example(
            title=title,
            arguments={
                "scores": scores,
                "num_expert_group": group_count,
                "topk_group": kept,
                "topk": count,
                "renormalize": renormalize,
                "routed_scaling_factor": factor,
                "bias": bias,
                **({"scoring_func": scoring} if scoring else {}),
            },
            name="topk_values",
            out=floats(tokens, count) if weights is None else weights,
            expected=(values * factor).float(),
            others={
                "topk_indices": (
                    in_margin(torch.zeros(tokens, count, dtype=index)),
                    chosen.to(index),
                )
            },
            tolerance=tolerance(torch.float32, ulps=128),
        )

    def spread(tokens: int, experts: int) -> torch.Tensor:
        """Scores whose sums of two differ by more than an error."""
        values = torch.linspace(0.05, 1, experts).square()
        random = torch.Generator().manual_seed(experts)
        order = torch.rand(tokens, experts, generator=random).argsort(-1)
        return in_margin(values[order].to(dtype))

    yield example("plain", spread(5, 8), (4, 2), 3)
    for experts, groups, count in (
        *((1, (1, 1), 1), (6, (1, 1), 4), (6, (6, 2), 2), (12, (3, 3), 12), (64, (8, 3), 6)),
        *((60, (4, 1), 15), (256, (8, 4), 8)),
    ):
        for scoring in (0, 1):
            title = f"{count} of {experts}, {groups} groups, {scoring=}"
            scores = spread(5, experts)
            yield example(title, scores, groups, count, scoring=scoring)
            options: dict[str, Any] = {"renormalize": False, "factor": 2.5, "scoring": scoring}
            yield example(f"{title}, scaled", scores, groups, count, **options)
            bias = in_margin(torch.linspace(-0.71, 0.37, experts))
            yield example(f"{title}, bias", scores, groups, count, bias=bias, scoring=scoring)
    narrow = in_margin(torch.linspace(0, 0.75, 16).to(torch.bfloat16))[::2]
    yield example("strided bfloat16 bias", spread(5, 8), (4, 2), 3, bias=narrow)
    yield example("int64", spread(5, 8), (4, 2), 3, index=torch.int64)
    yield example("no tokens", spread(0, 8), (4, 2), 3)
    yield example("nothing chosen", spread(3, 8), (4, 2), 0)
    yield example("large", spread(1031, 64), (8, 3), 6, factor=2.5)
    yield example("sliced", spread(9, 24)[::2, 4:20], (4, 2), 3, weights=floats(5, 6)[:, ::2])
    yield example("transposed", spread(12, 5).t(), (4, 2), 3, weights=floats(3, 5).t())
    ties = in_margin(torch.tensor([[1.0, 2, 2, 1, 1, 2, 0, 2], [1.0] * 8]).to(dtype))
    for groups in ((4, 2), (2, 1), (1, 1)):
        yield example(f"ties, {groups} groups", ties, groups, 4, scoring=0)
    hostile = spread(3, 12)
    hostile[0, 7], hostile[1, 2], hostile[2, 8:] = NAN, -INFINITY, INFINITY
    yield example("hostile", hostile, (3, 1), 2)
    hostile = hostile.clone()
    hostile[0, 0] = NAN
    for groups, count in (((3, 1), 4), ((3, 3), 12)):
        yield example(f"hostile, {count}", hostile, groups, count)


def wrong_grouped_topk() -> Iterator[dict[str, Any]]:
    make = Maker(torch.float32)
    right = {
        "scores": make(3, 8),
        "num_expert_group": 4,
        "topk_group": 2,
        "topk": 4,
        "renormalize": True,
        "routed_scaling_factor": 1.0,
        "bias": make(8),
        "topk_values": make(3, 4),
        "topk_indices": torch.zeros(3, 4, dtype=torch.int32),
    }
    yield {name: value for name, value in right.items() if name != "topk_indices"}
    for wrong in (
        {"scores": make(3, 9)},
        {"scores": make(2, 8)},
        {"scores": make(8)},
        {"scores": make(3, 8).double()},
        {"num_expert_group": 0},
        {"num_expert_group": -4},
        {"num_expert_group": 3},
        {"topk_group": 0},
        {"topk_group": 5},
        {"topk_group": 1},
        {"topk": 3},
        {"topk": -1},
        {"bias": make(7)},
        {"bias": make(1, 8)},
        {"scoring_func": 2},
        {"scoring_func": -1},
        {"topk_values": make(3, 4).half()},
        {"topk_indices": torch.zeros(3, 3, dtype=torch.int32)},
        {"topk_indices": torch.zeros(3, 4)},
    ):
        yield right | wrong
