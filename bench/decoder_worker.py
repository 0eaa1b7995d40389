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
from examples.decoder import EPS, Decoder, Request, Sizes, Weights, batch_of, choose

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
        weights, sizes = self.weights, self.weights.sizes
        group = sizes.heads // sizes.cached_heads
        by_request = positions.split(new)
        slots = torch.cat(
            [each + start for each, start in zip(by_request, self.starts, strict=True)]
        )
        # The heads that share keys are rows of one product.
        masks = [
            (torch.arange(room) <= each.unsqueeze(1)).expand(group, -1, -1).flatten(0, 1)
            for each, room in zip(by_request, self.room, strict=True)
        ]
        x = weights.embedding[ids]
        cos, sin = weights.cos_sin[positions].unsqueeze(1).chunk(2, -1)

        def rotated(values: torch.Tensor) -> torch.Tensor:
            first, second = values.chunk(2, -1)
            return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)

        for layer, (keys, values) in zip(weights.layers, self.caches, strict=True):
            normed = functional.rms_norm(x, (sizes.hidden,), layer.norm, EPS)
            q, k, v = functional.linear(normed, layer.qkv).split(sizes.qkv, -1)
            q, k, v = (each.unflatten(-1, (-1, sizes.head_size)) for each in (q, k, v))
            keys.index_copy_(0, slots, rotated(k))
            values.index_copy_(0, slots, v)
            q = rotated(q).unflatten(1, (-1, group)).permute(1, 2, 0, 3)
            requests = q.split(new, 2), keys.split(self.room), values.split(self.room), masks
            attended = [
                functional.scaled_dot_product_attention(
                    rows.flatten(1, 2)[None], *(each.transpose(0, 1)[None] for each in cached), mask
                )[0].unflatten(1, (group, -1))
                for rows, *cached, mask in zip(*requests, strict=True)
            ]
            by_token = torch.cat(attended, 2).permute(2, 0, 1, 3).flatten(1)
            x = x + functional.linear(by_token, layer.attention)
            normed = functional.rms_norm(x, (sizes.hidden,), layer.second_norm, EPS)
            gate, up = functional.linear(normed, layer.gate_and_up).chunk(2, -1)
            x = x + functional.linear(functional.silu(gate) * up, layer.down)
        last = x if len(x) == len(new) else torch.stack([each[-1] for each in x.split(new)])
        normed = functional.rms_norm(last, (sizes.hidden,), weights.norm, EPS)
        return functional.linear(normed, weights.head).argmax(1)


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
