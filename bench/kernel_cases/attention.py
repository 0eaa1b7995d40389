"""Attention, and what prepares it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from torch.nn import functional

import torch
from bench.kernel_cases.case import KernelCase, counted, dtype_name

HEADS = (32, 8, 8)  # of one model: of queries, keys and values
HEAD_SIZE = 128


def of_tokens(tokens: int, dtype: torch.dtype) -> Iterator[KernelCase]:
    """Operators of the parts of a fused projection, which they rotate or copy to a cache."""
    case = partial(
        KernelCase,
        title=f"{dtype_name(dtype)}, {counted(tokens, 'token')}",
        size=tokens,
        dtype=dtype,
        out_dtype=dtype,
    )

    def projected() -> tuple[torch.Tensor, ...]:
        fused = torch.randn(tokens, sum(HEADS), HEAD_SIZE).to(dtype)
        return tuple(fused.split(HEADS, 1))

    def turned(positions: torch.Tensor, heads: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
        cosine, sine = cache[positions].unsqueeze(1).chunk(2, -1)
        x, y = heads.chunk(2, -1)
        return torch.cat([x * cosine - y * sine, y * cosine + x * sine], -1)

    def rotate(
        positions: torch.Tensor,
        query: torch.Tensor,
        key: torch.Tensor,
        size: int,  # noqa: ARG001 - as the operator
        cache: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return turned(positions, query, cache), turned(positions, key, cache)

    def rotate_in_place(*arguments: Any) -> None:
        for heads, result in zip(arguments[1:3], rotate(*arguments), strict=True):
            heads.copy_(result)

    def store_in_place(
        key: torch.Tensor, value: torch.Tensor, slots: torch.Tensor, *caches: torch.Tensor
    ) -> None:
        for values, cache in zip((key, value), caches, strict=True):
            cache.flatten(0, 1).index_copy_(0, slots, values)

    def store(*arguments: Any) -> tuple[torch.Tensor, torch.Tensor]:
        key_cache, value_cache = (cache.clone() for cache in arguments[3:])
        store_in_place(*arguments[:3], key_cache, value_cache)
        return key_cache, value_cache

    def tokens_and_caches() -> tuple[torch.Tensor, ...]:
        _, key, value = projected()
        caches = (torch.randn(64, 16, HEADS[1], HEAD_SIZE).to(dtype) for _ in range(2))
        return key, value, torch.randperm(64 * 16)[:tokens], *caches

    def heads_and_angles() -> tuple[Any, ...]:
        query, key, _ = projected()
        angles = torch.randn(4096, HEAD_SIZE // 2)
        cache = torch.cat([angles.cos(), angles.sin()], -1).to(dtype)
        return torch.randint(4096, (tokens,)), query, key, HEAD_SIZE, cache

    yield case(
        "rotary_embedding", heads_and_angles, rotate, reference=rotate_in_place, in_place=(1, 2)
    )
    yield case(
        "reshape_and_cache_flash",
        tokens_and_caches,
        store,
        reference=store_in_place,
        in_place=(3, 4),
    )


def attention_to_keys(dtype: torch.dtype) -> Iterator[KernelCase]:
    """A prompt, one with grouped heads, and a step of decoding."""
    for title, query, key in (
        ("prompt", (1, 8, 512, 64), (1, 8, 512, 64)),
        ("grouped prompt", (1, 32, 128, 128), (1, 8, 128, 128)),
        ("decoding", (16, 32, 1, 128), (16, 8, 1024, 128)),
    ):

        def inputs(
            query: tuple[int, ...] = query, key: tuple[int, ...] = key
        ) -> tuple[torch.Tensor | float | bool | None, ...]:
            tensors = (torch.randn(*shape).to(dtype) for shape in (query, key, key))
            return *tensors, None, 0.0, False, None, True

        def attention(*arguments: Any) -> torch.Tensor:
            *positional, scale, enable_gqa = arguments
            return functional.scaled_dot_product_attention(
                *positional, scale=scale, enable_gqa=enable_gqa
            )

        def reference(*arguments: Any, out: torch.Tensor) -> torch.Tensor:  # noqa: ARG001
            return attention(*arguments)  # torch's function has no out

        yield KernelCase(
            operator="scaled_dot_product_attention",
            inputs=inputs,
            exact=attention,
            reference=reference,
            title=f"{dtype_name(dtype)}, {title}",
            size=math.prod(query[:-1]),
            dtype=dtype,
            out_dtype=dtype,
            flops=4 * math.prod(query) * key[-2],
        )


def attention_to_caches(dtype: torch.dtype) -> Iterator[KernelCase]:
    """Steps of decoding, and prompts of several lengths, against keys in blocks of a cache."""
    queries, keys, block_size = HEADS[0], HEADS[1], 16
    for title, tokens, counts in (
        ("decoding", (1,) * 16, tuple(range(64, 1088, 64))),
        ("prompts", (256, 33, 128), (256, 33, 640)),
    ):

        def inputs(
            tokens: tuple[int, ...] = tokens, counts: tuple[int, ...] = counts
        ) -> tuple[Any, ...]:
            blocks = -(-max(counts) // block_size)
            table = torch.randperm(len(counts) * blocks).view(len(counts), blocks)
            q = torch.randn(sum(tokens), queries, HEAD_SIZE).to(dtype)
            shape = table.numel(), block_size, keys, HEAD_SIZE
            caches = (torch.randn(shape).to(dtype) for _ in range(2))
            ends = torch.tensor([0, *itertools.accumulate(tokens)])
            most = max(tokens), max(counts)
            return q, *caches, ends, None, *most, torch.tensor(counts), table, None, True

        # The lengths are not read from tensors, which can be without memory.
        def attention(
            *arguments: Any, tokens: tuple[int, ...] = tokens, counts: tuple[int, ...] = counts
        ) -> torch.Tensor:
            q, *caches, _, _, _, _, _, table, _, _ = arguments
            outs = []
            for own, count, blocks in zip(q.split(tokens), counts, table, strict=True):
                key, value = (each[blocks].flatten(0, 1)[:count].transpose(0, 1) for each in caches)
                seen = q.new_ones(len(own), count, dtype=torch.bool).tril(count - len(own))
                outs.append(
                    functional.scaled_dot_product_attention(
                        own.transpose(0, 1), key, value, seen, enable_gqa=True
                    ).transpose(0, 1)
                )
            return torch.cat(outs)

        def reference(
            *arguments: Any,
            out: torch.Tensor,  # noqa: ARG001
            attention: Callable[..., torch.Tensor] = attention,
        ) -> torch.Tensor:
            return attention(*arguments)

        yield KernelCase(
            operator="flash_attn_varlen_func",
            inputs=inputs,
            exact=attention,
            reference=reference,
            title=f"{dtype_name(dtype)}, {title}",
            size=sum(tokens),
            dtype=dtype,
            out_dtype=dtype,
            flops=4 * queries * HEAD_SIZE * sum(map(math.prod, zip(tokens, counts, strict=True))),
        )
