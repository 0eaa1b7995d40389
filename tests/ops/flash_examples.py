"""Example calls and results of the operators of flash-attention, for native_examples.py."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from native_operands import INFINITY, NAN, Example, Maker, in_margin, tolerance, wide

import torch

Pair = tuple[torch.Tensor, torch.Tensor]


def exact_sequence(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    softmax_scale: float | None = None,
    causal: bool = False,
    window: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    slopes: torch.Tensor | None = None,
) -> Pair:
    """One sequence by torch's other operators, in float64: [rows, heads, size] and [heads, rows].

    The last query and the last key are at the same place. A query that sees no key gets 0, and the
    logarithm -infinity.
    """
    count = query.shape[1] // key.shape[1]
    query, key, value = (wide(each).transpose(0, 1) for each in (query, key, value))
    key, value = (each.repeat_interleave(count, 0) for each in (key, value))
    scale = query.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
    scores = query @ key.mT * scale
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    queries, keys = scores.shape[-2:]
    ahead = torch.arange(keys) - (torch.arange(queries).unsqueeze(1) + keys - queries)
    if slopes is not None:
        scores = scores - slopes.double().view(-1, 1, 1) * ahead.abs()
    left, right = window
    right = 0 if causal else right
    if left >= 0:
        scores = scores.masked_fill(ahead < -left, -INFINITY)
    if right >= 0:
        scores = scores.masked_fill(ahead > right, -INFINITY)
    lse = torch.logsumexp(scores, -1) if keys else scores.new_full(scores.shape[:2], -INFINITY)
    sees_none = (scores == -INFINITY).all(-1, keepdim=True)
    out = torch.softmax(scores, -1).masked_fill(sees_none, 0) @ value
    return out.transpose(0, 1), lse


def gathered(cache: torch.Tensor, blocks: torch.Tensor, count: int) -> torch.Tensor:
    """The first rows of a sequence whose blocks are in a paged cache."""
    needed = -(-count // cache.shape[1])
    return cache[blocks[:needed].long()].flatten(0, 1)[:count]


def exact_varlen(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    query_counts: Sequence[int],
    key_counts: Sequence[int],
    *,
    block_table: torch.Tensor | None = None,
    key_starts: Sequence[int] | None = None,
    alibi_slopes: torch.Tensor | None = None,
    **options: Any,
) -> Pair:
    """All sequences of a call of ``flash_attn_varlen_func``, whose queries follow each other."""
    outs, sums = [q.new_zeros(0, q.shape[1], v.shape[-1]).double()], []
    first_query = first_key = 0
    for i, (queries, keys) in enumerate(zip(query_counts, key_counts, strict=True)):
        first_key = first_key if key_starts is None else key_starts[i]
        rows = slice(first_key, first_key + keys)
        own = (
            (k[rows], v[rows])
            if block_table is None
            else (gathered(k, block_table[i], keys), gathered(v, block_table[i], keys))
        )
        slopes = alibi_slopes[i] if alibi_slopes is not None and alibi_slopes.dim() > 1 else None
        out, lse = exact_sequence(
            q[first_query : first_query + queries],
            *own,
            slopes=alibi_slopes if slopes is None else slopes,
            **options,
        )
        outs.append(out)
        sums.append(lse)
        first_query, first_key = first_query + queries, first_key + keys
    return torch.cat(outs), torch.cat([q.new_zeros(q.shape[1], 0).double(), *sums], 1)


def exact_cached(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    counts: Sequence[int],
    *,
    block_table: torch.Tensor | None = None,
    **options: Any,
) -> Pair:
    """All sequences of a call of ``flash_attn_with_kvcache``."""
    starts = [i * k.shape[1] for i in range(len(q))]
    paged: dict[str, Any] = {"block_table": block_table}
    if block_table is None:
        k, v = k.flatten(0, 1), v.flatten(0, 1)
        paged = {"key_starts": starts}
    queries = [q.shape[1]] * len(q)
    out, lse = exact_varlen(q.flatten(0, 1), k, v, queries, counts, **paged, **options)
    return out.view(*q.shape[:3], v.shape[-1]), lse.view(len(lse), *q.shape[:2]).transpose(0, 1)


def ends(counts: Sequence[int], dtype: torch.dtype = torch.int32) -> torch.Tensor:
    """``cu_seqlens`` of sequences."""
    return in_margin(
        torch.tensor([0, *torch.tensor(counts, dtype=torch.int64).cumsum(0)], dtype=dtype)
    )


def pages(counts: Sequence[int], block_size: int, *, most: int = 0) -> torch.Tensor:
    """A ``block_table`` for these numbers of keys: blocks in no order, -1 where no key is."""
    needed = [-(-count // block_size) for count in counts]
    places = torch.randperm(sum(needed), generator=torch.Generator().manual_seed(sum(needed)))
    table = torch.full((len(counts), max([*needed, most])), -1, dtype=torch.int32)
    for row, blocks in zip(table, places.split(needed), strict=True):
        row[: len(blocks)] = blocks
    return in_margin(table)


OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "causal": {"causal": True},
    "window": {"window": (3, 2)},
    "causal window": {"causal": True, "window": (5, 7)},
    "left window": {"window": (0, -1)},
    "right window": {"window": (-1, 1)},
    "huge window": {"window": (2**63 - 1, 2**63 - 1)},
    "softcap": {"softcap": 0.75, "softmax_scale": 0.8},
    "large softcap": {"softcap": 1e4},
    "slopes": {"slopes": 1},
    "all": {"causal": True, "window": (40, -1), "softcap": 2.0, "slopes": 2, "softmax_scale": -0.4},
}
COUNTS = (
    ((3, 0, 5, 1, 4), (7, 2, 0, 9, 4)),
    ((1, 1, 1), (5, 200, 401)),
    ((1, 2, 2, 1), (6, 3, 5, 4)),
    ((60, 2, 33), (60, 230, 5)),
)


def _given(options: dict[str, Any]) -> dict[str, Any]:
    """The arguments of the operators for options of ``exact_sequence``."""
    given = {name: value for name, value in options.items() if name != "window"}
    if "window" in options:
        given["window_size_left"], given["window_size_right"] = options["window"]
    return given


def varlen_examples(dtype: torch.dtype) -> Iterator[Example]:
    make, floats = Maker(dtype, -2, 2), Maker(torch.float32, 0, 0.5)

    def example(
        title: str,
        operands: Sequence[torch.Tensor],
        queries: Sequence[int],
        keys: Sequence[int],
        *,
        lse: torch.Tensor | None = None,
        out: torch.Tensor | None = None,
        index: torch.dtype = torch.int32,
        given: dict[str, Any] | None = None,
        **options: Any,
    ) -> Example:
        q, k, v = operands
        exact, exact_lse = exact_varlen(q, k, v, queries, keys, **options)
        lengths = {
            "cu_seqlens_q": ends(queries, index),
            "cu_seqlens_k": ends(keys, index),
            "max_seqlen_q": max([*queries, 0]),
            "max_seqlen_k": max([*keys, 0]),
        }
        options.pop("key_starts", None)
        return Example(
            title=title,
            arguments={"q": q, "k": k, "v": v, **lengths, **_given(options), **(given or {})},
            out=make(*exact.shape) if out is None else out,
            expected=exact.to(dtype),
            others={} if lse is None else {"softmax_lse": (lse, exact_lse.float())},
            tolerance=tolerance(dtype, ulps=256, size=64),
        )

    def dense(
        queries: Sequence[int], keys: Sequence[int], heads: int = 6, of_keys: int = 3
    ) -> tuple[torch.Tensor, ...]:
        return (
            make(sum(queries), heads, 20),
            make(sum(keys), of_keys, 20),
            make(sum(keys), of_keys, 24),
        )

    def paged(
        queries: Sequence[int], keys: Sequence[int], size: int
    ) -> tuple[tuple[torch.Tensor, ...], torch.Tensor]:
        table = pages(keys, size)
        blocks = int(table.max()) + 1 if table.numel() else 0
        caches = make(blocks, size, 3, 20), make(blocks, size, 3, 24)
        return (make(sum(queries), 6, 20), *caches), table

    yield example("plain", dense((2, 3), (5, 3)), (2, 3), (5, 3))
    for number, (queries, keys) in enumerate(COUNTS):
        for name, options in OPTIONS.items():
            own = dict(options)
            if shape := own.pop("slopes", None):
                own["alibi_slopes"] = floats(6) if shape == 1 else floats(len(queries), 6)
            title = f"{number}, {name}"
            yield example(title, dense(queries, keys), queries, keys, **own)
            lse = Maker(torch.float32)(6, sum(queries))
            yield example(f"{title}, lse", dense(queries, keys), queries, keys, lse=lse, **own)
            for size in (3, 4, 16):
                operands, table = paged(queries, keys, size)
                yield example(
                    f"{title}, blocks of {size}", operands, queries, keys, block_table=table, **own
                )
    queries, keys = COUNTS[-1]
    large = (140, 1, 0, 300), (400, 333, 0, 200)
    yield example("large", dense(*large), *large, causal=True, lse=Maker(torch.float32)(6, 441))
    yield example("int64", dense(queries, keys), queries, keys, index=torch.int64)
    yield example("one head", dense(queries, keys, 1, 1), queries, keys)
    yield example("no sequences", dense((), ()), (), ())
    yield example("no heads", dense(queries, keys, 0, 3), queries, keys)
    yield example("only empty ones", dense((0, 0), (0, 3)), (0, 0), (0, 3))
    fused = make(98, 6 + 3 + 3, 24)
    queries = keys = (40, 17, 41)
    slices = fused[:, :6], fused[:, 6:9], fused[:, 9:]
    out = make(98, 6, 48)[..., ::2]
    lse = Maker(torch.float32)(98, 6).T
    yield example("slices", slices, queries, keys, causal=True, out=out, lse=lse)
    apart = [make(24, each.shape[1], 98).permute(2, 1, 0) for each in slices]
    yield example("columns apart", apart, queries, keys, causal=True)
    for size in (8, 6):
        operands, table = paged(queries, keys, size)
        q, k, v = operands
        used = (33, 0, 41)
        counts = in_margin(torch.tensor(used))
        given = {"seqused_k": counts, "cu_seqlens_k": None}
        title = f"used keys, blocks of {size}"
        yield example(title, operands, queries, used, block_table=table, given=given)
        both = make(*k.shape[:2], 2, 6, 24)
        halves = both[:, :, 0, ::2, :20], both[:, :, 1, 1::2]
        wide_table = in_margin(torch.cat([table, table], 1).long())[:, : table.shape[1]]
        yield example(f"{title}, strided", (q, *halves), queries, keys, block_table=wide_table)
        columns = [make(*each.shape[:3], 48)[..., : 2 * each.shape[3] : 2] for each in (k, v)]
        yield example(f"{title}, columns apart", (q, *columns), queries, keys, block_table=table)
    used, starts = (33, 0, 41), (0, 40, 57)
    yield example(
        "used keys",
        dense(queries, keys),
        queries,
        used,
        key_starts=starts,
        given={"cu_seqlens_k": ends(keys), "seqused_k": torch.tensor(used, dtype=torch.int32)},
    )
    q, k, v = dense(queries, keys)
    yield example("large scores", (q * 3, k * 3, v), queries, keys, causal=True)
    q = q.clone()
    q[3, 0, 2], q[50, 1, 1] = NAN, INFINITY
    yield example("hostile", (q, k, v), queries, keys)


def cached_examples(dtype: torch.dtype) -> Iterator[Example]:
    make, floats = Maker(dtype, -2, 2), Maker(torch.float32, 0, 0.5)

    def example(
        title: str,
        operands: Sequence[torch.Tensor],
        counts: Sequence[int],
        *,
        lse: torch.Tensor | None = None,
        out: torch.Tensor | None = None,
        index: torch.dtype = torch.int32,
        **options: Any,
    ) -> Example:
        q, k, v = operands
        exact, exact_lse = exact_cached(q, k, v, counts, **options)
        lengths = in_margin(torch.tensor(counts, dtype=index))
        arguments = {"q": q, "k_cache": k, "v_cache": v, "cache_seqlens": lengths}
        return Example(
            title=title,
            arguments=arguments | _given(options),
            out=make(*exact.shape) if out is None else out,
            expected=exact.to(dtype),
            others={} if lse is None else {"softmax_lse": (lse, exact_lse.float())},
            tolerance=tolerance(dtype, ulps=256, size=64),
        )

    yield example("plain", (make(2, 1, 4, 8), make(2, 9, 2, 8), make(2, 9, 2, 8)), (9, 5))
    counts = (250, 0, 17, 192, 1)
    for tokens in (1, 3, 20):
        for name, options in OPTIONS.items():
            own = dict(options)
            if shape := own.pop("slopes", None):
                own["alibi_slopes"] = floats(6) if shape == 1 else floats(5, 6)
            q, title = make(5, tokens, 6, 20), f"{tokens} tokens, {name}"
            caches = make(5, 260, 3, 20), make(5, 260, 3, 24)
            lse = Maker(torch.float32)(5, 6, tokens)
            yield example(title, (q, *caches), counts, lse=lse, **own)
            for size in (5, 16):
                table = pages(counts, size, most=60)
                blocks = int(table.max()) + 1
                caches = make(blocks, size, 3, 20), make(blocks, size, 3, 24)
                paged = f"{title}, blocks of {size}"
                yield example(paged, (q, *caches), counts, block_table=table, **own)
    caches = make(5, 3, 260, 20).transpose(1, 2), make(260, 5, 24, 3).permute(1, 0, 3, 2)
    q = make(5, 2, 6, 40)[..., ::2]
    out = make(2, 5, 24, 6).permute(1, 0, 3, 2)
    lse = Maker(torch.float32)(2, 6, 5).permute(2, 1, 0)
    yield example("strided", (q, *caches), counts, out=out, lse=lse, causal=True)
    yield example("int64", (q, *caches), counts, index=torch.int64)
    yield example("no sequences", (make(0, 1, 4, 8), make(0, 9, 2, 8), make(0, 9, 2, 8)), ())
    yield example("no tokens", (make(2, 0, 4, 8), make(2, 9, 2, 8), make(2, 9, 2, 8)), (9, 5))
    yield example("no rows", (make(2, 1, 4, 8), make(2, 0, 2, 8), make(2, 0, 2, 8)), (0, 0))
    large = make(3, 1, 32, 64), make(3, 700, 8, 64), make(3, 700, 8, 64)
    yield example("large", large, (700, 650, 33), causal=True)


def wrong_varlen() -> Iterator[dict[str, Any]]:
    """For an out of [3, 4], which has too few dimensions, and for others."""
    make = Maker(torch.float32)
    ends_of = torch.tensor([0, 1, 3], dtype=torch.int32)
    right = {
        "q": make(3, 2, 4),
        "k": make(3, 1, 4),
        "v": make(3, 1, 4),
        "cu_seqlens_q": ends_of,
        "cu_seqlens_k": ends_of,
        "max_seqlen_q": 2,
        "max_seqlen_k": 2,
        "out": torch.zeros(3, 2, 4),
    }
    yield {name: value for name, value in right.items() if name != "out"}
    table = torch.zeros(2, 1, dtype=torch.int32)
    caches = {"k": make(2, 4, 1, 4), "v": make(2, 4, 1, 4)}
    for wrong in (
        {"q": make(3, 8)},
        {"q": make(3, 2, 5)},
        {"q": make(2, 2, 4)},
        {"q": make(3, 3, 4)},
        {"k": make(3, 2, 4)},
        {"k": make(4, 1, 4)},
        {"v": make(3, 1, 5)},
        {"k": make(3, 0, 4), "v": make(3, 0, 4)},
        {"cu_seqlens_q": ends_of[:2]},
        {"cu_seqlens_k": ends_of[:2]},
        {"cu_seqlens_k": None},
        {"cu_seqlens_k": None, "seqused_k": ends_of[:2]},
        {"cu_seqlens_k": None, "block_table": table, **caches},
        {"cu_seqlens_q": ends_of.short()},
        {"cu_seqlens_q": ends_of.float()},
        {"cu_seqlens_q": ends_of[:0], "cu_seqlens_k": ends_of[:0]},
        {"cu_seqlens_q": ends_of.view(3, 1)},
        {"seqused_k": ends_of},
        {"seqused_k": ends_of[:2].double()},
        {"block_table": table},
        {"block_table": table[:1], **caches},
        {"block_table": table[0], **caches},
        {"block_table": table.float(), **caches},
        {"block_table": table, **caches, "v": make(2, 3, 1, 4)},
        {"block_table": table, "k": make(2, 0, 1, 4), "v": make(2, 0, 1, 4)},
        {"alibi_slopes": make(3)},
        {"alibi_slopes": make(1, 2)},
        {"alibi_slopes": make(2).double()},
        {"softcap": -1.0},
        {"softcap": NAN},
        {"softmax_lse": torch.zeros(3, 2)},
        {"softmax_lse": torch.zeros(2, 3).half()},
        {"softmax_lse": torch.zeros(2, 1).expand(2, 3)},
        {"q": make(3, 2, 4).half()},
        {"k": make(3, 1, 4).double()},
    ):
        yield right | wrong
    halves = {name: right[name].half() for name in ("q", "k", "v", "out")}
    yield right | halves | {"alibi_slopes": make(2).half()}
    yield right | halves | {"softmax_lse": torch.zeros(2, 3).half()}


def wrong_cached() -> Iterator[dict[str, Any]]:
    make = Maker(torch.float32)
    counts = torch.tensor([1, 3], dtype=torch.int32)
    right = {
        "q": make(2, 1, 2, 4),
        "k_cache": make(2, 3, 1, 4),
        "v_cache": make(2, 3, 1, 4),
        "cache_seqlens": counts,
        "out": torch.zeros(2, 1, 2, 4),
    }
    yield {name: value for name, value in right.items() if name != "out"}
    table = torch.zeros(2, 1, dtype=torch.int32)
    for wrong in (
        {"q": make(2, 2, 4)},
        {"q": make(3, 1, 2, 4)},
        {"q": make(2, 1, 2, 5)},
        {"k_cache": make(3, 3, 1, 4), "v_cache": make(3, 3, 1, 4)},
        {"v_cache": make(2, 4, 1, 4)},
        {"cache_seqlens": counts[:1]},
        {"cache_seqlens": counts.float()},
        {"cache_seqlens": counts.view(2, 1)},
        {"block_table": table[:1]},
        {"block_table": table.float()},
        {"alibi_slopes": make(3)},
        {"softcap": -1.0},
        {"softmax_lse": torch.zeros(2, 1, 2)},
        {"softmax_lse": torch.zeros(2, 2, 1).double()},
        {"out": torch.zeros(2, 2, 2, 4)},
        {"out": torch.zeros(2, 1, 2, 5)},
        {"q": make(2, 1, 2, 4).bfloat16()},
    ):
        yield right | wrong
