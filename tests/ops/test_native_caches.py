"""Slot 0 on the CPU of the operators that copy tokens into caches: errors, and slots twice."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from native_caches import exact_flash_caches, exact_paged_caches
from slot_zero import run

import torch

pytestmark = pytest.mark.cpu_kernels

BLOCKS, BLOCK_SIZE, HEADS, SIZE = 6, 4, 2, 64
CACHES = {
    "reshape_and_cache": (
        (BLOCKS, HEADS, SIZE // 4, BLOCK_SIZE, 4),
        (BLOCKS, HEADS, SIZE, BLOCK_SIZE),
    ),
    "reshape_and_cache_flash": ((BLOCKS, BLOCK_SIZE, HEADS, SIZE),) * 2,
}
NAMES = [pytest.param(name, marks=pytest.mark.operators(name)) for name in CACHES]


def caches_of(name: str) -> list[torch.Tensor]:
    return [torch.zeros(shape) for shape in CACHES[name]]


@pytest.mark.parametrize("index", [torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("slot", [24, 25, 2**31 - 1])
@pytest.mark.parametrize("name", NAMES)
def test_a_slot_beyond_the_caches(name: str, slot: int, index: torch.dtype) -> None:
    """Nothing is written, not even the tokens before it."""
    tokens = torch.ones(3, HEADS, SIZE)
    caches = caches_of(name)
    message = (
        rf"^{name}: slot_mapping\[1\]: got slot {slot}, expected one below 24, because the caches "
        "have 6 blocks of 4 slots; a negative slot skips its token$"
    )
    with pytest.raises(ValueError, match=message):
        run(name, tokens, tokens, torch.tensor([23, slot, 99], dtype=index), *caches)
    assert not any(cache.any() for cache in caches)


@pytest.mark.parametrize("name", NAMES)
def test_any_slot_is_beyond_caches_without_slots(name: str) -> None:
    for dimension in range(2) if name.endswith("flash") else (0, 3):
        caches = []
        for shape in CACHES[name]:
            sizes = list(shape)
            sizes[dimension] = 0
            caches.append(torch.zeros(sizes))
        tokens = torch.ones(1, HEADS, SIZE)
        with pytest.raises(
            ValueError, match=r"slot_mapping\[0\]: got slot 0, expected one below 0"
        ):
            run(name, tokens, tokens, torch.tensor([0]), *caches)
        run(name, tokens, tokens, torch.tensor([-1]), *caches)


@pytest.fixture(params=[1, 4])
def _threads(request: pytest.FixtureRequest) -> Iterator[None]:
    torch.set_num_threads(request.param)
    yield
    torch.set_num_threads(1)


@pytest.mark.usefixtures("_threads")
@pytest.mark.parametrize("name", NAMES)
def test_the_last_of_the_tokens_with_one_slot_is_kept(name: str) -> None:
    random = torch.Generator().manual_seed(0)
    exact = exact_flash_caches if name.endswith("flash") else exact_paged_caches
    for count in (2, 24, 1000):
        key, value = torch.randn(2, count, HEADS, SIZE, generator=random)
        slots = torch.randint(-2, BLOCKS * BLOCK_SIZE, (count,), generator=random)
        caches = caches_of(name)
        expected = exact(key, value, slots, caches)
        for _ in range(5):
            run(name, key, value, slots, *caches)
            assert all(map(torch.equal, caches, expected)), count
