"""Attention at slot 0 on the CPU: what its blocks of keys and of queries must not change."""

from __future__ import annotations

from typing import Any

import pytest
from attention_examples import exact_attention
from native_examples import COMMON
from native_operands import NAN, Maker
from slot_zero import is_accepted, run
from test_native_places import between_fences

import torch

pytestmark = [
    pytest.mark.cpu_kernels,
    pytest.mark.operators("scaled_dot_product_attention"),
]

# Few queries, which read keys in place, and several blocks of queries, with parts of strips.
QUERIES = (1, 3, 16, 17, 45, 300)


def attention(*operands: torch.Tensor, **options: Any) -> torch.Tensor:
    query, _, value = operands
    out = torch.full((*query.shape[:-1], value.shape[-1]), 77).to(query.dtype)
    run("scaled_dot_product_attention", *operands, **options, out=out)
    return out


@pytest.mark.parametrize("dtype", COMMON, ids=str)
@pytest.mark.parametrize("queries", QUERIES)
class TestSameBits:
    """The bits of a row depend on its query, keys and values only, in calls of as many queries."""

    def test_in_any_batch(self, queries: int, dtype: torch.dtype) -> None:
        make = Maker(dtype)
        query, key, value = make(3, 4, queries, 40), make(3, 4, 401, 40), make(3, 4, 401, 24)
        whole = attention(query, key, value, is_causal=True)
        for i in range(3):
            for j in range(4):
                alone = attention(query[i, j], key[i, j], value[i, j], is_causal=True)
                assert torch.equal(alone, whole[i, j])

    def test_with_any_number_of_threads(self, queries: int, dtype: torch.dtype) -> None:
        make = Maker(dtype)
        operands = make(9, queries, 40), make(9, 401, 40), make(9, 401, 24)
        threads = torch.get_num_threads()
        try:
            results = [
                (torch.set_num_threads(count), attention(*operands))[1] for count in (1, 2, 5)
            ]
        finally:
            torch.set_num_threads(threads)
        assert all(torch.equal(each, results[0]) for each in results)

    def test_with_hidden_keys_behind(self, queries: int, dtype: torch.dtype) -> None:
        make = Maker(dtype)
        query, key, value = make(2, queries, 40), make(2, 401, 40), make(2, 401, 24)
        mask = torch.arange(401) < 230
        fewer = attention(query, key[:, :230], value[:, :230])
        assert torch.equal(attention(query, key, value, attn_mask=mask), fewer)

    def test_in_any_layout(self, queries: int, dtype: torch.dtype) -> None:
        make = Maker(dtype)
        operands = make(2, queries, 40), make(2, 401, 40), make(2, 401, 24)
        columns = [each.mT.contiguous().mT for each in operands]
        assert torch.equal(attention(*columns), attention(*operands))

    def test_again_on_the_same_memory(self, queries: int, dtype: torch.dtype) -> None:
        make = Maker(dtype)
        operands = make(2, queries, 40), make(2, 401, 40), make(2, 401, 24)
        first = attention(*operands)
        for each in operands:
            each.copy_(each.flip(0))
        assert torch.equal(attention(*operands), first.flip(0))


@pytest.mark.parametrize("queries", QUERIES)
def test_keys_after_the_last_visible_one_are_not_read(queries: int) -> None:
    """A causal query never sees the values of later blocks, whatever they are."""
    make = Maker(torch.float32)
    query, key, value = make(queries, 8), make(700, 8), make(700, 8)
    expected = attention(query, key, value, is_causal=True)
    key[queries:], value[queries:] = NAN, NAN
    assert torch.equal(attention(query, key, value, is_causal=True), expected)


@pytest.mark.parametrize("queries", QUERIES)
def test_scores_that_grow_and_fall_from_block_to_block(queries: int) -> None:
    """A larger score scales what was summed before; in the end only the largest ones count."""
    make = Maker(torch.float32, 0.5, 1)
    query, key, value = make(queries, 8), make(800, 8), make(800, 8)
    for slopes in (torch.linspace(-30, 30, 800), torch.linspace(30, -30, 800)):
        mask = slopes + make(queries, 800)
        exact = exact_attention(query, key, value, mask)
        out = attention(query, key, value, attn_mask=mask)
        torch.testing.assert_close(out.double(), exact, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("at_end", [False, True], ids=["begin", "end"])
@pytest.mark.parametrize("dtype", COMMON, ids=str)
@pytest.mark.parametrize("queries", [1, 5, 18])
def test_nothing_outside_of_the_operands_is_touched(
    queries: int, dtype: torch.dtype, at_end: bool
) -> None:
    make = Maker(dtype)
    for size in (*range(1, 35), 63, 65):
        operands = make(2, queries, size), make(2, size + 3, size), make(2, size + 3, size)
        mask = make(queries, size + 3)
        expected = attention(*operands, attn_mask=mask)
        *fenced, fenced_mask = (between_fences(each, at_end=at_end) for each in (*operands, mask))
        out = between_fences(torch.full_like(expected, 77), at_end=at_end)
        run("scaled_dot_product_attention", *fenced, fenced_mask, out=out)
        assert torch.equal(out, expected), size


@pytest.mark.parametrize("place", range(3))
def test_the_out_is_no_input(place: int) -> None:
    make = Maker(torch.float32)
    operands = [make(6, 6) for _ in range(3)]
    kept = [each.clone() for each in operands]
    out = operands[place]
    assert not is_accepted("scaled_dot_product_attention", *operands, out=out)
    assert all(map(torch.equal, operands, kept))


def test_the_mask_is_not_the_out() -> None:
    make = Maker(torch.float32)
    out = make(6, 6)
    operands = [make(6, 6) for _ in range(3)]
    assert not is_accepted("scaled_dot_product_attention", *operands, out, out=out)


@pytest.mark.parametrize("dtype", COMMON, ids=str)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("queries", [1, 20])
def test_it_is_torchs(queries: int, is_causal: bool, dtype: torch.dtype) -> None:
    """Torch's own function: also where a mask hides all keys of a query."""
    make = Maker(dtype, -2, 2)
    query, key, value = make(2, 6, queries, 16), make(2, 3, 25, 16), make(2, 3, 25, 16)
    seen = Maker(torch.bool)(queries, 25)
    seen[0] = False
    for mask in (None, seen, make(2, 1, queries, 25)):
        options = {"attn_mask": mask, "is_causal": is_causal, "enable_gqa": True, "scale": 0.3}
        expected = torch.nn.functional.scaled_dot_product_attention(query, key, value, **options)
        allowed = 8 * torch.finfo(dtype).eps
        torch.testing.assert_close(
            attention(query, key, value, **options), expected, rtol=allowed, atol=allowed
        )
