"""A Llama-shaped decoder of random weights: prefill, then decode steps over a paged cache.

``python examples/decoder.py`` computes it with infini.ops alone. Torch computes the same again for
each token, without a cache. The program compares the logits, and prints the tokens. It runs on any
device: ATen's operators at slot 8 replace those that have no kernel there.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch.nn import functional

import infini.ops
import torch

EPS = 1e-5
TOP_K, TOP_P = 40, 0.9  # of random tokens
TORCH_SLOT = 8  # ATen's operators: every device has them


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The sizes of the model and of its cache, which has ``blocks`` of ``block_size`` tokens."""

    layers: int = 2
    heads: int = 8
    cached_heads: int = 2
    head_size: int = 16
    hidden: int = 64
    intermediate: int = 160
    vocabulary: int = 101
    positions: int = 128
    block_size: int = 8
    blocks: int = 64

    @property
    def qkv(self) -> tuple[int, int, int]:
        """The columns of q, of k and of v."""
        cached = self.cached_heads * self.head_size
        return self.heads * self.head_size, cached, cached


SMALL = Sizes()


@dataclass(frozen=True, kw_only=True)
class Layer:
    """The weights of one layer."""

    norm: torch.Tensor
    qkv: torch.Tensor
    attention: torch.Tensor
    second_norm: torch.Tensor
    gate_and_up: torch.Tensor
    down: torch.Tensor


class Weights:
    """Random weights, the same ones for one seed."""

    def __init__(
        self, dtype: torch.dtype, device: str, seed: int = 0, sizes: Sizes = SMALL
    ) -> None:
        self.sizes = sizes
        source = torch.Generator().manual_seed(seed)

        def make(*shape: int) -> torch.Tensor:
            values = torch.randn(shape, generator=source) / shape[-1] ** 0.5
            return values.to(device, dtype)

        def norm() -> torch.Tensor:
            return (1 + torch.randn(sizes.hidden, generator=source) / 10).to(device, dtype)

        self.embedding = make(sizes.vocabulary, sizes.hidden)
        self.layers = [
            Layer(
                norm=norm(),
                qkv=make(sum(sizes.qkv), sizes.hidden),
                attention=make(sizes.hidden, sizes.qkv[0]),
                second_norm=norm(),
                gate_and_up=make(2 * sizes.intermediate, sizes.hidden),
                down=make(sizes.hidden, sizes.intermediate),
            )
            for _ in range(sizes.layers)
        ]
        self.norm = norm()
        self.head = make(sizes.vocabulary, sizes.hidden)
        frequencies = 10000.0 ** -(torch.arange(0, sizes.head_size, 2) / sizes.head_size)
        angles = torch.arange(sizes.positions).unsqueeze(1) * frequencies
        self.cos_sin = torch.cat([angles.cos(), angles.sin()], -1).to(device, dtype)


@dataclass(kw_only=True)
class Request:
    """One sequence: its tokens, how many of them are cached, and in which blocks."""

    tokens: list[int]
    blocks: list[int]
    cached: int = 0

    def slots(self, block_size: int) -> list[int]:
        """The places in the cache of the tokens that are not there yet."""
        places = range(self.cached, len(self.tokens))
        return [self.blocks[i // block_size] * block_size + i % block_size for i in places]


@dataclass
class Decoder:
    """The decoder by infini.ops, with the keys and values of each layer in blocks of memory.

    ``slot`` is the one to prefer: see ``run``.
    """

    weights: Weights
    slot: int | None = None
    caches: list[tuple[torch.Tensor, torch.Tensor]] = field(init=False)

    def __post_init__(self) -> None:
        sizes = self.weights.sizes
        shape = (sizes.blocks, sizes.block_size, sizes.cached_heads, sizes.head_size)
        self.caches = [(self._empty(*shape), self._empty(*shape)) for _ in range(sizes.layers)]

    def logits(self, batch: Sequence[Request]) -> torch.Tensor:
        """Process all tokens that are not cached: the logits of each request's next one."""
        sizes = self.weights.sizes
        new = [len(each.tokens) - each.cached for each in batch]
        ids = self._indices(i for each in batch for i in each.tokens[each.cached :])
        positions = self._indices(i for each in batch for i in range(each.cached, len(each.tokens)))
        slots = self._indices(i for each in batch for i in each.slots(sizes.block_size))
        lengths = self._lengths(batch, new)
        residual = self._empty(len(ids), sizes.hidden)
        self._run("index_select", self.weights.embedding, 0, ids, residual)
        x = self._empty(len(ids), sizes.hidden)
        self._run("rms_norm", residual, self.weights.layers[0].norm, EPS, x)
        norms = [layer.norm for layer in self.weights.layers[1:]] + [self.weights.norm]
        for layer, caches, norm in zip(self.weights.layers, self.caches, norms, strict=True):
            q, k, v = self._linear(x, layer.qkv).split(sizes.qkv, -1)
            self._run("rotary_embedding", positions, q, k, sizes.head_size, self.weights.cos_sin)
            k, v = (each.unflatten(-1, (sizes.cached_heads, sizes.head_size)) for each in (k, v))
            self._run("reshape_and_cache_flash", k, v, slots, *caches)
            attended = self._empty(len(ids), sizes.qkv[0])
            q, out = (each.unflatten(-1, (sizes.heads, sizes.head_size)) for each in (q, attended))
            self._run("flash_attn_varlen_func", q, *caches, *lengths, causal=True, out=out)
            x = self._linear(attended, layer.attention)
            self._run("fused_add_rms_norm", x, residual, layer.second_norm, EPS)
            gated = self._empty(len(ids), sizes.intermediate)
            self._run("silu_and_mul", self._linear(x, layer.gate_and_up), gated)
            x = self._linear(gated, layer.down)
            self._run("fused_add_rms_norm", x, residual, norm, EPS)
        for each in batch:
            each.cached = len(each.tokens)
        last = self._empty(len(batch), sizes.hidden)
        ends = torch.tensor(new).cumsum(0) - 1
        self._run("index_select", x, 0, ends.to(x.device), last)
        return self._linear(last, self.weights.head)

    def _lengths(self, batch: Sequence[Request], new: Sequence[int]) -> tuple[Any, ...]:
        """What attention needs to know of the requests, as its arguments after the caches."""
        used = [len(each.tokens) for each in batch]
        most = max(len(each.blocks) for each in batch)
        table = self._indices([*each.blocks, *[-1] * (most - len(each.blocks))] for each in batch)
        ends = self._indices([0, *itertools.accumulate(new)])
        return ends, None, max(new), max(used), self._indices(used), table

    def _linear(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        out = self._empty(len(x), len(weight))
        self._run("linear", x, weight, out)
        return out

    def _run(self, name: str, *arguments: Any, **keywords: Any) -> None:
        run(name, self.slot, *arguments, **keywords)

    def _empty(self, *shape: int) -> torch.Tensor:
        return torch.empty(shape, dtype=self.weights.head.dtype, device=self.weights.head.device)

    def _indices(self, values: Any) -> torch.Tensor:
        return torch.tensor(list(values), device=self.weights.head.device)


def run(name: str, slot: int | None, *arguments: Any, **keywords: Any) -> None:
    """Call an operator at a slot, or at its fastest slot if it lacks this one.

    With slot 8, and on a device where the operator has no slot, ATen's operators replace it.
    """
    device = arguments[0].device.type
    of_class = getattr(infini.ops, "".join(map(str.title, name.split("_"))))
    slots = of_class.active_implementation_indices(device)
    if slot not in slots and (slot == TORCH_SLOT or not slots):
        COMPOSED[name](*arguments, **keywords)
        return
    index = slot if slot in slots else None
    getattr(infini.ops, name)(*arguments, **keywords, implementation_index=index)


def aten(name: str, first: torch.Tensor, *others: Any, **keywords: Any) -> torch.Tensor:
    """The result of one of ATen's operators, which gives ``out`` its shape."""
    out = keywords.pop("out", None)
    out = first.new_empty(0) if out is None else out
    operator = getattr(infini.ops, name)
    operator(first, *others, **keywords, out=out, implementation_index=TORCH_SLOT)
    return out


def copy(source: torch.Tensor, to: torch.Tensor) -> torch.Tensor:
    """Copy between types, strides and devices."""
    infini.ops.copy_inplace(to, source, implementation_index=TORCH_SLOT)
    return to


def composed_rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float, out: torch.Tensor) -> None:
    wide = copy(x, torch.empty_like(x, dtype=torch.float32))
    squares = aten("mean", aten("mul", wide, wide), [-1], keepdim=True)
    scale = aten("rsqrt", aten("add", squares, eps))
    aten("mul", aten("mul", wide, scale), weight, out=out)


def composed_fused_add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
) -> None:
    aten("add", residual, x, out=residual)
    composed_rms_norm(residual, weight, eps, x)


def composed_rotary_embedding(
    positions: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    head_size: int,
    cos_sin: torch.Tensor,
) -> None:
    cos, sin = aten("index_select", cos_sin, 0, positions).unsqueeze(1).chunk(2, -1)
    for each in (query, key):
        first, second = each.unflatten(-1, (-1, head_size)).chunk(2, -1)
        rotated = aten("addcmul", aten("mul", first, cos), second, sin, value=-1)
        aten("addcmul", aten("mul", second, cos), first, sin, out=second)
        copy(rotated, first)


def composed_reshape_and_cache_flash(
    key: torch.Tensor,
    value: torch.Tensor,
    slots: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
) -> None:
    for new, cache in ((key, key_cache), (value, value_cache)):
        rows = cache.view(-1, *cache.shape[2:])
        infini.ops.index_copy_inplace(rows, 0, slots, new, implementation_index=TORCH_SLOT)


def composed_flash_attn_varlen_func(
    q: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    ends: torch.Tensor,
    *lengths: Any,
    causal: bool,
    out: torch.Tensor,
) -> None:
    """Attend one request at a time; ``lengths`` are those of ``Decoder._lengths``."""
    *_, used, table = lengths
    block_size, key_heads = key_cache.shape[1:3]
    for i, (begin, end) in enumerate(itertools.pairwise(ends.tolist())):
        count = int(used[i])
        blocks = table[i, : -(-count // block_size)]
        # [key_heads, heads of one key_head or 1, tokens, head_size]
        keys, values = (
            aten("index_select", cache, 0, blocks).flatten(0, 1)[:count].transpose(0, 1)
            for cache in (key_cache, value_cache)
        )
        queries, results = (
            each[begin:end].unflatten(1, (key_heads, -1)).permute(1, 2, 0, 3) for each in (q, out)
        )
        scores = aten("matmul", queries, keys.mT.unsqueeze(1))
        hidden = q.new_full((end - begin, count), float("-inf") if causal else 0.0)
        mask = aten("triu", hidden, count - (end - begin) + 1)
        weights = aten("softmax", aten("add", mask, scores, alpha=q.shape[-1] ** -0.5), -1)
        copy(aten("matmul", weights, values.unsqueeze(1)), results)


def composed_silu_and_mul(x: torch.Tensor, out: torch.Tensor) -> None:
    gate, up = x.chunk(2, -1)
    aten("mul", aten("silu", gate), up, out=out)


def sample_on_the_host(
    logits: torch.Tensor, *, seeds: torch.Tensor, out: torch.Tensor, **filters: Any
) -> None:
    """Choose tokens on the CPU: a row of logits is small, and the tokens are needed there."""
    tokens = torch.empty_like(out, device="cpu")
    infini.ops.top_k_top_p_sampling_from_logits(
        logits.cpu(), **filters, seeds=seeds.cpu(), out=tokens
    )
    copy(tokens, out)


COMPOSED: dict[str, Callable[..., None]] = {
    "flash_attn_varlen_func": composed_flash_attn_varlen_func,
    "fused_add_rms_norm": composed_fused_add_rms_norm,
    "reshape_and_cache_flash": composed_reshape_and_cache_flash,
    "rms_norm": composed_rms_norm,
    "rotary_embedding": composed_rotary_embedding,
    "silu_and_mul": composed_silu_and_mul,
    "top_k_top_p_sampling_from_logits": sample_on_the_host,
}


def expected_logits(weights: Weights, tokens: Sequence[int]) -> torch.Tensor:
    """The logits of the next token by torch's own functions, without a cache."""

    def attend(_: int, *qkv: torch.Tensor) -> torch.Tensor:
        by_head = (each.transpose(0, 1) for each in qkv)
        attended = functional.scaled_dot_product_attention(
            *by_head, is_causal=True, enable_gqa=True
        )
        return attended.transpose(0, 1)

    ids = torch.tensor(tokens, device=weights.head.device)
    return logits_by_torch(weights, ids, torch.arange(len(ids), device=ids.device), attend)[-1]


def logits_by_torch(
    weights: Weights,
    ids: torch.Tensor,
    positions: torch.Tensor,
    attend: Callable[..., torch.Tensor],
) -> torch.Tensor:
    """The logits after each token; ``attend`` gets the number of a layer, and its q, k and v."""
    sizes = weights.sizes
    x = weights.embedding[ids]
    cos, sin = weights.cos_sin[positions].unsqueeze(1).chunk(2, -1)

    def rotated(values: torch.Tensor) -> torch.Tensor:
        first, second = values.chunk(2, -1)
        return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)

    for i, layer in enumerate(weights.layers):
        normed = functional.rms_norm(x, (sizes.hidden,), layer.norm, EPS)
        q, k, v = functional.linear(normed, layer.qkv).split(sizes.qkv, -1)
        q, k, v = (each.unflatten(-1, (-1, sizes.head_size)) for each in (q, k, v))
        attended = attend(i, rotated(q), rotated(k), v)
        x = x + functional.linear(attended.flatten(1), layer.attention)
        normed = functional.rms_norm(x, (sizes.hidden,), layer.second_norm, EPS)
        gate, up = functional.linear(normed, layer.gate_and_up).chunk(2, -1)
        x = x + functional.linear(functional.silu(gate) * up, layer.down)
    normed = functional.rms_norm(x, (sizes.hidden,), weights.norm, EPS)
    return functional.linear(normed, weights.head)


def choose(
    logits: torch.Tensor, slot: int | None, seeds: torch.Tensor | None, step: int
) -> list[int]:
    """The likeliest token of each row; with seeds of the rows, a random one of the likely ones."""
    tokens = torch.empty(len(logits), dtype=torch.int64, device=logits.device)
    if seeds is None:
        run("argmax", slot, logits, 1, tokens)
    else:
        filters = {"top_k": TOP_K, "top_p": TOP_P, "seed": 0, "offset": step, "seeds": seeds}
        run("top_k_top_p_sampling_from_logits", slot, logits, **filters, out=tokens)
    return list(map(int, tokens.tolist()))


def batch_of(prompts: Sequence[Sequence[int]], steps: int, sizes: Sizes = SMALL) -> list[Request]:
    """Requests with room for ``steps`` tokens each, in blocks that are apart and in no order."""
    places = torch.randperm(sizes.blocks, generator=torch.Generator().manual_seed(0)).tolist()
    needed = [-(-(len(prompt) + steps) // sizes.block_size) for prompt in prompts]
    return [
        Request(tokens=list(prompt), blocks=[places.pop() for _ in range(count)])
        for prompt, count in zip(prompts, needed, strict=True)
    ]


def generate(
    weights: Weights,
    prompts: Sequence[Sequence[int]],
    steps: int,
    slot: int | None = None,
    seed: int | None = None,
) -> tuple[list[list[int]], float]:
    """The tokens of each prompt and what follows, and the largest difference of a logit.

    The likeliest token follows; with a ``seed``, a random one of the likely ones. Each request has
    its own seed, from this one on, so that its tokens do not depend on the others.
    """
    seeds = None
    if seed is not None:
        seeds = torch.arange(seed, seed + len(prompts), device=weights.head.device)
    decoder = Decoder(weights, slot)
    batch = batch_of(prompts, steps, weights.sizes)
    difference = 0.0
    for step in range(steps):
        logits = decoder.logits(batch)
        exact = torch.stack([expected_logits(weights, request.tokens) for request in batch])
        difference = max(difference, float((logits - exact).abs().max()))
        for request, token in zip(batch, choose(logits, slot, seeds, step), strict=True):
            request.tokens.append(token)
    return [request.tokens for request in batch], difference


PROMPTS = (range(1, 2), range(5, 22), range(40, 48))
MOST_STEPS = SMALL.positions - max(map(len, PROMPTS))


def main() -> None:
    """Run the decoder, and print the tokens."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="cpu")
    types = ("float32", "bfloat16", "float16")
    parser.add_argument("--dtype", default="float32", choices=types)
    parser.add_argument("--slot", type=int, help="to prefer; 8: ATen's operators; default: fastest")
    parser.add_argument("--steps", type=int, default=32, help="tokens to add (%(default)s)")
    parser.add_argument("--seed", type=int, help="choose tokens at random; default: the likeliest")
    options = parser.parse_args()
    if not 0 < options.steps <= MOST_STEPS:
        parser.error(f"--steps: got {options.steps}, expected 1 to {MOST_STEPS}")
    weights = Weights(getattr(torch, options.dtype), options.device)
    sequences, difference = generate(weights, PROMPTS, options.steps, options.slot, options.seed)
    for prompt, tokens in zip(PROMPTS, sequences, strict=True):
        print(*tokens[: len(prompt)], "->", *tokens[len(prompt) :])
    print(f"largest difference of a logit from torch's: {difference:.2g}")


if __name__ == "__main__":
    main()
