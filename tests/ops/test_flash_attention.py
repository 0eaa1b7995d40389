"""Attention of ragged batches and of caches at slot 0 on the CPU: bits, indices and rooms."""

from __future__ import annotations

import os
import random
import time
from typing import Any

import pytest
from flash_examples import ends, exact_varlen, pages
from native_examples import COMMON
from native_operands import NAN, Maker
from slot_zero import is_accepted, run
from test_native_places import between_fences

import torch

VARLEN, CACHED = "flash_attn_varlen_func", "flash_attn_with_kvcache"

pytestmark = [
    pytest.mark.cpu_kernels,
    pytest.mark.operators(VARLEN, CACHED, "scaled_dot_product_attention"),
]

HEADS, KEY_HEADS, SIZE, VALUE_SIZE = 6, 3, 40, 24
# Few queries, which read keys in place, and several blocks of queries, with parts of strips.
QUERIES, KEYS = (1, 8, 9, 45, 150, 2), (401, 230, 9, 300, 200, 1)
OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"causal": True},
    {"window_size_left": 210, "window_size_right": 3, "softcap": 5.0},
)


class Batch:
    """A ragged batch, in rows and in blocks of a cache."""

    def __init__(self, dtype: torch.dtype, block_size: int) -> None:
        make = Maker(dtype)
        self.q = make(sum(QUERIES), HEADS, SIZE)
        self.k, self.v = make(sum(KEYS), KEY_HEADS, SIZE), make(sum(KEYS), KEY_HEADS, VALUE_SIZE)
        self.slopes = Maker(torch.float32, 0, 0.1)(HEADS)
        self.table = pages(KEYS, block_size)
        shape = int(self.table.max()) + 1, block_size, KEY_HEADS
        # What no key is in must not be read.
        self.caches = tuple(
            torch.full((*shape, each.shape[-1]), NAN).to(dtype) for each in (self.k, self.v)
        )
        for each, cache in zip((self.k, self.v), self.caches, strict=True):
            for row, keys in zip(self.table, each.split(KEYS), strict=True):
                for place in range(len(keys)):
                    block = int(row[place // block_size])
                    cache[block, place % block_size] = keys[place]

    def sequence(self, i: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return self.q.split(QUERIES)[i], self.k.split(KEYS)[i], self.v.split(KEYS)[i]


def varlen(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    queries: tuple[int, ...],
    keys: tuple[int, ...],
    **options: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    out = torch.full((*q.shape[:2], v.shape[-1]), 77).to(q.dtype)
    lse = torch.full((q.shape[1], q.shape[0]), 77.0)
    lengths = ends(queries), ends(keys), max(queries), max(keys)
    run(VARLEN, q, k, v, *lengths, **options, out=out, softmax_lse=lse)
    return out, lse


@pytest.mark.parametrize("options", OPTIONS, ids=["plain", "causal", "window"])
@pytest.mark.parametrize("dtype", COMMON, ids=str)
class TestSameBits:
    """The bits of a sequence depend on its queries, keys and values only."""

    def test_alone(self, dtype: torch.dtype, options: dict[str, Any]) -> None:
        batch = Batch(dtype, 16)
        options = options | {"alibi_slopes": batch.slopes}
        out, lse = varlen(batch.q, batch.k, batch.v, QUERIES, KEYS, **options)
        for i, (own, sums) in enumerate(
            zip(out.split(QUERIES), lse.split(QUERIES, 1), strict=True)
        ):
            alone = varlen(*batch.sequence(i), QUERIES[i : i + 1], KEYS[i : i + 1], **options)
            assert torch.equal(alone[0], own), i
            assert torch.equal(alone[1], sums), i

    @pytest.mark.parametrize("block_size", [1, 6, 16, 256])
    def test_in_blocks(self, dtype: torch.dtype, options: dict[str, Any], block_size: int) -> None:
        batch = Batch(dtype, block_size)
        expected = varlen(batch.q, batch.k, batch.v, QUERIES, KEYS, **options)
        k, v = batch.caches
        paged = varlen(batch.q, k, v, QUERIES, KEYS, block_table=batch.table, **options)
        assert all(map(torch.equal, paged, expected))

    def test_of_the_other_operator(self, dtype: torch.dtype, options: dict[str, Any]) -> None:
        batch = Batch(dtype, 16)
        q = batch.q[:18].view(6, 3, HEADS, SIZE)
        expected = varlen(batch.q[:18], batch.k, batch.v, (3,) * 6, KEYS, **options)
        room = torch.full((6, 450, KEY_HEADS, SIZE), NAN).to(dtype)
        rooms = room, room[..., :VALUE_SIZE].clone()
        for cache, each in zip(rooms, (batch.k, batch.v), strict=True):
            for row, keys in zip(cache, each.split(KEYS), strict=True):
                row[: len(keys)] = keys
        counts = torch.tensor(KEYS, dtype=torch.int32)
        for caches, table in ((rooms, None), (batch.caches, batch.table)):
            out = torch.full((6, 3, HEADS, VALUE_SIZE), 77).to(dtype)
            lse = torch.full((6, HEADS, 3), 77.0)
            run(CACHED, q, *caches, counts, table, **options, out=out, softmax_lse=lse)
            assert torch.equal(out.flatten(0, 1), expected[0])
            assert torch.equal(lse.transpose(0, 1).flatten(1), expected[1])

    def test_with_any_number_of_threads(self, dtype: torch.dtype, options: dict[str, Any]) -> None:
        batch = Batch(dtype, 16)
        threads = torch.get_num_threads()
        results = []
        try:
            for count in (1, 2, 5):
                torch.set_num_threads(count)
                results.append(varlen(batch.q, batch.k, batch.v, QUERIES, KEYS, **options))
        finally:
            torch.set_num_threads(threads)
        assert all(all(map(torch.equal, each, results[0])) for each in results)


@pytest.mark.parametrize("dtype", COMMON, ids=str)
def test_a_sequence_has_the_bits_of_the_other_attention(dtype: torch.dtype) -> None:
    batch = Batch(dtype, 16)
    for i in range(len(QUERIES)):
        q, k, v = batch.sequence(i)
        out, _ = varlen(q, k, v, QUERIES[i : i + 1], KEYS[i : i + 1])
        expected = torch.empty_like(out)
        by_head = (each.transpose(0, 1) for each in (q, k, v, expected))
        query, key, value, other = by_head
        run("scaled_dot_product_attention", query, key, value, enable_gqa=True, out=other)
        assert torch.equal(out, expected)


def test_random_calls() -> None:
    """Print the seed; ``ATTENTION_SEED`` replays it."""
    seed = int(os.environ.get("ATTENTION_SEED", time.time_ns() % 2**32))
    print(f"ATTENTION_SEED={seed}")
    source = random.Random(seed)  # noqa: S311
    for _ in range(40):
        count = source.randrange(5)
        queries = [source.choice((0, 1, 3, 17, 40)) for _ in range(count)]
        keys = [source.choice((0, 1, 16, 33, 250)) for _ in range(count)]
        group, key_heads, size = (source.randint(1, 4) for _ in range(3))
        window = source.randint(-1, 40), source.randint(-1, 40)
        options: dict[str, Any] = {
            "causal": source.random() < 0.5,
            "softcap": source.choice((0.0, 0.5, 30.0)),
        }
        make = Maker(torch.float32, -2, 2)
        # As those of models, at most 0.25: large scores are rounded to more than the tolerance.
        slopes = make(count, group * key_heads) / 8 if source.random() < 0.3 else None
        block_size = source.choice((0, 1, 3, 8, 64))
        table = pages(keys, block_size) if block_size else None
        blocks = () if table is None else (int(max([0, *(table + 1).flatten()])), block_size)
        rows = blocks or (sum(keys),)
        operands = (
            make(sum(queries), group * key_heads, size),
            make(*rows, key_heads, size),
            make(*rows, key_heads, 5),
        )
        paged: dict[str, Any] = {} if table is None else {"block_table": table}
        q, k, v = operands
        exact = exact_varlen(
            q, k, v, queries, keys, window=window, alibi_slopes=slopes, **options, **paged
        )
        given = {"window_size_left": window[0], "window_size_right": window[1], **paged, **options}
        if slopes is not None:
            given["alibi_slopes"] = slopes
        results = torch.full(exact[0].shape, 77.0), torch.full(exact[1].shape, 77.0)
        lengths = ends(queries), ends(keys), 40, 250
        run(VARLEN, *operands, *lengths, **given, out=results[0], softmax_lse=results[1])
        for result, expected in zip(results, exact, strict=True):
            torch.testing.assert_close(result.double(), expected, rtol=3e-5, atol=1e-5)


def test_rows_of_no_sequence_are_not_written() -> None:
    make = Maker(torch.float32)
    q, out, lse = make(9, 2, 8), torch.full((9, 2, 8), 77.0), torch.full((2, 9), 77.0)
    lengths = torch.tensor([2, 4, 7]), torch.tensor([1, 3, 6])
    run(VARLEN, q, make(8, 2, 8), make(8, 2, 8), *lengths, 3, 3, out=out, softmax_lse=lse)
    assert (out[:2] == 77).all()
    assert (out[7:] == 77).all()
    assert (lse[:, :2] == 77).all()
    assert not (out[2:7] == 77).any()


@pytest.mark.parametrize("at_end", [False, True], ids=["begin", "end"])
@pytest.mark.parametrize("dtype", COMMON, ids=str)
@pytest.mark.parametrize("block_size", [None, 3, 8])
def test_nothing_outside_of_the_operands_is_touched(
    block_size: int | None, dtype: torch.dtype, at_end: bool
) -> None:
    make = Maker(dtype)
    queries, keys = (2, 17), (9, 20)
    for size in (*range(1, 20), 63, 65):
        table = None if block_size is None else pages(keys, block_size)
        rows = (sum(keys),) if table is None else (int(table.max()) + 1, block_size)
        operands = make(19, 2, size), make(*rows, 2, size), make(*rows, 2, size)
        paged: dict[str, Any] = {} if table is None else {"block_table": table}
        slopes = Maker(torch.float32)(2)
        expected = varlen(*operands, queries, keys, softcap=3.0, alibi_slopes=slopes, **paged)
        fenced = [between_fences(each, at_end=at_end) for each in operands]
        indices = [between_fences(each, at_end=at_end) for each in (ends(queries), ends(keys))]
        options = {name: between_fences(each, at_end=at_end) for name, each in paged.items()}
        options["alibi_slopes"] = between_fences(slopes, at_end=at_end)
        results = [between_fences(torch.full_like(each, 77), at_end=at_end) for each in expected]
        given = {"softcap": 3.0, "out": results[0], "softmax_lse": results[1], **options}
        run(VARLEN, *fenced, *indices, 17, 20, **given)
        assert all(map(torch.equal, results, expected)), size


@pytest.mark.parametrize("index", [torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"cu_seqlens_q": [0, 2, 6]}, r"cu_seqlens_q\[2\]: got 6, expected 2 to 5"),
        ({"cu_seqlens_q": [0, 2, 1]}, r"cu_seqlens_q\[2\]: got 1, expected 2 to 5"),
        ({"cu_seqlens_q": [-1, 2, 5]}, r"cu_seqlens_q\[0\]: got -1, expected 0 to 5"),
        (
            {"cu_seqlens_k": [0, 3, 2**31 - 1]},
            r"cu_seqlens_k\[2\]: got 2147483647, expected 3 to 9",
        ),
        (
            {"max_seqlen_q": 2},
            r"cu_seqlens_q\[2\]: got a sequence of 3, expected at most 2: pass the length of the "
            "longest sequence as max_seqlen_q",
        ),
        ({"max_seqlen_k": 4}, r"cu_seqlens_k\[2\]: got a sequence of 6, expected at most 4"),
        ({"seqused_k": [3, 7]}, r"seqused_k\[1\]: got 7, expected 0 to 6"),
        ({"seqused_k": [-1, 6]}, r"seqused_k\[0\]: got -1, expected 0 to 3"),
    ],
    ids=str,
)
def test_an_index_out_of_range(wrong: dict[str, Any], message: str, index: torch.dtype) -> None:
    """It is an error before anything is written."""
    make = Maker(torch.float32)
    arguments: dict[str, Any] = {
        "cu_seqlens_q": [0, 2, 5],
        "cu_seqlens_k": [0, 3, 9],
        "max_seqlen_q": 3,
        "max_seqlen_k": 6,
    } | wrong
    for name, value in arguments.items():
        if isinstance(value, list):
            arguments[name] = torch.tensor(value, dtype=index)
    out = torch.full((5, 2, 8), 77.0)
    with pytest.raises(ValueError, match=f"^{VARLEN}: {message}"):
        run(VARLEN, make(5, 2, 8), make(9, 2, 8), make(9, 2, 8), **arguments, out=out)
    assert (out == 77).all()


@pytest.mark.parametrize(
    ("table", "counts", "message"),
    [
        ([[0, 4], [1, 2]], [8, 5], r"block_table\[0, 1\]: got 4, expected 0 to 3: .+ 4 blocks"),
        ([[0, 3], [1, -1]], [8, 5], r"block_table\[1, 1\]: got -1, expected 0 to 3"),
        ([[0, 3], [1, 2]], [8, 9], r"cache_seqlens\[1\]: got 9, expected 0 to 8"),
        ([[0, 3], [1, 2]], [-3, 8], r"cache_seqlens\[0\]: got -3, expected 0 to 8"),
        ([[0, 9], [-7, -7]], [4, 0], None),
    ],
    ids=["beyond", "negative", "too many", "negative count", "not needed"],
)
def test_a_block_out_of_range(
    table: list[list[int]], counts: list[int], message: str | None
) -> None:
    make = Maker(torch.float32)
    out = torch.full((2, 1, 2, 8), 77.0)
    arguments = make(2, 1, 2, 8), make(4, 4, 2, 8), make(4, 4, 2, 8)
    indices = torch.tensor(counts), torch.tensor(table)
    if message is None:
        run(CACHED, *arguments, *indices, out=out)
        assert not (out == 77).any()
        return
    with pytest.raises(ValueError, match=f"^{CACHED}: {message}"):
        run(CACHED, *arguments, *indices, out=out)
    assert (out == 77).all()


def test_pages_hold_the_keys_of_a_call_without_counts() -> None:
    make = Maker(torch.float32)
    lengths = torch.tensor([0, 1]), torch.tensor([0, 5]), 1, 9
    caches = make(1, 4, 1, 8), make(1, 4, 1, 8)
    with pytest.raises(ValueError, match=r"cu_seqlens_k\[1\]: got 5, expected 0 to 4: .+ holds"):
        run(
            VARLEN,
            *(make(1, 1, 8), *caches),
            *lengths,
            block_table=torch.tensor([[0]]),
            out=make(1, 1, 8),
        )


def test_the_logarithms_can_be_left_out_and_are_given_by_name() -> None:
    make = Maker(torch.float32)
    lengths = ends([3]), ends([3]), 3, 3
    operands, outs = [make(3, 2, 8) for _ in range(3)], [torch.zeros(3, 2, 8) for _ in range(3)]
    lse = torch.zeros(2, 3)
    run(VARLEN, *operands, *lengths, outs[0])
    run(VARLEN, *operands, *lengths, outs[1], softmax_lse=None)
    run(VARLEN, *operands, *lengths, outs[2], softmax_lse=lse)
    assert outs[0].any()
    assert torch.equal(outs[0], outs[1])
    assert torch.equal(outs[0], outs[2])
    assert lse.all()
    assert not is_accepted(VARLEN, *operands, *lengths, outs[0], lse)


@pytest.mark.parametrize("place", range(3))
def test_the_out_is_no_input(place: int) -> None:
    make = Maker(torch.float32)
    operands = [make(4, 1, 4, 8) for _ in range(3)]
    counts = torch.ones(4, dtype=torch.int32)
    assert not is_accepted(CACHED, *operands, counts, out=operands[place])


def test_the_logarithms_are_no_operand() -> None:
    make = Maker(torch.float32)
    operands = [make(4, 4, 4) for _ in range(4)]
    lengths = ends([4]), ends([4]), 4, 4
    for each in operands:
        *inputs, out = operands
        call = is_accepted(VARLEN, *inputs, *lengths, out=out, softmax_lse=each[0])
        assert not call


@pytest.mark.parametrize("dtype", COMMON, ids=str)
@pytest.mark.parametrize("causal", [False, True])
def test_it_is_torchs(causal: bool, dtype: torch.dtype) -> None:
    """Sequence by sequence, by torch's own function."""
    make = Maker(dtype, -2, 2)
    queries = keys = (20, 1, 33)
    q, k, v = make(54, 6, 16), make(54, 3, 16), make(54, 3, 16)
    out, _ = varlen(q, k, v, queries, keys, causal=causal, softmax_scale=0.3)
    for own, *parts in zip(*(each.split(queries) for each in (out, q, k, v)), strict=True):
        expected = torch.nn.functional.scaled_dot_product_attention(
            *(each.transpose(0, 1) for each in parts), is_causal=causal, scale=0.3, enable_gqa=True
        )
        allowed = 8 * torch.finfo(dtype).eps
        torch.testing.assert_close(own, expected.transpose(0, 1), rtol=allowed, atol=allowed)
