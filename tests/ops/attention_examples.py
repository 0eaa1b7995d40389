"""Example calls and results of scaled_dot_product_attention, for native_examples.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from native_operands import INFINITY, NAN, Example, Maker, tolerance, wide

import torch


def exact_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    *,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """Attention by torch's other operators, in float64. A query that sees no key gets 0."""
    query, key, value = wide(query), wide(key), wide(value)
    if enable_gqa:
        heads = query.shape[-3] // key.shape[-3]
        key, value = (each.repeat_interleave(heads, -3) for each in (key, value))
    factor = (1 / query.shape[-1] ** 0.5 if query.shape[-1] else 1) if scale is None else scale
    scores = query @ key.mT * factor
    if mask is not None:
        scores = torch.where(mask, scores, -INFINITY) if mask.dtype is torch.bool else scores + mask
    if is_causal:
        scores = scores.masked_fill(~torch.ones(scores.shape[-2:]).bool().tril(), -INFINITY)
    sees_none = (scores == -INFINITY).all(-1, keepdim=True)
    return torch.softmax(scores, -1).masked_fill(sees_none, 0) @ value


def attention_example(
    title: str, *operands: torch.Tensor, mask: torch.Tensor | None = None, **options: Any
) -> Example:
    query, key, value, out = operands
    exact = exact_attention(query, key, value, mask, **options)
    masked = {} if mask is None else {"attn_mask": mask}
    return Example(
        title=title,
        arguments={"query": query, "key": key, "value": value, **masked, **options},
        out=out,
        expected=exact.to(out.dtype),
        # The scores are sums of float32, and a power multiplies their errors.
        tolerance=tolerance(out.dtype, ulps=256, size=64),
    )


def attention_examples(dtype: torch.dtype) -> Iterator[Example]:
    example = attention_example
    make, bools = Maker(dtype, -2, 2), Maker(torch.bool)

    def contiguous(batch: tuple[int, ...], *sizes: int) -> tuple[torch.Tensor, ...]:
        queries, keys, size, value_size = sizes
        shapes = (queries, size), (keys, size), (keys, value_size), (queries, value_size)
        return tuple(make(*batch, *shape) for shape in shapes)

    yield example("contiguous", *contiguous((2, 3), 5, 7, 8, 8))
    yield example("one head", *contiguous((), 4, 6, 5, 9))
    yield example("one query", *contiguous((2, 3), 1, 257, 64, 48))
    yield example("one key", *contiguous((2,), 5, 1, 8, 8))
    yield example("one column", *contiguous((2,), 20, 9, 1, 1))
    yield example("no keys", *contiguous((2,), 3, 0, 4, 4))
    yield example("no queries", *contiguous((2,), 0, 3, 4, 4))
    yield example("no heads", *contiguous((2, 0), 3, 3, 4, 4))
    yield example("no values", *contiguous((2,), 3, 3, 4, 0))
    yield example("nothing to sum", *contiguous((2,), 3, 5, 0, 4))
    yield example("large", *contiguous((2, 2), 150, 210, 33, 65))
    for queries, keys in ((5, 7), (7, 5), (16, 200), (17, 200), (140, 400)):
        title = f"{queries} queries and {keys} keys"
        operands = contiguous((2, 3), queries, keys, 20, 24)
        yield example(f"{title}, causal", *operands, is_causal=True)
        seen = bools(queries, keys)
        seen[0] = False
        yield example(f"{title}, bool mask", *operands, mask=seen)
        yield example(f"{title}, both", *operands, mask=seen, is_causal=True)
        yield example(f"{title}, mask", *operands, mask=make(3, queries, keys))
        yield example(f"{title}, mask of keys", *operands, mask=bools(2, 1, 1, keys))
        yield example(f"{title}, expanded mask", *operands, mask=make(queries, 1).expand(-1, keys))
        yield example(f"{title}, strided mask", *operands, mask=make(keys, 2 * queries)[:, ::2].T)
        yield example(f"{title}, float32 mask", *operands, mask=Maker(torch.float32)(queries, keys))
        shared = (*(make(2, 1, *each.shape[2:]) for each in operands[1:3]),)
        yield example(f"{title}, shared keys", operands[0], *shared, operands[3])
        grouped = make(2, 6, queries, 20), *operands[1:3], make(2, 6, queries, 24)
        yield example(f"{title}, grouped", *grouped, enable_gqa=True)
        mask = make(6, queries, keys)
        yield example(
            f"{title}, grouped, mask", *grouped, mask=mask, is_causal=True, enable_gqa=True
        )
        fused = make(2, queries + keys, 3, 3, 16)
        apart = [
            fused[:, :count, i].transpose(1, 2) for i, count in enumerate((queries, keys, keys))
        ]
        yield example(
            f"{title}, slices", *apart, make(2, queries, 3, 16).transpose(1, 2), is_causal=True
        )
        yield example(
            f"{title}, columns apart", *(make(3, *each.mT.shape[2:]).mT for each in operands)
        )
    yield example("scale", *contiguous((2,), 4, 6, 5, 5), scale=-0.75)
    yield example("zero scale", *contiguous((2,), 20, 6, 5, 5), scale=0.0)
    yield example(
        "one query of a group", *contiguous((2, 1), 1, 300, 64, 64)[:3], make(2, 1, 1, 64)
    )
    query, key, value, out = contiguous((2,), 20, 40, 8, 8)
    yield example("large scores", query * 20, key * 20, value, out)
    hidden = make(20, 40)
    hidden[0], hidden[1, 3:], hidden[2, :39] = -INFINITY, -INFINITY, -INFINITY
    yield example("hidden keys", query, key, value, out, mask=hidden)
    query = query.clone()
    query[0, 3], query[1, 5, 2] = NAN, INFINITY
    yield example("hostile", query, key, value, out)


def wrong_attention() -> Iterator[dict[str, Any]]:
    make = Maker(torch.float32)
    names = ("query", "key", "value")
    for shapes in (
        ((3, 5), (6, 4), (6, 4)),
        ((3, 5), (6, 5), (7, 4)),
        ((3, 5), (6, 5), (6, 3)),
        ((2, 5), (6, 5), (6, 4)),
        ((2, 3, 5), (6, 5), (6, 4)),
        ((5,), (6, 5), (6, 4)),
    ):
        yield dict(zip(names, (make(*shape) for shape in shapes), strict=True))
    right = dict(zip(names, (make(3, 5), make(6, 5), make(6, 4)), strict=True))
    for mask in (torch.ones(3, 5), torch.ones(2, 3, 6), torch.ones(3, 6, dtype=torch.int32)):
        yield {**right, "attn_mask": mask}
    for mask in (torch.ones(3, 6).half(), torch.ones(3, 6).double()):
        yield {**right, "attn_mask": mask}
    yield {**right, "dropout_p": 0.5}
    yield {**right, "enable_gqa": True}
    for name in names:
        for other in (torch.float64, torch.float16, torch.complex64):
            yield {**right, name: right[name].to(other)}
