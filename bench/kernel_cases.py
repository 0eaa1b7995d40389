"""The cases of ``bench.kernel_worker``: operators with operands of one shape and dtype."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch.nn import functional

import torch

COLUMNS = 1024  # at most, in rows that are normalized
# On an accelerator every operand is larger than its caches (the largest today have 128 MB).
ELEMENTS = {
    "cpu": (1 << 10, 1 << 16, 1 << 20, 1 << 24),
    "cuda": (1 << 26,),
}  # of memory-bound cases
# Operators of halves, by their activation.
GATES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "gelu_and_mul": functional.gelu,
    "gelu_tanh_and_mul": partial(functional.gelu, approximate="tanh"),
    "silu_and_mul": functional.silu,
}
SIZES = {"cpu": (16, 64, 256, 1024), "cuda": (8192,)}  # of products
# Without a library torch takes up to 3 s for one product of 1024³ in 16 bits.
MOST_HALF_SIZE = {"cpu": 256, "cuda": 8192}
INFERENCE_ROWS = (1, 16, 128, 2048)  # on an accelerator
HIDDEN = 4096  # columns of these
TOKENS = (1, 512)  # of one model: 32 heads of 128 elements, of which 8 are cached
HEADS = (32, 8, 8)
HEAD_SIZE = 128
VOCABULARY = 128_256
# Its random number for row 0 is less than 1e-7 below 1: it draws the last token that is kept.
SEED_OF_THE_LAST = 17_845_651
EXPERTS, CHOSEN = 64, 6  # of one token


@dataclass(frozen=True)
class KernelCase:
    """One operator with operands of one shape and dtype.

    ``inputs`` makes the arguments in the operator's order. ``exact`` takes them and returns the
    result on the CPU in float64, or a tuple of them. ``reference`` takes them and ``out``, and
    writes the result into it with torch's own kernels. If it is None, ``exact`` also takes ``out``.
    """

    operator: str
    inputs: Callable[[], tuple[Any, ...]]
    exact: Callable[..., torch.Tensor | tuple[torch.Tensor, ...]]
    title: str
    size: int
    """Elements of the output, or rows of a product."""
    dtype: torch.dtype
    out_dtype: torch.dtype
    reference: Callable[..., object] | None = None
    flops: int = 0  # 0: memory-bound
    in_place: tuple[int, ...] = ()
    """The arguments that are written. There are no outs then, and ``reference`` takes none."""

    @property
    def name(self) -> str:
        return f"{self.operator} {self.title}"

    def operands(self, device: str, seed: int) -> tuple[tuple[Any, ...], tuple[torch.Tensor, ...]]:
        """Inputs and outs on ``device``, always the same for one seed."""
        torch.manual_seed(seed)
        inputs = self.inputs()
        outs: tuple[torch.Tensor, ...] = ()
        if not self.in_place:
            results = self.results([move(value, "meta") for value in inputs])
            outs = tuple(
                torch.empty(
                    each.shape,
                    dtype=self.out_dtype if each.is_floating_point() else each.dtype,
                    device=device,
                )
                for each in results
            )
        return tuple(move(value, device) for value in inputs), outs

    def results(self, inputs: Sequence[Any]) -> tuple[torch.Tensor, ...]:
        """What ``exact`` computes from the inputs."""
        exact = self.exact(*inputs)
        return exact if isinstance(exact, tuple) else (exact,)

    def written(self, inputs: Sequence[Any], outs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The tensors that a call writes, in the order of ``results``."""
        return [inputs[place] for place in self.in_place] or list(outs)

    def torch_call(self, inputs: Sequence[Any], outs: Sequence[torch.Tensor]) -> partial[object]:
        """The same by torch's own kernels."""
        call = partial(self.reference or self.exact, *inputs)
        return partial(call, out=outs[0] if len(outs) == 1 else outs) if outs else call


def move(value: Any, device: str, dtype: torch.dtype | None = None) -> Any:
    """Move a tensor, a list of them, or any other value to a device, and floats to a dtype."""
    if isinstance(value, torch.Tensor):
        return value.to(device, dtype if value.is_floating_point() else None)
    return [move(each, device, dtype) for each in value] if isinstance(value, list) else value


def cases(device: str) -> Iterator[KernelCase]:
    """All cases of a kind of device."""
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        for elements in ELEMENTS[device]:
            yield from _memory_bound(elements, dtype)
        for size in SIZES[device]:
            if dtype is torch.float32 or size <= MOST_HALF_SIZE[device]:
                yield from _products(size, dtype)
        yield from _attention(dtype)
        if device == "cpu":
            yield from _caches(dtype)
            yield from _experts(dtype)
            for rows in (1, 128):
                yield from _quantized(rows, dtype)
        for tokens in TOKENS:
            yield from _of_tokens(tokens, dtype)
    yield from _sampling()
    if device != "cpu":
        for rows in INFERENCE_ROWS:
            yield from _inference(rows)


def gated_halves(
    activation: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor
) -> torch.Tensor:
    """Activate the first half of the columns, and multiply it by the second."""
    first, second = x.chunk(2, -1)
    return activation(first) * second


def _inference(rows: int) -> Iterator[KernelCase]:
    many = f"{rows} row{'s' * (rows > 1)} of {HIDDEN}"
    for case in _memory_bound(rows * HIDDEN, torch.bfloat16, HIDDEN, many):
        if case.operator in ("add", "mul", "rms_norm", "add_rms_norm", "swiglu", *GATES):
            yield case


def _memory_bound(
    elements: int, dtype: torch.dtype, columns: int | None = None, many: str | None = None
) -> list[KernelCase]:
    name, many = _dtype_name(dtype), many or f"{_readable(elements)} elements"
    case = partial(KernelCase, title=f"{name}, {many}", size=elements, dtype=dtype, out_dtype=dtype)
    half = torch.float32 if dtype is torch.float16 else torch.float16
    columns = columns or min(COLUMNS, math.isqrt(elements))
    rows = elements // columns

    def make(*shape: int) -> torch.Tensor:
        return torch.randn(*shape).to(dtype)

    def pair() -> tuple[torch.Tensor, torch.Tensor]:
        return make(elements), make(elements)

    def norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        return functional.rms_norm(x, (columns,), weight, eps)

    def added_norm(
        x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        total = x + residual
        return norm(total, weight, eps), total

    def masked_softmax(x: torch.Tensor) -> torch.Tensor:
        above = torch.ones(columns, columns, dtype=torch.bool, device=x.device).triu(1)
        return torch.softmax(x.masked_fill(above, -torch.inf), -1)

    return [
        case("add", pair, torch.add),
        case("mul", pair, torch.mul),
        case(
            "swiglu",
            pair,
            lambda x, gate: x * functional.silu(gate),
            reference=lambda x, gate, out: torch.mul(x, functional.silu(gate), out=out),
        ),
        *(
            case(
                name,
                lambda: (make(rows, 2 * columns),),
                partial(gated_halves, activation),
                # Into the out, as a caller without the operator would.
                reference=lambda x, out, activation=activation: torch.mul(
                    activation(x[:, :columns]), x[:, columns:], out=out
                ),
            )
            for name, activation in GATES.items()
        ),
        case(
            "cast",
            lambda: (make(elements),),
            torch.clone,
            title=f"{name} to {_dtype_name(half)}, {many}",
            out_dtype=half,
            reference=lambda x, out: out.copy_(x),
        ),
        case("cat", lambda: ([make(columns, rows // 2) for _ in range(2)], 1), torch.cat),
        case(
            "rms_norm",
            lambda: (make(rows, columns), make(columns), 1e-6),
            norm,
            # Torch's function has no out.
            reference=lambda x, weight, eps, out: norm(x, weight, eps),  # noqa: ARG005
        ),
        case(
            "add_rms_norm",
            lambda: (make(rows, columns), make(rows, columns), make(columns), 1e-6),
            added_norm,
            reference=lambda x, residual, weight, eps, out: norm(
                torch.add(x, residual, out=out[1]), weight, eps
            ),
        ),
        case(
            "causal_softmax",
            lambda: (make(rows // columns, columns, columns),),
            masked_softmax,
            # Without the mask, which would need a second kernel.
            reference=partial(torch.softmax, dim=-1),
        ),
        case(
            "scaled_softmax",
            lambda: (make(rows, columns), 0.125),
            lambda x, scale: torch.softmax(x * scale, -1),
            reference=lambda x, scale, out: torch.softmax(x * scale, -1, out=out),
        ),
    ]


def _products(size: int, dtype: torch.dtype) -> list[KernelCase]:
    title = f"{_dtype_name(dtype)} {size}³"
    case = partial(
        KernelCase, title=title, size=size, dtype=dtype, out_dtype=dtype, flops=2 * size**3
    )

    def make(*shape: int) -> torch.Tensor:
        return (torch.randn(*shape) / size**0.25).to(dtype)

    def squares() -> tuple[torch.Tensor, torch.Tensor]:
        return make(size, size), make(size, size)

    return [
        case("gemm", squares, torch.mm),
        case("matmul", squares, torch.matmul),
        case(
            "linear",
            lambda: (*squares(), make(size)),
            functional.linear,
            reference=torch.ops.aten.linear.out,
        ),
    ]


def _of_tokens(tokens: int, dtype: torch.dtype) -> Iterator[KernelCase]:
    """Operators of the parts of a fused projection, which they rotate or copy to a cache."""
    case = partial(
        KernelCase,
        title=f"{_dtype_name(dtype)}, {tokens} token{'s' * (tokens > 1)}",
        size=tokens,
        dtype=dtype,
        out_dtype=dtype,
    )

    def projected() -> tuple[torch.Tensor, ...]:
        fused = torch.randn(tokens, sum(HEADS), HEAD_SIZE).to(dtype)
        return tuple(fused.split(HEADS, 1))

    def turned(positions: torch.Tensor, heads: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
        cosine, sine = cache[positions].unsqueeze(1).chunk(2, -1)
        x, y = heads.chunk(2, -1)
        return torch.cat([x * cosine - y * sine, y * cosine + x * sine], -1)

    def rotate(
        positions: torch.Tensor,
        query: torch.Tensor,
        key: torch.Tensor,
        size: int,  # noqa: ARG001 - as the operator
        cache: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return turned(positions, query, cache), turned(positions, key, cache)

    def rotate_in_place(*arguments: Any) -> None:
        for heads, result in zip(arguments[1:3], rotate(*arguments), strict=True):
            heads.copy_(result)

    def store_in_place(
        key: torch.Tensor, value: torch.Tensor, slots: torch.Tensor, *caches: torch.Tensor
    ) -> None:
        for values, cache in zip((key, value), caches, strict=True):
            cache.flatten(0, 1).index_copy_(0, slots, values)

    def store(*arguments: Any) -> tuple[torch.Tensor, torch.Tensor]:
        key_cache, value_cache = (cache.clone() for cache in arguments[3:])
        store_in_place(*arguments[:3], key_cache, value_cache)
        return key_cache, value_cache

    def tokens_and_caches() -> tuple[torch.Tensor, ...]:
        _, key, value = projected()
        caches = (torch.randn(64, 16, HEADS[1], HEAD_SIZE).to(dtype) for _ in range(2))
        return key, value, torch.randperm(64 * 16)[:tokens], *caches

    def heads_and_angles() -> tuple[Any, ...]:
        query, key, _ = projected()
        angles = torch.randn(4096, HEAD_SIZE // 2)
        cache = torch.cat([angles.cos(), angles.sin()], -1).to(dtype)
        return torch.randint(4096, (tokens,)), query, key, HEAD_SIZE, cache

    yield case(
        "rotary_embedding", heads_and_angles, rotate, reference=rotate_in_place, in_place=(1, 2)
    )
    yield case(
        "reshape_and_cache_flash",
        tokens_and_caches,
        store,
        reference=store_in_place,
        in_place=(3, 4),
    )


def _attention(dtype: torch.dtype) -> Iterator[KernelCase]:
    """A prompt, one with grouped heads, and a step of decoding."""
    for title, query, key in (
        ("prompt", (1, 8, 512, 64), (1, 8, 512, 64)),
        ("grouped prompt", (1, 32, 128, 128), (1, 8, 128, 128)),
        ("decoding", (16, 32, 1, 128), (16, 8, 1024, 128)),
    ):

        def inputs(
            query: tuple[int, ...] = query, key: tuple[int, ...] = key
        ) -> tuple[torch.Tensor | float | bool | None, ...]:
            tensors = (torch.randn(*shape).to(dtype) for shape in (query, key, key))
            return *tensors, None, 0.0, False, None, True

        def attention(*arguments: Any) -> torch.Tensor:
            *positional, scale, enable_gqa = arguments
            return functional.scaled_dot_product_attention(
                *positional, scale=scale, enable_gqa=enable_gqa
            )

        def reference(*arguments: Any, out: torch.Tensor) -> torch.Tensor:  # noqa: ARG001
            return attention(*arguments)  # torch's function has no out

        yield KernelCase(
            operator="scaled_dot_product_attention",
            inputs=inputs,
            exact=attention,
            reference=reference,
            title=f"{_dtype_name(dtype)}, {title}",
            size=math.prod(query[:-1]),
            dtype=dtype,
            out_dtype=dtype,
            flops=4 * math.prod(query) * key[-2],
        )


def _caches(dtype: torch.dtype) -> Iterator[KernelCase]:
    """Steps of decoding, and prompts of several lengths, against keys in blocks of a cache."""
    queries, keys, block_size = HEADS[0], HEADS[1], 16
    for title, tokens, counts in (
        ("decoding", (1,) * 16, tuple(range(64, 1088, 64))),
        ("prompts", (256, 33, 128), (256, 33, 640)),
    ):

        def inputs(
            tokens: tuple[int, ...] = tokens, counts: tuple[int, ...] = counts
        ) -> tuple[Any, ...]:
            blocks = -(-max(counts) // block_size)
            table = torch.randperm(len(counts) * blocks).view(len(counts), blocks)
            q = torch.randn(sum(tokens), queries, HEAD_SIZE).to(dtype)
            shape = table.numel(), block_size, keys, HEAD_SIZE
            caches = (torch.randn(shape).to(dtype) for _ in range(2))
            ends = torch.tensor([0, *itertools.accumulate(tokens)])
            most = max(tokens), max(counts)
            return q, *caches, ends, None, *most, torch.tensor(counts), table, None, True

        # The lengths are not read from tensors, which can be without memory.
        def attention(
            *arguments: Any, tokens: tuple[int, ...] = tokens, counts: tuple[int, ...] = counts
        ) -> torch.Tensor:
            q, *caches, _, _, _, _, _, table, _, _ = arguments
            outs = []
            for own, count, blocks in zip(q.split(tokens), counts, table, strict=True):
                key, value = (each[blocks].flatten(0, 1)[:count].transpose(0, 1) for each in caches)
                seen = q.new_ones(len(own), count, dtype=torch.bool).tril(count - len(own))
                outs.append(
                    functional.scaled_dot_product_attention(
                        own.transpose(0, 1), key, value, seen, enable_gqa=True
                    ).transpose(0, 1)
                )
            return torch.cat(outs)

        def reference(
            *arguments: Any,
            out: torch.Tensor,  # noqa: ARG001
            attention: Callable[..., torch.Tensor] = attention,
        ) -> torch.Tensor:
            return attention(*arguments)

        yield KernelCase(
            operator="flash_attn_varlen_func",
            inputs=inputs,
            exact=attention,
            reference=reference,
            title=f"{_dtype_name(dtype)}, {title}",
            size=sum(tokens),
            dtype=dtype,
            out_dtype=dtype,
            flops=4 * queries * HEAD_SIZE * sum(map(math.prod, zip(tokens, counts, strict=True))),
        )


def _sampling() -> Iterator[KernelCase]:
    """Tokens of one request and of a batch, by the filters of usual requests."""

    def kept(
        logits: torch.Tensor, top_k: int, top_p: float
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The probabilities, the largest first, which of them are kept, and their tokens."""
        largest, tokens = logits.topk(top_k) if top_k else logits.sort(descending=True)
        probabilities = largest.softmax(-1)
        before = probabilities.cumsum(-1) - probabilities
        return probabilities, before < top_p, tokens

    def last(logits: torch.Tensor, top_k: int, top_p: float, *_: Any) -> torch.Tensor:
        _, is_kept, tokens = kept(logits, top_k, top_p)
        return tokens.masked_fill(~is_kept, -1).amax(-1)

    def reference(
        logits: torch.Tensor, top_k: int, top_p: float, *_: Any, out: torch.Tensor
    ) -> torch.Tensor:
        probabilities, is_kept, tokens = kept(logits, top_k, top_p)
        drawn = torch.multinomial(probabilities.masked_fill(~is_kept, 0), 1)
        return torch.gather(tokens, 1, drawn, out=out.unsqueeze(1))

    for rows, top_k, top_p in ((1, 50, 0.9), (16, 50, 0.9), (1, 0, 0.9)):

        def inputs(rows: int = rows, top_k: int = top_k, top_p: float = top_p) -> tuple[Any, ...]:
            logits = 3 * torch.randn(rows, VOCABULARY)
            seeds = torch.full((rows,), SEED_OF_THE_LAST)
            return logits, top_k, top_p, SEED_OF_THE_LAST, 0, False, None, None, seeds

        filters = f"top {top_k} and {top_p}" if top_k else f"top {top_p}"
        yield KernelCase(
            operator="top_k_top_p_sampling_from_logits",
            inputs=inputs,
            exact=last,
            reference=reference,
            title=f"float32, {rows} row{'s' * (rows > 1)}, {filters}",
            size=rows,
            dtype=torch.float32,
            out_dtype=torch.int64,
        )


def _experts(dtype: torch.dtype) -> Iterator[KernelCase]:
    """The parts of a mixture of experts, for a step of decoding and for a prompt."""

    def random_scores(tokens: int) -> tuple[Any, ...]:
        return torch.randn(tokens, EXPERTS).to(dtype), True, None

    def results_of_experts(tokens: int) -> tuple[Any, ...]:
        return (torch.randn(tokens, CHOSEN, 2048).to(dtype),)

    def choose(
        scores: torch.Tensor, renormalize: bool, bias: None, order: Callable[..., Any] = torch.topk
    ) -> tuple[torch.Tensor, ...]:
        del renormalize, bias
        weights = torch.softmax(scores, -1, torch.promote_types(scores.dtype, torch.float32))
        weights, experts = order(weights, CHOSEN)
        numbers = torch.arange(experts.numel(), device=scores.device).view(CHOSEN, -1).T
        return weights / weights.sum(-1, keepdim=True), experts, numbers

    def in_order(weights: torch.Tensor, count: int) -> tuple[torch.Tensor, ...]:
        """Like topk, with equal ones in the order of the experts."""
        values, experts = torch.sort(weights, dim=-1, descending=True, stable=True)
        return values[:, :count], experts[:, :count]

    for tokens in (1, 512):
        case = partial(
            KernelCase,
            title=f"{_dtype_name(dtype)}, {tokens} token{'s' * (tokens > 1)}",
            size=tokens,
            dtype=dtype,
            out_dtype=dtype,
        )

        yield case(
            "topk_softmax",
            partial(random_scores, tokens),
            partial(choose, order=in_order),
            out_dtype=torch.float32,
            reference=lambda *arguments, out: choose(*arguments),  # noqa: ARG005
        )
        yield case(
            "moe_sum",
            partial(results_of_experts, tokens),
            lambda x: x.sum(1),
            reference=lambda x, out: torch.sum(x, 1, out=out),
        )
        yield _grouped_gemm(case, tokens, dtype)


def _grouped_gemm(case: Callable[..., KernelCase], tokens: int, dtype: torch.dtype) -> KernelCase:
    """The rows of the experts times their matrices; choice i has expert 7 * i."""
    # Not read from tensors, which can be without memory.
    owned = [
        [i for i in range(CHOSEN * tokens) if 7 * i % EXPERTS == expert]
        for expert in range(EXPERTS)
    ]

    def factors() -> tuple[Any, ...]:
        a, b = torch.randn(tokens, 512), torch.randn(EXPERTS, 256, 512)
        blocks = [own + [CHOSEN * tokens] * (-len(own) % 16) for own in owned]
        experts = [e for e, block in enumerate(blocks) for _ in range(len(block) // 16)]
        sorted_ids = torch.tensor([*itertools.chain(*blocks)])
        indices = sorted_ids, torch.tensor(experts), torch.tensor([len(sorted_ids)])
        return a.to(dtype), (b / 16).to(dtype), *indices, 16, CHOSEN

    def multiply(a: torch.Tensor, b: torch.Tensor, *_: Any) -> torch.Tensor:
        out = a.new_empty(CHOSEN * len(a), b.shape[1])
        for matrix, own in zip(b, owned, strict=True):
            if own:
                out[own] = a[[i // CHOSEN for i in own]] @ matrix.T
        return out

    return case(
        "grouped_gemm",
        factors,
        multiply,
        reference=lambda *arguments, out: multiply(*arguments),  # noqa: ARG005
        flops=2 * CHOSEN * tokens * 256 * 512,
    )


def _quantized(rows: int, dtype: torch.dtype) -> Iterator[KernelCase]:
    """Rows of a model that are quantized, and their products with weights that are."""
    float8, size = torch.float8_e4m3fn, 1024
    case = partial(KernelCase, dtype=dtype, out_dtype=dtype)
    name = f"{_dtype_name(dtype)}, {rows} row{'s' * (rows > 1)}"

    def limited(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return (x * (1 / scale)).clamp(-448, 448)

    def product(
        a: torch.Tensor, b: torch.Tensor, a_scales: torch.Tensor, b_scales: torch.Tensor
    ) -> torch.Tensor:
        return a_scales * (b_scales * (a @ b))

    def factors() -> tuple[torch.Tensor, ...]:
        a, weight = torch.randn(rows, size), torch.randn(size, size)
        return a.to(float8), weight.to(float8).t(), torch.rand(rows, 1), torch.rand(1, size)

    yield case(
        "static_scaled_fp8_quant",
        lambda: (torch.randn(rows, HIDDEN).to(dtype), torch.tensor([0.01])),
        limited,
        reference=lambda x, scale, out: out.copy_(limited(x.float(), scale)),
        title=f"{name} of {HIDDEN}",
        size=rows * HIDDEN,
        out_dtype=float8,
    )
    yield case(
        "scaled_mm",
        factors,
        product,
        # Torch's own function is slower, and takes no scales of rows with float16.
        reference=lambda a, b, a_scales, b_scales, out: out.copy_(
            product(a.float(), b.float(), a_scales, b_scales)
        ),
        title=f"float8_e4m3fn to {name} x {size}²",
        size=rows,
        flops=2 * rows * size**2,
    )


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _readable(count: int) -> str:
    """A power of two, by powers of 1024: "64 k"."""
    return f"{count >> 20} M" if count >> 20 else f"{count >> 10} k"
