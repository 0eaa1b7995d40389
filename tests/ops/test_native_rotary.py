"""What only rotary_embedding has: positions out of range, and a key that can be absent."""

from __future__ import annotations

from typing import Any

import pytest
from native_operands import Maker
from slot_zero import run

import infini.ops
import torch

pytestmark = [pytest.mark.cpu_kernels, pytest.mark.operators("rotary_embedding")]

SIZE, ROWS = 16, 8


def operands(*tokens: int, dtype: torch.dtype = torch.float32) -> dict[str, Any]:
    make = Maker(dtype)
    return {
        "query": make(*tokens, 3 * SIZE),
        "key": make(*tokens, SIZE),
        "head_size": SIZE,
        "cos_sin_cache": make(ROWS, SIZE),
    }


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("wrong", [ROWS, -1, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize(
    ("shape", "index", "place"),
    [((4,), (2,), "2"), ((2, 3), (1, 2), "1, 2")],
    ids=["flat", "batch"],
)
def test_a_position_out_of_range_is_refused_before_anything_is_written(
    shape: tuple[int, ...], index: tuple[int, ...], place: str, wrong: int, dtype: torch.dtype
) -> None:
    arguments = operands(*shape)
    before = arguments["query"].clone(), arguments["key"].clone()
    positions = torch.zeros(shape, dtype=dtype)
    positions[index] = wrong
    message = rf"^rotary_embedding: positions\[{place}\]: got {wrong}, expected 0 to 7: .+ 8 rows"
    with pytest.raises(ValueError, match=message):
        infini.ops.rotary_embedding(positions, **arguments)
    assert torch.equal(arguments["query"], before[0])
    assert torch.equal(arguments["key"], before[1])


def test_a_position_that_needs_64_bits_is_out_of_range() -> None:
    with pytest.raises(ValueError, match=r"positions\[0\]: got 4294967296, expected"):
        infini.ops.rotary_embedding(torch.tensor([2**32]), **operands(1))


def test_no_position_fits_an_empty_cache() -> None:
    arguments = operands(1) | {"cos_sin_cache": torch.ones(0, SIZE)}
    with pytest.raises(ValueError, match="has 0 rows"):
        infini.ops.rotary_embedding(torch.tensor([0]), **arguments)
    arguments = operands(0) | {"cos_sin_cache": torch.ones(0, SIZE)}
    infini.ops.rotary_embedding(torch.zeros(0, dtype=torch.int64), **arguments)


class TestKey:
    """It is written, and can be None. A call must say so, as in the field."""

    def test_none_rotates_the_query_alone(self) -> None:
        positions = torch.tensor([3, 1, 4])
        both, alone = operands(3), operands(3) | {"key": None}
        run("rotary_embedding", positions, *both.values())
        run("rotary_embedding", positions, *alone.values())
        assert torch.equal(both["query"], alone["query"])

    def test_a_call_without_it_is_refused(self) -> None:
        arguments = operands(3)
        del arguments["key"]
        with pytest.raises(TypeError, match=r"Tensor\? key"):
            infini.ops.rotary_embedding(torch.tensor([3, 1, 4]), **arguments)

    def test_a_refusal_names_it(self) -> None:
        arguments = operands(3) | {"key": None, "head_size": 5}
        message = (
            r"positions of type \(int32 or int64\).*; query and key must not overlap themselves, "
            r"each other or an input; got int64\[3\], query float32\[3, 48\], key None, "
            r"head_size 5 and float32\[8, 16\]$"
        )
        with pytest.raises(ValueError, match=message):
            infini.ops.rotary_embedding(torch.tensor([3, 1, 4]), **arguments)

    def test_a_key_that_autograd_saved_counts_its_writes(self) -> None:
        arguments = operands(3)
        before = [arguments[name]._version for name in ("query", "key", "cos_sin_cache")]
        infini.ops.rotary_embedding(torch.tensor([3, 1, 4]), **arguments)
        after = [arguments[name]._version for name in ("query", "key", "cos_sin_cache")]
        assert after == [before[0] + 1, before[1] + 1, before[2]]

    def test_the_documentation_names_what_is_written(self) -> None:
        assert "query, key" in str(infini.ops.rotary_embedding.__doc__)


@pytest.mark.parametrize("is_neox", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_a_token_has_the_same_bits_in_every_batch(dtype: torch.dtype, is_neox: bool) -> None:
    together, positions = operands(700, dtype=dtype), torch.arange(700) % ROWS
    alone = {
        name: value.clone() if isinstance(value, torch.Tensor) else value
        for name, value in together.items()
    }
    run("rotary_embedding", positions, **together, is_neox=is_neox)
    for token in (0, 1, 350, 699):
        one = slice(token, token + 1)
        parts = {name: alone[name][one] for name in ("query", "key")}
        run("rotary_embedding", positions[one], **(alone | parts), is_neox=is_neox)
        for name, part in parts.items():
            assert torch.equal(part, together[name][one])


@pytest.mark.parametrize("is_neox", [True, False])
def test_calls_on_the_same_memory_go_on_from_its_values(is_neox: bool) -> None:
    """Five steps and their inverses, by real angles."""
    angles = torch.arange(ROWS).unsqueeze(1) * torch.rand(1, SIZE // 2)
    arguments = operands(4) | {"cos_sin_cache": torch.cat((angles.cos(), angles.sin()), 1)}
    before = arguments["query"].clone()
    positions = torch.tensor([1, 2, 3, 7])
    for inverse in [False] * 5 + [True] * 5:
        run("rotary_embedding", positions, **arguments, is_neox=is_neox, inverse=inverse)
    torch.testing.assert_close(arguments["query"], before, rtol=1e-5, atol=1e-5)
