"""Sampling by slot 0 on the CPU: its distribution, and that a row has its token in any batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from native_operands import Maker
from sampling_examples import exact_probabilities, philox
from slot_zero import run

import torch

NAME = "top_k_top_p_sampling_from_logits"
pytestmark = [pytest.mark.cpu_kernels, pytest.mark.operators(NAME)]

DRAWS = 50_000
SEED = 20_260_101
# Of the chi-squared distribution with 11 degrees of freedom: one of a million seeds exceeds it.
MOST_DEVIATION = 49.7


def sample(
    logits: torch.Tensor,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = SEED,
    *,
    offset: int = 0,
    joint: bool = False,
    **of_rows: torch.Tensor,
) -> torch.Tensor:
    out = torch.full(logits.shape[:1], -77)
    run(NAME, logits, top_k, top_p, seed, offset, joint, **of_rows, out=out)
    return out


def of_rows(count: int, **options: Any) -> torch.Tensor:
    logits = Maker(torch.float32, -1.5, 1.5)(12)
    return sample(logits.expand(count, 12), **options)


def of_seeds(count: int, **options: Any) -> torch.Tensor:
    logits = Maker(torch.float32, -1.5, 1.5)(12)
    return sample(logits.expand(count, 12), seeds=torch.arange(count) + SEED, **options)


@pytest.mark.parametrize("draw", [of_rows, of_seeds])
@pytest.mark.parametrize(("top_k", "top_p"), [(0, 1.0), (5, 1.0), (0, 0.7), (8, 0.8)])
@pytest.mark.parametrize("joint", [False, True])
def test_tokens_are_as_frequent_as_they_are_likely(
    draw: Callable[..., torch.Tensor], top_k: int, top_p: float, joint: bool
) -> None:
    logits = Maker(torch.float32, -1.5, 1.5)(12)
    expected = exact_probabilities(logits, top_k, top_p, joint=joint) * DRAWS
    tokens = draw(DRAWS, top_k=top_k, top_p=top_p, joint=joint)
    counts = torch.bincount(tokens, minlength=12)
    assert not counts[expected == 0].any()
    terms = (counts - expected).square() / expected
    deviation = float(terms[expected > 0].sum())
    print(f"seed {SEED}: chi-squared {deviation:.1f}")  # shown if the test fails
    assert deviation < MOST_DEVIATION


@pytest.mark.parametrize(
    ("key", "counter", "words"),
    [
        (0, (0, 0), 0xE169C58D_6627E8D5),
        (2**64 - 1, (2**64 - 1, 2**64 - 1), 0x41C83B0E_408F276D),
        (
            0x299F31D0_A4093822,
            (0x85A308D3_243F6A88, 0x03707344_13198A2E),
            0x94FDCCEB_D16CFE09,
        ),
    ],
)
def test_the_expected_random_numbers_are_those_of_random123(
    key: int, counter: tuple[int, int], words: int
) -> None:
    assert philox(key, *counter) == words


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("vocabulary", [1, 7, 64, 129, 4099, 128_256])
def test_the_first_of_k_is_the_largest(vocabulary: int, dtype: torch.dtype) -> None:
    """Whatever the seed is. Each place is the largest once, or many are."""
    places = torch.randint(vocabulary, (60,), generator=torch.Generator().manual_seed(0))
    logits = Maker(dtype, -3, 3)(60, vocabulary)
    logits[torch.arange(60), places] = 4
    assert torch.equal(sample(logits, 1), places)
    assert torch.equal(sample(logits, 0, 0.0), places)
    assert torch.equal(sample(logits, vocabulary, 1e-12), places)


@pytest.mark.parametrize(("top_k", "top_p"), [(0, 1.0), (40, 0.9), (0, 0.8)])
@pytest.mark.parametrize("joint", [False, True])
class TestSameTokens:
    """A row's token depends on its logits, numbers and seed only."""

    def test_in_any_place_of_any_batch(self, top_k: int, top_p: float, joint: bool) -> None:
        logits = Maker(torch.float32, -3, 3)(17, 1000)
        seeds = torch.arange(17) * 7919
        whole = sample(logits, top_k, top_p, joint=joint, seeds=seeds)
        order = torch.randperm(17, generator=torch.Generator().manual_seed(0))
        moved = sample(logits[order], top_k, top_p, joint=joint, seeds=seeds[order])
        assert torch.equal(moved, whole[order])
        for i in range(17):
            alone = sample(logits[i : i + 1], top_k, top_p, int(seeds[i]), joint=joint)
            assert alone.tolist() == [whole[i]]

    def test_in_a_longer_batch(self, top_k: int, top_p: float, joint: bool) -> None:
        """With one seed, a row has the random number of its place."""
        logits = Maker(torch.float32, -3, 3)(17, 1000)
        whole = sample(logits, top_k, top_p, joint=joint)
        assert torch.equal(sample(logits[:5], top_k, top_p, joint=joint), whole[:5])
        assert not torch.equal(sample(logits, top_k, top_p, SEED + 1, joint=joint), whole)
        assert not torch.equal(sample(logits, top_k, top_p, offset=1, joint=joint), whole)

    def test_with_any_number_of_threads(self, top_k: int, top_p: float, joint: bool) -> None:
        logits = Maker(torch.float32, -3, 3)(70, 5000)
        threads = torch.get_num_threads()
        results = []
        try:
            for count in (1, 2, 5):
                torch.set_num_threads(count)
                results.append(sample(logits, top_k, top_p, joint=joint))
        finally:
            torch.set_num_threads(threads)
        assert all(torch.equal(each, results[0]) for each in results)
