"""Examples of the operators of flash-attention for replay.py, beside those of the CPU."""

from __future__ import annotations

from collections.abc import Iterator

from flash_examples import ends, exact_cached, exact_varlen, pages
from native_operands import Example, Maker, tolerance

import torch


def sequences_by_variant(dtype: torch.dtype) -> Iterator[Example]:
    """For each variant of flash_attn_varlen_func, with all options and with none."""
    make, floats = Maker(dtype, -2, 2), Maker(torch.float32, 0, 0.5)
    few, many = ((1, 3, 0), (70, 3, 5)), ((1, 40, 0, 35), (70, 90, 5, 35))
    for (queries, keys), size, value_size in (
        (few, 64, 48),
        (many, 128, 64),
        (many, 20, 24),
        (few, 200, 256),
    ):
        table = pages(keys, 16)
        for title, rows, given, options in (
            ("plain", (sum(keys),), {}, {}),
            (
                "all options",
                (int(table.max()) + 1, 16),
                {"window_size_left": 50},
                {
                    "block_table": table,
                    "causal": True,
                    "softcap": 2.0,
                    "alibi_slopes": floats(len(queries), 4),
                    "softmax_scale": 0.3,
                },
            ),
        ):
            q, k = make(sum(queries), 4, size), make(*rows, 2, size)
            v, lse = make(*rows, 2, value_size), floats(4, sum(queries))
            window = (given.get("window_size_left", -1), -1)
            exact, exact_lse = exact_varlen(q, k, v, queries, keys, window=window, **options)
            lengths = {"cu_seqlens_q": ends(queries), "cu_seqlens_k": ends(keys)}
            lengths |= {"max_seqlen_q": max(queries), "max_seqlen_k": max(keys)}
            yield Example(
                title=f"sequences of {max(queries)}, {size} columns, {title}",
                arguments={"q": q, "k": k, "v": v, **lengths, **given, **options},
                out=make(*exact.shape),
                expected=exact.to(dtype),
                others={"softmax_lse": (lse, exact_lse.float())},
                tolerance=tolerance(dtype, ulps=256, size=64),
            )


def lengths_beyond_the_tensors(dtype: torch.dtype) -> Iterator[Example]:
    """They are cut off: no error can be raised on a device."""
    make = Maker(dtype, -2, 2)
    for index in (torch.int32, torch.int64):
        q, k, v = make(6, 4, 16), make(8, 2, 16), make(8, 2, 16)
        most = torch.iinfo(index).max
        exact, _ = exact_varlen(q, k, v, (2, 2, 2), (3, 5, 0), key_starts=(0, 3, 8))
        yield Example(
            title=f"lengths beyond the tensors, {index}",
            arguments={
                "q": q,
                "k": k,
                "v": v,
                "cu_seqlens_q": torch.tensor([-5, 2, 4, most], dtype=index),
                "cu_seqlens_k": torch.tensor([-most, 3, most, 5], dtype=index),
                "max_seqlen_q": 2,
                "max_seqlen_k": 5,
            },
            out=make(6, 4, 16),
            expected=exact.to(dtype),
            tolerance=tolerance(dtype, ulps=256, size=64),
        )


def caches_by_variant(dtype: torch.dtype) -> Iterator[Example]:
    """For each variant of flash_attn_with_kvcache."""
    make = Maker(dtype, -2, 2)
    counts = (70, 0, 33)
    for tokens, size, value_size in ((1, 64, 128), (20, 64, 48), (2, 33, 7), (1, 144, 131)):
        table = pages(counts, 16)
        blocks = int(table.max()) + 1
        q, k, v = (
            make(3, tokens, 6, size),
            make(blocks, 16, 2, size),
            make(blocks, 16, 2, value_size),
        )
        exact, _ = exact_cached(q, k, v, counts, causal=True, block_table=table)
        yield Example(
            title=f"{tokens} tokens, {size} columns",
            arguments={
                "q": q,
                "k_cache": k,
                "v_cache": v,
                "cache_seqlens": torch.tensor(counts),
                "block_table": table,
                "causal": True,
            },
            out=make(*exact.shape),
            expected=exact.to(dtype),
            tolerance=tolerance(dtype, ulps=256, size=64),
        )


def blocks_beyond_the_caches(dtype: torch.dtype) -> Iterator[Example]:
    """Their keys are not seen, and counts are cut off."""
    make = Maker(dtype, -2, 2)
    for index, beyond in ((torch.int32, -1), (torch.int32, 4), (torch.int64, 2**32 + 1)):
        q, k, v = make(3, 1, 4, 16), make(4, 4, 2, 16), make(4, 4, 2, 16)
        seen = torch.tensor([[1, 2], [0, 0], [3, 0]])
        table = torch.tensor([[1, 2], [0, 0], [3, beyond]]).to(index)
        exact, _ = exact_cached(q, k, v, (8, 0, 4), block_table=seen)
        yield Example(
            title=f"block {beyond}, {index}",
            arguments={
                "q": q,
                "k_cache": k,
                "v_cache": v,
                "cache_seqlens": torch.tensor([100, -7, 8], dtype=index),
                "block_table": table,
            },
            out=make(3, 1, 4, 16),
            expected=exact.to(dtype),
            tolerance=tolerance(dtype, ulps=256, size=64),
        )


def more_of_sequences(dtype: torch.dtype) -> Iterator[Example]:
    yield from sequences_by_variant(dtype)
    yield from lengths_beyond_the_tensors(dtype)


def more_of_caches(dtype: torch.dtype) -> Iterator[Example]:
    yield from caches_by_variant(dtype)
    yield from blocks_beyond_the_caches(dtype)
