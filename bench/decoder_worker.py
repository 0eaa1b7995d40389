"""Times decode steps of ``examples/decoder.py`` beside torch's own of that model; prints JSON.

``python -m bench.decoder_worker DTYPE ROUNDS``, on the CPU. Prints the generated ``tokens`` of a
round and the ``seconds`` of each variant, one value per round, or an ``error``. In float32, nothing
is timed unless all variants generate the same tokens. CPU time is measured: set
``OMP_NUM_THREADS=1``.
"""

from __future__ import annotations

import json
import sys
import time
import timeit
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from torch.nn import functional

import torch
from bench.interleaved import Interleaved
from examples.decoder import Decoder, Request, Sizes, Weights, batch_of, choose, logits_by_torch

SIZES = Sizes(
    layers=4,
    heads=16,
    cached_heads=4,
    head_size=64,
    hidden=1024,
    intermediate=2816,
    vocabulary=8192,
    positions=1024,
    block_size=16,
    blocks=256,
)
LENGTHS = (16, 64, 160, 250, 384, 512, 700, 990)  # of the prompts
STEPS = 32
OURS = "infini.ops"

Step = Callable[[torch.Tensor, torch.Tensor, list[int]], torch.Tensor]
Tokens = list[list[int]]


class TorchDecoder:
    """The model by torch's functions; in the cache, ``room[i]`` tokens in a row are request i's.

    Attention runs for each request. With one padded batch, a step takes 6 to 13 % longer.
    """

    def __init__(self, weights: Weights, room: Sequence[int]) -> None:
        self.weights, self.room = weights, list(room)
        self.starts = [sum(room[:i]) for i in range(len(room))]
        sizes, dtype = weights.sizes, weights.head.dtype
        shape = (sum(room), sizes.cached_heads, sizes.head_size)
        self.caches = [
            (torch.zeros(shape, dtype=dtype), torch.zeros(shape, dtype=dtype))
            for _ in weights.layers
        ]

    def step(self, ids: torch.Tensor, positions: torch.Tensor, new: list[int]) -> torch.Tensor:
        """Process ``new[i]`` tokens of request i; return the likeliest next token of each."""
        group = self.weights.sizes.heads // self.weights.sizes.cached_heads
        by_request = list(zip(positions.split(new), self.starts, self.room, strict=True))
        slots = torch.cat([places + start for places, start, _ in by_request])
        # The heads that share keys are rows of one product.
        masks = [
            (torch.arange(room) <= places.unsqueeze(1)).expand(group, -1, -1).flatten(0, 1)
            for places, _, room in by_request
        ]

        def attend(layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            keys, values = self.caches[layer]
            keys.index_copy_(0, slots, k)
            values.index_copy_(0, slots, v)
            q = q.unflatten(1, (-1, group)).permute(1, 2, 0, 3)
            requests = q.split(new, 2), keys.split(self.room), values.split(self.room), masks
            attended = [
                functional.scaled_dot_product_attention(
                    rows.flatten(1, 2)[None], *(each.transpose(0, 1)[None] for each in cached), mask
                )[0].unflatten(1, (group, -1))
                for rows, *cached, mask in zip(*requests, strict=True)
            ]
            return torch.cat(attended, 2).permute(2, 0, 1, 3)

        logits = logits_by_torch(self.weights, ids, positions, attend)
        return torch.stack([each[-1] for each in logits.argmax(1).split(new)])


def decode_by_torch(step: Step, lengths: Sequence[int], first: Sequence[int]) -> Tokens:
    """The tokens that follow the first one after each prompt."""
    ids, positions, generated = torch.tensor(first), torch.tensor(lengths), []
    for _ in range(STEPS):
        ids = step(ids, positions, [1] * len(lengths))
        positions = positions + 1
        generated.append(ids)
    return torch.stack(generated, 1).tolist()  # type: ignore[no-any-return]


def decode(
    decoder: Decoder, batch: Sequence[Request], lengths: Sequence[int], first: Sequence[int]
) -> Tokens:
    """The same by the library."""
    for request, length, token in zip(batch, lengths, first, strict=True):
        request.tokens[length:], request.cached = [token], length
    for _ in range(STEPS):
        for request, token in zip(batch, choose(decoder.logits(batch), None, None, 0), strict=True):
            request.tokens.append(token)
    return [each.tokens[length + 1 :] for each, length in zip(batch, lengths, strict=True)]


def figures(dtype: str, rounds: int, sizes: Sizes, lengths: Sequence[int]) -> dict[str, Any]:
    """Process the prompts by both, compare what follows, and time it."""
    weights = Weights(getattr(torch, dtype), "cpu", sizes=sizes)
    source = torch.Generator().manual_seed(0)
    prompts = [torch.randint(sizes.vocabulary, (each,), generator=source) for each in lengths]
    decoder = Decoder(weights)
    batch = batch_of([each.tolist() for each in prompts], STEPS, sizes)
    first = choose(decoder.logits(batch), None, None, 0)
    by_torch = TorchDecoder(weights, [each + STEPS for each in lengths])
    by_torch.step(torch.cat(prompts), torch.cat([*map(torch.arange, lengths)]), list(lengths))
    steps = {"torch": by_torch.step, "torch.compile": torch.compile(by_torch.step, dynamic=False)}
    calls = {OURS: partial(decode, decoder, batch, lengths, first)}
    calls |= {name: partial(decode_by_torch, step, lengths, first) for name, step in steps.items()}
    tokens = {name: call() for name, call in calls.items()}
    different = [name for name in steps if tokens[name] != tokens[OURS]]
    if different and dtype == "float32":  # with fewer bits, nearly equal logits change places
        return {"error": f"{' and '.join(different)}: other tokens than those of {OURS}"}
    timers = {name: timeit.Timer(call, timer=time.process_time) for name, call in calls.items()}
    timing = Interleaved({name: each.timeit for name, each in timers.items()}, 0, least_loops=1)
    for index in range(rounds):
        timing.time_round(index)
    return {"tokens": STEPS * len(lengths), "seconds": timing.seconds}


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    json.dump(figures(sys.argv[1], int(sys.argv[2]), SIZES, LENGTHS), sys.stdout)
