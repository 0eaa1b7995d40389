"""Examples of the operators that copy tokens into the slots of a cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from native_operands import HOSTILE, Example, Maker, in_margin

import torch

Pair = tuple[torch.Tensor, torch.Tensor]


def exact_flash_caches(
    key: torch.Tensor, value: torch.Tensor, slots: torch.Tensor, caches: Sequence[torch.Tensor]
) -> Pair:
    """Returns the caches of ``reshape_and_cache_flash`` with the tokens in their slots."""
    keys, values = (cache.clone() for cache in caches)
    for token, slot in enumerate(slots.tolist()):
        block, offset = divmod(slot, keys.shape[1])
        if slot >= 0:
            keys[block, offset], values[block, offset] = key[token], value[token]
    return keys, values


def exact_paged_caches(
    key: torch.Tensor, value: torch.Tensor, slots: torch.Tensor, caches: Sequence[torch.Tensor]
) -> Pair:
    """Returns the same of ``reshape_and_cache``."""
    keys, values = (cache.clone() for cache in caches)
    for token, slot in enumerate(slots.tolist()):
        block, offset = divmod(slot, values.shape[3])
        if slot >= 0:
            keys[block, :, :, offset] = key[token].reshape(keys[block, :, :, offset].shape)
            values[block, :, :, offset] = value[token]
    return keys, values


def reshape_and_cache_flash_examples(dtype: torch.dtype) -> Iterator[Example]:
    make = Maker(dtype, -50, 50)

    def flash(blocks: int, block_size: int, heads: int, size: int) -> Pair:
        return make(blocks, block_size, heads, size), make(blocks, block_size, heads, size)

    yield from _cached(make, exact_flash_caches, flash)
    slots = in_margin(torch.tensor([3, 11, 5]))
    both = make(2, 3, 4, 2, 9)
    halves = make(3, 2, 4, 2, 9)
    ends = make(3, 4, 2, 18)
    for title, caches in (
        ("one memory", (both[0], both[1])),
        ("blocks of keys and of values", (halves[:, 0], halves[:, 1])),
        ("keys and values in turns", (ends[..., :9], ends[..., 9:])),
        ("heads apart", tuple(make(3, 2, 4, 9).transpose(1, 2) for _ in range(2))),
        ("elements apart", tuple(make(3, 4, 2, 18)[..., ::2] for _ in range(2))),
        ("reversed", tuple(make(9, 2, 4, 3).permute(3, 2, 1, 0) for _ in range(2))),
    ):
        yield _example(exact_flash_caches, title, make(3, 2, 9), make(3, 2, 9), slots, caches)


def reshape_and_cache_examples(dtype: torch.dtype) -> Iterator[Example]:
    make = Maker(dtype, -50, 50)
    lanes = 16 // dtype.itemsize  # as the callers have them

    def paged(blocks: int, block_size: int, heads: int, size: int) -> Pair:
        part = lanes if size % lanes == 0 else 3 if size % 3 == 0 else 1
        keys = make(blocks, heads, size // part, block_size, part)
        return keys, make(blocks, heads, size, block_size)

    yield from _cached(make, exact_paged_caches, paged)
    slots = in_margin(torch.tensor([3, 11, 5]))
    tokens = make(3, 2, 12), make(3, 2, 12)
    for title, caches in (
        ("one part", (make(3, 2, 1, 4, 12), make(3, 2, 12, 4))),
        ("sliced", (make(3, 3, 3, 4, 4)[:, :2], make(3, 2, 12, 9)[..., 1:8:2])),
        (
            "reversed",
            (make(4, 4, 3, 2, 3).permute(4, 3, 2, 1, 0), make(4, 12, 2, 3).permute(3, 2, 1, 0)),
        ),
    ):
        yield _example(exact_paged_caches, title, *tokens, slots, caches)


def _cached(
    make: Maker, exact: Callable[..., Pair], caches: Callable[[int, int, int, int], Pair]
) -> Iterator[Example]:
    """The calls of both operators; ``caches`` makes two of (blocks, block_size, heads, size)."""

    def example(
        title: str, slots: Any, key: torch.Tensor, value: torch.Tensor, blocks: int, size: int
    ) -> Example:
        mapping = slots if isinstance(slots, torch.Tensor) else torch.tensor(slots)
        made = caches(blocks, size, *key.shape[1:])
        return _example(exact, title, key, value, in_margin(mapping), made)

    yield example("contiguous", [7, 0, 9, 4], make(4, 2, 16), make(4, 2, 16), 3, 4)
    narrow = torch.tensor([7, 0, 9, 4], dtype=torch.int32)
    yield example("int32", narrow, make(4, 2, 16), make(4, 2, 16), 3, 4)
    yield example("skipped", [-1, 2, -7, 1], make(4, 2, 16), make(4, 2, 16), 3, 4)
    yield example("all skipped", [-1, -(2**40)], make(2, 2, 16), make(2, 2, 16), 3, 4)
    yield example("fewer slots than tokens", [5, 3], make(4, 2, 16), make(4, 2, 16), 3, 4)
    yield example("one token", [2], make(1, 1, 8), make(1, 1, 8), 1, 3)
    yield example("odd sizes", [14, 2, 6], make(3, 3, 33), make(3, 3, 33), 3, 5)
    yield example("one element", [1, 0], make(2, 1, 1), make(2, 1, 1), 2, 1)
    fused = make(4, 7, 24)
    yield example("slices of one tensor", [1, 3, 2, 0], fused[:, 3:5], fused[:, 5:], 2, 4)
    yield example(
        "tokens apart",
        [1, 3, 2],
        make(2, 3, 16).transpose(0, 1),
        make(16, 2, 3).permute(2, 1, 0),
        2,
        4,
    )
    yield example(
        "elements apart", [1, 3], make(2, 2, 32)[..., ::2], make(4, 2, 32)[::2, :, 1::2], 2, 4
    )
    yield example(
        "expanded", [1, 3], make(16).expand(2, 2, 16), make(2, 1, 1).expand(2, 2, 16), 2, 4
    )
    unaligned = make(65)[1:].view(2, 2, 16), make(67)[3:].view(2, 2, 16)
    yield example("unaligned", [1, 3], *unaligned, 2, 4)
    apart = in_margin(torch.tensor([1, 9, 5, 9, 3, 9]))[::2]
    yield _example(exact, "slots apart", make(3, 2, 16), make(3, 2, 16), apart, caches(2, 4, 2, 16))
    yield example("no slots", torch.zeros(0).long(), make(3, 2, 16), make(3, 2, 16), 2, 4)
    yield example("no tokens", torch.zeros(0).long(), make(0, 2, 16), make(0, 2, 16), 2, 4)
    yield example("no heads", [1, 3], make(2, 0, 16), make(2, 0, 16), 2, 4)
    yield example("empty heads", [1, 3], make(2, 2, 0), make(2, 2, 0), 2, 4)
    yield example("no blocks", [-1], make(1, 2, 16), make(1, 2, 16), 0, 4)
    slots = torch.randperm(24 * 16, generator=torch.Generator().manual_seed(0))[:300]
    slots[::7] = -1
    yield example("large", slots, make(300, 4, 64), make(300, 4, 64), 24, 16)
    if make(1).is_floating_point():
        hostile = make.of([[HOSTILE, HOSTILE]])
        yield example("hostile", [1], hostile, hostile.clone(), 2, 4)


def _example(
    exact: Callable[..., Pair],
    title: str,
    key: torch.Tensor,
    value: torch.Tensor,
    slots: torch.Tensor,
    caches: Sequence[torch.Tensor],
) -> Example:
    keys, values = exact(key, value, slots, caches)
    return Example(
        title=title,
        arguments={"key": key, "value": value, "slot_mapping": slots},
        name="key_cache",
        out=caches[0],
        expected=keys,
        others={"value_cache": (caches[1], values)},
        keeps_out=True,
    )


def wrong_flash_cache() -> Iterator[dict[str, Any]]:
    return _wrong(torch.zeros(3, 4, 2, 6), torch.zeros(3, 4, 2, 6))


def wrong_paged_cache() -> Iterator[dict[str, Any]]:
    right = torch.zeros(3, 2, 2, 4, 3), torch.zeros(3, 2, 6, 4)
    yield from _wrong(*right)
    plain = next(_wrong(*right)) | {"slot_mapping": torch.tensor([1])}
    for shape in ((3, 2, 2, 4, 2), (3, 2, 2, 4, 4), (3, 2, 0, 4, 3), (3, 2, 2, 4, 0), (3, 2, 6, 4)):
        yield plain | {"key_cache": torch.zeros(shape)}


def _wrong(keys: torch.Tensor, values: torch.Tensor) -> Iterator[dict[str, Any]]:
    """Calls that differ in one thing from a right one: two tokens of two heads of six elements."""
    right = {
        "key": torch.ones(2, 2, 6),
        "value": torch.ones(2, 2, 6),
        "slot_mapping": torch.tensor([1, 2]),
        "key_cache": keys,
        "value_cache": values,
    }
    for slots in ([1, 2, 3], [[1, 2]], 1, [1.0, 2.0]):
        yield right | {"slot_mapping": torch.tensor(slots)}
    for index in (torch.int16, torch.uint8, torch.bool):
        yield right | {"slot_mapping": torch.tensor([1, 0]).to(index)}
    for wrong in ((2, 12), (2, 3, 6), (2, 2, 5), (1, 2, 6), (1, 2, 2, 6)):
        for names in (("key",), ("value",), ("key", "value")):
            yield right | {name: torch.ones(wrong) for name in names}
    for name in ("key", "value", "key_cache", "value_cache"):
        yield right | {name: right[name].half()}
        yield right | {name: right[name].to(torch.complex64)}
    for name in ("key_cache", "value_cache"):
        for dimension in range(right[name].dim()):
            shape = list(right[name].shape)
            shape[dimension] += 1
            yield right | {name: torch.zeros(shape)}
        yield right | {name: right[name].flatten()}
        yield right | {name: right[name][:1].expand(right[name].shape)}
