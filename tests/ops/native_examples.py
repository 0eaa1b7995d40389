"""Example calls and results of every operator with a hand-written implementation.

Expected results are computed in float64, or exactly for integers, because torch lacks five of these
operators. The calls that no implementation may accept are the ``wrong`` ones of each operator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from attention_examples import attention_examples, wrong_attention
from flash_examples import cached_examples, varlen_examples, wrong_cached, wrong_varlen
from moe_examples import (
    alignment_examples,
    expert_sum_examples,
    grouped_gemm_examples,
    wrong_alignment,
    wrong_expert_sum,
    wrong_grouped_gemm,
)
from native_caches import (
    reshape_and_cache_examples,
    reshape_and_cache_flash_examples,
    wrong_flash_cache,
    wrong_paged_cache,
)
from native_operands import (
    FLOATS,
    HOSTILE,
    INFINITY,
    INTEGERS,
    LAYOUTS,
    NAN,
    UNSIGNED,
    Example,
    Maker,
    contiguous,
    in_margin,
    tolerance,
    wide,
)
from quantization_examples import (
    FLOAT8,
    INT8,
    dynamic_float8_examples,
    groups_float8_examples,
    groups_int8_examples,
    scaled_mm_examples,
    static_float8_examples,
    static_int8_examples,
    tokens_float8_examples,
    tokens_int8_examples,
    wrong_groups,
    wrong_scaled_mm,
    wrong_static,
    wrong_tokens,
)
from routing_examples import (
    grouped_topk_examples,
    topk_examples,
    wrong_grouped_topk,
    wrong_topk,
)
from sampling_examples import (
    sampling_examples,
    scaled_softmax_examples,
    wrong_sampling,
    wrong_scaled_softmax,
)

import torch

Arguments = dict[str, Any]
Examples = Iterator[Example]

# The dtypes that every implementation must accept; it may accept others.
COMMON = (torch.float32, torch.float16, torch.bfloat16)
ANY = (*FLOATS, *INTEGERS, torch.bool)


@dataclass(frozen=True, kw_only=True)
class Operator:
    """One operator: example calls, and calls that no implementation may accept.

    The first example is a plain one. One of them, "large", is large enough for several threads.
    """

    examples: Callable[[torch.dtype], Examples]
    wrong: Callable[[], Iterator[Arguments]]  # for out of shape (3, 4) and float32
    dtypes: tuple[torch.dtype, ...] = FLOATS
    required: tuple[torch.dtype, ...] = COMMON
    recorded: str | None = None  # torch's own overload, whose samples fit


# Elementwise.


def add_examples(dtype: torch.dtype) -> Examples:
    yield from elementwise(dtype, ("input", "other"), torch.add, size=300)
    alphas = (2, -0.5, 3.25) if dtype.is_floating_point else (3, 0)
    make = Maker(dtype, -50, 50)
    for alpha in alphas:
        x, y, out = contiguous(make)
        expected = (wide(x) + alpha * wide(y)).to(dtype)
        arguments = {"input": x, "other": y, "alpha": alpha}
        yield Example(
            title=f"alpha {alpha}",
            arguments=arguments,
            out=out,
            expected=expected,
            tolerance=tolerance(dtype, size=300),
        )


def mul_examples(dtype: torch.dtype) -> Examples:
    return elementwise(dtype, ("input", "other"), torch.mul)


def swiglu_examples(dtype: torch.dtype) -> Examples:
    yield from elementwise(dtype, ("input", "gate"), swiglu, ulps=64)
    make = Maker(dtype)
    gate = make.of([-1000.0, -100, -88, -50, -10, 10, 50, 100, 1000])
    x = make(9)
    yield Example(
        title="deep",
        arguments={"input": x, "gate": gate},
        out=make(9),
        expected=swiglu(wide(x), wide(gate)).to(dtype),
        tolerance=tolerance(dtype, ulps=128),
    )


def swiglu(x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
    return x * silu(gate)


def elementwise(
    dtype: torch.dtype,
    names: tuple[str, str],
    reference: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    *,
    ulps: float = 2.0,
    size: float = 0.0,
) -> Examples:
    example = partial(elementwise_example, names, reference, ulps=ulps, size=size)
    make = Maker(dtype, -50, 50)
    for layout in LAYOUTS:
        yield example(layout.__name__, *layout(make))
    x, y, _ = contiguous(make)
    yield example("in place", x, y, x, keeps_out=True)
    yield example("into the other", x, y, y, keeps_out=True)
    if dtype.is_floating_point:
        values = make.of(HOSTILE)
        column = make.of([[value] for value in HOSTILE])
        yield example("hostile", column, values, make(len(HOSTILE), len(HOSTILE)))


def elementwise_example(
    names: tuple[str, str],
    reference: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    title: str,
    *operands: torch.Tensor,
    ulps: float = 2.0,
    size: float = 0.0,
    keeps_out: bool = False,
) -> Example:
    *inputs, out = operands
    exact = reference(*map(wide, inputs))
    return Example(
        title=title,
        arguments=dict(zip(names, inputs, strict=True)),
        out=out,
        expected=exact.to(out.dtype).expand(out.shape),
        tolerance=tolerance(out.dtype, ulps=ulps, size=size),
        keeps_out=keeps_out,
    )


Function = Callable[[torch.Tensor], torch.Tensor]


def silu(x: torch.Tensor) -> torch.Tensor:
    return x * torch.sigmoid(x)


def gelu(x: torch.Tensor) -> torch.Tensor:
    """Torch's own function is 0 where 1 + erf cancels."""
    return x * torch.special.erfc(x * -math.sqrt(0.5)) / 2


def gelu_tanh(x: torch.Tensor) -> torch.Tensor:
    return x * torch.sigmoid(math.sqrt(8 / math.pi) * (x + 0.044715 * x**3))


def halves_example(
    activation: Function, title: str, x: torch.Tensor, out: torch.Tensor, ulps: float = 64
) -> Example:
    size = out.shape[-1]
    exact = activation(wide(x)[..., :size]) * wide(x)[..., size:]
    return Example(
        title=title,
        arguments={"input": x},
        out=out,
        expected=exact.to(out.dtype),
        tolerance=tolerance(out.dtype, ulps=ulps),
    )


def halves_examples(dtype: torch.dtype, activation: Function) -> Examples:
    example = partial(halves_example, activation)
    make = Maker(dtype)
    yield example("contiguous", make(3, 4, 10), make(3, 4, 5))
    yield example("one row", make(34), make(17))
    yield example("one column", make(4, 2), make(4, 1))
    yield example("transposed", make(16, 5).t(), make(5, 8))
    yield example("sliced", make(6, 40)[::2, 1:35], make(3, 17))
    yield example("every other column", make(3, 40)[:, ::2], make(3, 10))
    yield example("a part of a fused product", make(5, 3, 48)[:, 1, :32], make(5, 16))
    yield example("strided out", make(4, 18), make(9, 8)[:, ::2].t())
    yield example("columns of a wider out", make(5, 66), make(5, 64)[:, 1:34])
    yield example("dimensions apart", make(3, 2, 16).transpose(0, 1), make(2, 3, 8))
    yield example("expanded", make(1, 16).expand(5, 16), make(5, 8))
    yield example("one element", make().expand(3, 8), make(3, 4))
    yield example("unaligned", make(199)[1:].view(3, 66), make(101)[2:].view(3, 33))
    yield example("odd", make(7, 66), make(7, 33))
    yield example("whole vectors", make(3, 2 * 1040), make(3, 1040))
    yield example("no rows", make(0, 16), make(0, 8))
    yield example("empty rows", make(3, 0), make(3, 0))
    yield example("large", make(65, 2 * 1025), make(65, 1025))
    # Also where the activation is nearly 0, and beyond: 16 bits have nothing for 3e38.
    ends = [0.03, 0.7, 1, 3, 5.5, 9, 12.5, 14, 16, 50, 88, 100, 1000, 60000, 3e38]
    deep = make.of([*ends, *(-end for end in ends)])
    yield example("deep", torch.cat([deep, make(len(deep))]), make(len(deep)), ulps=256)
    values = make.of(HOSTILE)
    pairs = torch.cartesian_prod(values, values)
    yield example("hostile", in_margin(pairs), make(len(pairs), 1))


def cast_examples(dtype: torch.dtype) -> Examples:
    for target in ANY:
        # C++ does not define the conversion of a negative float to an unsigned integer.
        make = Maker(dtype, 0 if target in UNSIGNED else -100, 100)
        into = Maker(target)
        for layout in LAYOUTS:
            x, _, _ = layout(make)
            _, _, out = layout(into)
            yield cast_example(f"{layout.__name__} to {target}", x, out)
        if dtype.is_floating_point and (target.is_floating_point or target is torch.bool):
            values = [*HOSTILE, 1e-7, 70000.0, 3e38]
            yield cast_example(f"hostile to {target}", make.of(values), into(len(values)))
    if dtype is torch.int64:
        for target in (torch.float32, torch.float64):
            x = make.of([2**53 + 1, -(2**62), 2**24 + 1, 2**63 - 1, -(2**63)])
            yield cast_example(f"large integers to {target}", x, Maker(target)(5))


def cast_example(title: str, x: torch.Tensor, out: torch.Tensor) -> Example:
    expected = x.to(out.dtype).expand(out.shape)
    return Example(title=title, arguments={"input": x}, out=out, expected=expected)


# Rows.


def rms_norm_example(
    title: str, *operands: torch.Tensor, eps: float = 1e-6, **options: Any
) -> Example:
    x, weight, out = operands
    mean = wide(x).square().mean(-1, keepdim=True)
    return Example(
        title=title,
        arguments={"input": x, "weight": weight} | ({"eps": eps} if eps != 1e-6 else {}),
        out=out,
        expected=(wide(x) / (mean + eps).sqrt() * wide(weight)).to(out.dtype),
        tolerance=tolerance(out.dtype, ulps=32),
        **options,
    )


def rms_norm_examples(dtype: torch.dtype) -> Examples:
    example = rms_norm_example
    make = Maker(dtype)
    yield example("contiguous", make(3, 4, 17), make(17), make(3, 4, 17))
    yield example("one row", make(5), make(5), make(5))
    yield example("one column", make(4, 1), make(1), make(4, 1))
    yield example("eps", make(3, 8), make(8), make(3, 8), eps=0.25)
    yield example("transposed", make(16, 5).t(), make(16), make(5, 16))
    yield example("sliced", make(6, 40)[::2, 1:34], make(66)[::2], make(3, 33))
    yield example("strided out", make(4, 9), make(9), make(9, 8)[:, ::2].t())
    yield example("expanded", make(1, 8).expand(5, 8), make(1).expand(8), make(5, 8))
    yield example("dimensions apart", make(3, 2, 8).transpose(0, 1), make(8), make(2, 3, 8))
    yield example(
        "unaligned", make(100)[1:100].view(3, 33), make(34)[1:], make(101)[2:].view(3, 33)
    )
    yield example("no rows", make(0, 8), make(8), make(0, 8))
    yield example("empty rows", make(3, 0), make(0), make(3, 0))
    yield example("zeros", make(3, 8) * 0, make(8), make(3, 8))
    x = make(3, 8)
    yield example("in place", x, make(8), x, keeps_out=True)
    wider = make(40).float()
    yield example("float32 weight", make(3, 40), wider, make(3, 40), is_optional=True)
    yield example("sums beyond 16 bits", make(2, 64) * 60, make(64), make(2, 64))
    yield example("large", make(65, 1025), make(1025), make(65, 1025))
    yield example("long rows", make(2, 8192), make(8192), make(2, 8192))
    hostile = make(4, 8)
    hostile[0, 1], hostile[1, 2], hostile[2, 3] = NAN, INFINITY, -INFINITY
    yield example("hostile", hostile, make(8), make(4, 8))


def add_rms_norm_examples(dtype: torch.dtype) -> Examples:
    for case in added_norms(dtype):
        yield case.example()
    make = Maker(dtype)
    x, residual, weight = make(3, 8), make(3, 8), make(8)
    results = exact_added_norm(x, residual, weight)
    # Each out is the other's input.
    yield Example(
        title="in place, crossed",
        arguments={"input": x, "residual": residual, "weight": weight},
        out=residual,
        expected=results[0],
        others={"residual_out": (x, results[1])},
        tolerance=tolerance(dtype, ulps=32),
        keeps_out=True,
    )


def fused_add_rms_norm_examples(dtype: torch.dtype) -> Examples:
    for case in added_norms(dtype):
        if case.is_writable:
            yield case.fused_example()


@dataclass(frozen=True, kw_only=True)
class AddedNorm:
    """One sum that is normalized: the operands, two outs and the exact results."""

    title: str
    input: torch.Tensor
    residual: torch.Tensor
    arguments: Arguments
    outs: tuple[torch.Tensor, torch.Tensor]
    expected: tuple[torch.Tensor, torch.Tensor]
    is_writable: bool = True  # no element of an input is another one
    is_optional: bool = False

    def example(self) -> Example:
        """A call of add_rms_norm."""
        return Example(
            title=self.title,
            arguments=self.arguments | {"input": self.input, "residual": self.residual},
            out=self.outs[0],
            expected=self.expected[0],
            others={"residual_out": (self.outs[1], self.expected[1])},
            tolerance=tolerance(self.input.dtype, ulps=32),
            is_optional=self.is_optional,
        )

    def fused_example(self) -> Example:
        """A call of fused_add_rms_norm, which writes into its inputs."""
        return Example(
            title=self.title,
            arguments=self.arguments,
            name="input",
            out=self.input,
            expected=self.expected[0],
            others={"residual": (self.residual, self.expected[1])},
            tolerance=tolerance(self.input.dtype, ulps=32),
            keeps_out=True,
            is_optional=self.is_optional,
        )


def exact_added_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6
) -> tuple[torch.Tensor, torch.Tensor]:
    total = wide(x) + wide(residual)
    scale = (total.square().mean(-1, keepdim=True) + eps).rsqrt()
    return (total * scale * wide(weight)).to(x.dtype), total.to(x.dtype)


def added_norm(
    title: str, *operands: torch.Tensor, eps: float = 1e-6, **options: bool
) -> AddedNorm:
    """Without outs, the case has contiguous ones."""
    x, residual, weight, *outs = operands
    first, second = outs or [in_margin(torch.zeros(x.shape, dtype=x.dtype)) for _ in range(2)]
    return AddedNorm(
        title=title,
        input=x,
        residual=residual,
        arguments={"weight": weight} | ({"eps": eps} if eps != 1e-6 else {}),
        outs=(first, second),
        expected=exact_added_norm(x, residual, weight, eps),
        **options,
    )


def added_norms(dtype: torch.dtype) -> Iterator[AddedNorm]:
    case = added_norm
    make = Maker(dtype)
    yield case("contiguous", make(3, 4, 17), make(3, 4, 17), make(17))
    yield case("one row", make(5), make(5), make(5))
    yield case("one column", make(4, 1), make(4, 1), make(1))
    yield case("eps", make(3, 8), make(3, 8), make(8), eps=0.25)
    yield case("transposed", make(16, 5).t(), make(5, 16), make(16))
    yield case("sliced", make(6, 40)[::2, 1:34], make(3, 35)[:, 2:], make(66)[::2])
    fused = make(7, 66)
    yield case("slices of one tensor", fused[:, :33], fused[:, 33:], make(33))
    outs = make(9, 8)[:, ::2].t(), make(4, 18)[:, 1::2]
    yield case("strided outs", make(4, 9), make(4, 9), make(9), *outs)
    expanded = make(1, 8).expand(5, 8), make(5, 8), make(1).expand(8)
    yield case("expanded", *expanded, is_writable=False)
    apart = make(3, 2, 8).transpose(0, 1), make(2, 3, 8)
    yield case("dimensions apart", *apart, make(8))
    yield case("unaligned", make(100)[1:].view(3, 33), make(101)[2:].view(3, 33), make(34)[1:])
    yield case("no rows", make(0, 8), make(0, 8), make(8))
    yield case("empty rows", make(3, 0), make(3, 0), make(0))
    x = make(3, 8)
    yield case("zeros", x, -x, make(8))
    wider = make(40).float()
    yield case("float32 weight", make(3, 40), make(3, 40), wider, is_optional=True)
    yield case("sums beyond 16 bits", make(2, 64) * 60, make(2, 64) * 60, make(64))
    yield case("large", make(65, 1025), make(65, 1025), make(1025))
    yield case("long rows", make(2, 8192), make(2, 8192), make(8192))
    hostile = make(4, 8)
    hostile[0, 1], hostile[1, 2], hostile[2, 3] = NAN, INFINITY, -INFINITY
    yield case("hostile", hostile, make(4, 8), make(8))


def rotary_embedding_examples(dtype: torch.dtype) -> Examples:
    def example(
        title: str,
        positions: torch.Tensor,
        query: torch.Tensor,
        key: torch.Tensor | None,
        size: int,
        cache: torch.Tensor,
        **options: Any,
    ) -> Example:
        written = {"query": query} if key is None else {"query": query, "key": key}
        results = {
            name: exact_rotation(positions, heads, size, cache, **options).to(dtype)
            for name, heads in written.items()
        }
        return Example(
            title=title,
            arguments={"positions": positions, "head_size": size, "cos_sin_cache": cache}
            | ({"key": None} if key is None else {})
            | options,
            name="query",
            out=query,
            expected=results["query"],
            others={} if key is None else {"key": (key, results["key"])},
            tolerance=tolerance(dtype, size=64),
            keeps_out=True,
        )

    make = Maker(dtype)
    place = torch.tensor
    few = place([7, 0, 3, 3, 5])
    pairs = place([[1, 6, 0], [2, 2, 7]])
    yield example("contiguous", few, make(5, 48), make(5, 48), 16, make(8, 16))
    for is_neox in (True, False):
        for inverse in (False, True):
            flags = {"is_neox": is_neox, "inverse": inverse}
            yield example(f"{flags}", few, make(5, 3, 40), make(5, 1, 40), 40, make(8, 40), **flags)
        style = {"is_neox": is_neox}
        name = "halves" if is_neox else "neighbors"
        for rotated in (0, 2, 6, 10, 34, 66, 70, 130):
            title = f"{name}, {rotated} rotated"
            cache = make(8, rotated)
            yield example(title, few, make(5, 390), make(5, 130), 130, cache, **style)
        for offset in (0, 3, 8):
            title = f"{name} from {offset}"
            heads = make(5, 4, 16), make(5, 32)
            yield example(title, few, *heads, 16, make(8, 8), rope_dim_offset=offset, **style)
        fused = make(5, 8 * 12)
        parts = fused[:, :48], fused[:, 48:72]
        yield example(f"{name}, slices of one tensor", few, *parts, 12, make(8, 12), **style)
        heads = make(5, 128)[:, ::2], make(32, 5).t()
        yield example(f"{name}, elements apart", few, *heads, 16, make(8, 12), **style)
        heads = make(4, 5, 16).transpose(0, 1), make(5, 16, 2).transpose(1, 2)
        yield example(f"{name}, heads apart", few, *heads, 16, make(8, 16), **style)
        heads = make(2, 3, 32), make(2, 3, 1, 16)
        yield example(f"{name}, batch", pairs, *heads, 16, make(8, 16), **style)
        heads = make(3, 2, 4, 16).transpose(0, 1), make(2, 6, 32)[:, ::2]
        yield example(f"{name}, batches apart", pairs, *heads, 16, make(8, 16), **style)
        yield example(f"{name}, no key", few, make(5, 48), None, 16, make(8, 16), **style)
        strided = make(16, 40)[::2, 3:35:2]
        yield example(f"{name}, strided cache", few, make(5, 48), None, 16, strided, **style)
        wider = make(8, 16).float()
        yield example(f"{name}, float32 cache", few, make(5, 48), make(5, 16), 16, wider, **style)
        wider = make(8, 64).float()[:, ::2]
        yield example(f"{name}, strided float32 cache", few, make(5, 96), None, 32, wider, **style)
        heads = make(242)[2:].view(5, 48), make(81)[1:].view(5, 16)
        yield example(f"{name}, unaligned", few, *heads, 16, make(129)[1:].view(8, 16), **style)
        many = torch.arange(600) % 50
        heads = make(600, 8, 66), make(600, 132)
        yield example(f"large, {name}", many, *heads, 66, make(50, 64), **style)
    query = make(5, 48)
    yield example("int32 positions", few.int(), query, make(5, 16), 16, make(8, 16))
    spread = place([7, 99, 0, 99, 3, 99, 3, 99, 5])[::2]
    yield example("strided positions", spread, make(5, 48), make(5, 16), 16, make(8, 16))
    same = place([6]).expand(5)
    yield example("one position", same, make(5, 48), make(5, 16), 16, make(8, 16))
    turned = pairs.t().contiguous().t()
    yield example("transposed positions", turned, make(2, 3, 32), None, 16, make(8, 16))
    yield example("one token", place([2]), make(1, 48), make(1, 16), 16, make(8, 16))
    yield example("no tokens", few[:0], make(0, 48), make(0, 16), 16, make(8, 16))
    yield example("no batches", pairs[:0], make(0, 3, 48), make(0, 3, 16), 16, make(8, 16))
    yield example("no heads", few, make(5, 0), make(5, 0, 16), 16, make(8, 16))
    yield example("no heads of the query", few, make(5, 0), make(5, 16), 16, make(8, 16))
    hostile, cache = make(5, 4, 8), make(8, 8)
    hostile[0, 1, 2], hostile[1, 2, 3], hostile[2, 3, 7] = NAN, INFINITY, -INFINITY
    cache[3, 1] = NAN
    yield example("hostile", few, hostile, make(5, 8), 8, cache)


def exact_rotation(
    positions: torch.Tensor,
    heads: torch.Tensor,
    size: int,
    cache: torch.Tensor,
    *,
    is_neox: bool = True,
    rope_dim_offset: int = 0,
    inverse: bool = False,
) -> torch.Tensor:
    cosine, sine = wide(cache)[positions.long()].unsqueeze(-2).chunk(2, -1)
    sine = -sine if inverse else sine
    result = wide(heads).clone(memory_format=torch.contiguous_format)
    count = heads.shape[-1] // size if heads.dim() == positions.dim() + 1 else heads.shape[-2]
    by_head = result.view(*positions.shape, count, size)
    rotated = by_head[..., rope_dim_offset : rope_dim_offset + cache.shape[1]]
    x, y = rotated.chunk(2, -1) if is_neox else (rotated[..., ::2], rotated[..., 1::2])
    x[...], y[...] = x * cosine - y * sine, y * cosine + x * sine
    return result


def causal_softmax_example(
    title: str, x: torch.Tensor, out: torch.Tensor, **options: Any
) -> Example:
    rows, columns = x.shape[-2:]
    hidden = ~torch.ones(rows, columns, dtype=torch.bool).tril(columns - rows)
    seen = wide(x).masked_fill(hidden, -INFINITY)
    return Example(
        title=title,
        arguments={"input": x},
        out=out,
        expected=torch.softmax(seen, -1).masked_fill(hidden, 0).to(out.dtype),
        tolerance=tolerance(out.dtype, ulps=128),
        **options,
    )


def causal_softmax_examples(dtype: torch.dtype) -> Examples:
    example = causal_softmax_example
    make = Maker(dtype, -8, 8)
    yield example("contiguous", make(2, 5, 5), make(2, 5, 5))
    yield example("more keys than queries", make(3, 7), make(3, 7))
    yield example("one query", make(2, 1, 9), make(2, 1, 9))
    yield example("one key", make(3, 1, 1), make(3, 1, 1))
    yield example("transposed", make(7, 4).t(), make(4, 7))
    yield example("sliced", make(6, 40)[::2, 1:34], make(3, 33))
    yield example("strided out", make(4, 9), make(9, 8)[:, ::2].t())
    yield example("heads apart", make(2, 5, 3, 6).transpose(1, 2), make(2, 3, 5, 6))
    yield example("expanded", make(1, 1, 6).expand(2, 4, 6), make(2, 4, 6))
    yield example("unaligned", make(100)[1:100].view(3, 33), make(101)[2:].view(3, 33))
    yield example("no heads", make(0, 3, 3), make(0, 3, 3))
    yield example("no queries", make(2, 0, 4), make(2, 0, 4))
    yield example("large", make(3, 130, 257), make(3, 130, 257))
    yield example("long rows", make(1, 2, 8191), make(1, 2, 8191))
    x = make(3, 5)
    yield example("in place", x, x, keeps_out=True)
    hostile = make(6, 6)
    hostile[:, 5] = NAN  # only the last row sees it
    hostile[0, 0], hostile[1, :2] = 1000.0, -INFINITY
    hostile[2, 1], hostile[3, 2], hostile[4, 0] = -INFINITY, NAN, INFINITY
    yield example("hostile", hostile, make(6, 6))


# Products.


def products(make: Maker) -> Iterator[tuple[str, torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Yields a title, the factors and the out."""
    yield "contiguous", make(4, 6), make(6, 5), make(4, 5)
    yield "odd", make(17, 33), make(33, 65), make(17, 65)
    yield "a row", make(1, 7), make(7, 5), make(1, 5)
    yield "a column", make(5, 7), make(7, 1), make(5, 1)
    yield "an outer product", make(5, 1), make(1, 9), make(5, 9)
    yield "transposed", make(33, 17).t(), make(65, 33).t(), make(17, 65)
    yield "sliced", make(10, 18)[::2, ::3], make(12, 8)[::2, 1:], make(5, 7)
    yield "strided out", make(4, 6), make(6, 5), make(5, 8)[:, ::2].t()
    yield "columns apart", make(4, 6), make(6, 5), make(4, 10)[:, ::2]
    yield "batches", make(2, 3, 4, 5), make(2, 3, 5, 6), make(2, 3, 4, 6)
    yield "broadcast batches", make(2, 1, 4, 5), make(3, 5, 6), make(2, 3, 4, 6)
    yield "one factor for all", make(3, 4, 5), make(5, 6), make(3, 4, 6)
    yield "expanded", make(4, 5).expand(3, 4, 5), make(1, 6).expand(3, 5, 6), make(3, 4, 6)
    yield (
        "batches apart",
        make(4, 3, 5).transpose(0, 1),
        make(3, 5, 6),
        make(4, 3, 6).transpose(0, 1),
    )
    yield "rows apart", make(23, 40)[:, :35], make(35, 60)[:, 1:50], make(23, 64)[:, :49]
    yield "unaligned", make(25)[1:].view(4, 6), make(32)[2:].view(6, 5), make(23)[3:].view(4, 5)
    yield "nothing to sum", make(3, 0), make(0, 4), make(3, 4)
    yield "no rows", make(0, 4), make(4, 5), make(0, 5)
    yield "no batches", make(0, 3, 4), make(4, 5), make(0, 3, 5)
    yield "large", make(130, 257), make(257, 129), make(130, 129)


def product_example(
    title: str, arguments: Arguments, out: torch.Tensor, exact: torch.Tensor, **options: Any
) -> Example:
    first, *_ = arguments.values()
    # Factors are 4 at most.
    terms = max(first.shape[-2:], default=1)
    return Example(
        title=title,
        arguments=arguments,
        out=out,
        expected=exact.to(out.dtype),
        tolerance=tolerance(out.dtype, size=16.0 * terms),
        **options,
    )


def matmul_example(title: str, x: torch.Tensor, y: torch.Tensor, out: torch.Tensor) -> Example:
    exact = torch.matmul(wide(x), wide(y))
    return product_example(title, {"input": x, "other": y}, out, exact)


def matmul_examples(dtype: torch.dtype) -> Examples:
    example = matmul_example
    make = Maker(dtype)
    for operands in products(make):
        yield example(*operands)
    yield example("vectors", make(7), make(14)[::2], make())
    yield example("a vector and a matrix", make(7), make(7, 5), make(5))
    yield example("a matrix and a vector", make(5, 7), make(7), make(5))
    yield example("a vector and batches", make(7), make(2, 7, 5), make(2, 5))
    yield example("batches and a vector", make(2, 3, 5, 7), make(7, 2)[:, 0], make(2, 3, 5))
    yield example("large batches", make(3, 130, 65), make(3, 129, 65).mT, make(3, 130, 129))
    if dtype in (torch.float32, torch.float64):
        # From so many elements on, the CPU's own kernels are faster than a BLAS.
        yield example("few rows", make(3, 1023), make(1023, 1030), make(3, 1030))
        yield example("few rows, along", make(3, 1023), make(1030, 1023).t(), make(3, 1030))


def gemm_examples(dtype: torch.dtype) -> Examples:
    make = Maker(dtype)
    for title, a, b, out in products(make):
        yield product_example(title, {"a": a, "b": b}, out, wide(a) @ wide(b))
    yield from transposing_gemm_examples(make)
    numbers = ((2, 0), (1, 1), (0.5, -2.5)) if dtype.is_floating_point else ((2, 0), (1, 3))
    for alpha, beta in numbers:
        for title, a, b, out in products(make):
            if title in ("odd", "strided out", "broadcast batches", "nothing to sum", "no rows"):
                exact = alpha * (wide(a) @ wide(b)) + beta * wide(out)
                arguments = {"a": a, "b": b, "alpha": alpha, "beta": beta}
                title = f"{title}, alpha {alpha}, beta {beta}"
                yield product_example(title, arguments, out, exact, keeps_out=beta != 0)


def transposing_gemm_examples(make: Maker) -> Examples:
    for trans_a in (False, True):
        for trans_b in (False, True):
            flags = {"trans_a": trans_a, "trans_b": trans_b}
            a, b = make(2, 17, 33), make(33, 20)
            exact = wide(a) @ wide(b)
            for title, given in (("contiguous", torch.Tensor.contiguous), ("views", torch.clone)):
                arguments = {
                    "a": given(a.mT) if trans_a else a,
                    "b": given(b.mT) if trans_b else b,
                    **flags,
                }
                yield product_example(f"{title}, {flags}", arguments, make(2, 17, 20), exact)


def linear_example(
    title: str, x: torch.Tensor, weight: torch.Tensor, *others: torch.Tensor
) -> Example:
    *bias, out = others
    exact = wide(x) @ wide(weight).t()
    arguments = {"input": x, "weight": weight}
    if bias:
        exact = exact + wide(bias[0])
        arguments["bias"] = bias[0]
    return product_example(title, arguments, out, exact)


def linear_examples(dtype: torch.dtype) -> Examples:
    example = linear_example
    make = Maker(dtype)
    yield example("contiguous", make(4, 6), make(5, 6), make(5), make(4, 5))
    yield example("no bias", make(4, 6), make(5, 6), make(4, 5))
    yield example("a vector", make(6), make(5, 6), make(5), make(5))
    yield example("one output", make(4, 6), make(6), make(4))
    yield example("and its bias", make(4, 6), make(6), make(), make(4))
    yield example("batches", make(2, 3, 6), make(5, 6), make(5), make(2, 3, 5))
    yield example("odd", make(17, 33), make(65, 33), make(65), make(17, 65))
    yield example("transposed", make(33, 17).t(), make(33, 65).t(), make(65), make(17, 65))
    yield example("sliced", make(10, 18)[::2, ::3], make(10, 7)[::2, 1:], make(10)[::2], make(5, 5))
    yield example("strided out", make(4, 6), make(5, 6), make(5), make(5, 8)[:, ::2].t())
    yield example(
        "batches apart", make(3, 2, 6).transpose(0, 1), make(5, 6), make(5), make(2, 3, 5)
    )
    yield example("expanded", make(1, 6).expand(4, 6), make(5, 6), make(1).expand(5), make(4, 5))
    yield example("nothing to sum", make(4, 0), make(5, 0), make(5), make(4, 5))
    yield example("no rows", make(0, 6), make(5, 6), make(5), make(0, 5))
    yield example("large", make(130, 257), make(129, 257), make(129), make(130, 129))
    yield example("whole vectors", make(24, 64), make(72, 64), make(72), make(24, 72))


# Cat.


def cat_example(title: str, dim: int, *operands: torch.Tensor) -> Example:
    *tensors, out = operands
    return Example(
        title=title,
        arguments={"tensors": tensors, "dim": dim},
        out=out,
        expected=torch.cat([each.clone() for each in tensors], dim),
    )


def cat_examples(dtype: torch.dtype) -> Examples:
    example = cat_example
    make = Maker(dtype, -50, 50)
    for dim, shape in ((0, (6, 4, 5)), (1, (2, 12, 5)), (-1, (2, 4, 15)), (-3, (6, 4, 5))):
        yield example(f"contiguous {dim}", dim, *(make(2, 4, 5) for _ in range(3)), make(*shape))
    yield example("sizes", 1, make(3, 1), make(3, 33), make(3, 0), make(3, 7), make(3, 41))
    yield example("one", 0, make(3, 4), make(3, 4))
    yield example("vectors", 0, make(3), make(5), make(8))
    yield example("legacy empty", 1, make(0), make(3, 4), make(0), make(3, 2), make(3, 6))
    yield example("all empty", 0, make(0), make(0), make(0))
    yield example("no elements", 1, make(0, 3), make(0, 4), make(0, 7))
    yield example("transposed", 0, make(5, 3).t(), make(5, 4).t(), make(7, 5))
    yield example("sliced", 1, make(6, 8)[::2, 1::2], make(3, 9)[:, 5:], make(3, 8))
    yield example("strided out", 0, make(3, 4), make(2, 4), make(4, 10)[:, ::2].t())
    yield example("expanded", 0, make(1, 4).expand(3, 4), make().expand(2, 4), make(5, 4))
    yield example("unaligned", 0, make(34)[1:], make(35)[2:], make(69)[3:])
    yield example("many", 1, *(make(2, n % 3) for n in range(100)), make(2, 99))
    yield example("rows", -1, make(8, 9, 2), make(8, 9, 0), make(8, 9, 3), make(8, 9, 5))
    yield example("many rows", 1, make(9001, 3), make(9001, 1), make(9001, 2), make(9001, 6))
    yield example("large", 1, make(3, 20_011), make(3, 33), make(3, 30_001), make(3, 50_045))


# Wrong operands for an out of (3, 4).


def operands_of(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    make = Maker(dtype)
    return [make(*shape) for shape in shapes]


def wrong_elementwise(*names: str) -> Iterator[Arguments]:
    for shapes in (((3, 5), (3, 4)), ((3, 4), (2, 4)), ((2, 3, 4), (3, 4))):
        yield dict(zip(names, operands_of(*shapes), strict=True))
    x, y = operands_of((3, 4), (3, 4))
    for other in (torch.int32, torch.complex64):
        yield dict(zip(names, (x, y.to(other)), strict=True))


def wrong_halves() -> Iterator[Arguments]:
    for shape in ((3, 4), (3, 7), (3, 9), (4, 8), (1, 8), (8,), (1, 3, 8), (8, 3), ()):
        yield {"input": torch.ones(shape)}
    for dtype in (torch.float64, torch.float16, torch.int32, torch.complex64):
        yield {"input": torch.ones(3, 8, dtype=dtype)}


def wrong_cast() -> Iterator[Arguments]:
    for shape in ((3, 5), (2, 3, 4), (3, 4, 1)):
        yield {"input": torch.ones(shape)}
    yield {"input": torch.ones(3, 4, dtype=torch.complex64)}


def wrong_cat() -> Iterator[Arguments]:
    yield {"tensors": []}
    for shapes, dim in (
        (((1, 4), (1, 4)), 0),
        (((1, 4), (2, 5)), 0),
        (((3, 2), (2, 2)), 1),
        (((1, 4), (4,)), 0),
        (((1, 4), (2, 4)), 2),
        (((1, 4), (2, 4)), -3),
    ):
        yield {"tensors": operands_of(*shapes), "dim": dim}
    yield {"tensors": [torch.ones(1, 4), torch.ones(2, 4, dtype=torch.int32)]}


def wrong_causal_softmax() -> Iterator[Arguments]:
    for shape in ((4, 3), (4,), (), (3, 5), (1, 3, 4)):
        yield {"input": torch.ones(shape)}
    yield {"input": torch.ones(3, 4, dtype=torch.int32)}
    yield {"input": torch.ones(3, 4, dtype=torch.complex64)}


def wrong_rms_norm() -> Iterator[Arguments]:
    for shapes in (((3, 4), (3,)), ((3, 4), (3, 4)), ((3, 4), ()), ((4,), (4,)), ((), ())):
        yield dict(zip(("input", "weight"), operands_of(*shapes), strict=True))
    yield {"input": torch.ones(3, 4), "weight": torch.ones(4, dtype=torch.int32)}
    yield {"input": torch.ones(3, 4, dtype=torch.complex64), "weight": torch.ones(4)}


def wrong_added_norm() -> Iterator[Arguments]:
    names = ("input", "residual", "weight")
    for shapes in (((3, 4), (3, 4), (3,)), ((3, 4), (4,), (4,)), ((3, 4), (3, 4), (3, 4))):
        yield dict(zip(names, operands_of(*shapes), strict=True))
    x, residual, weight = operands_of((3, 4), (3, 4), (4,))
    for wrong in (torch.int32, torch.float16, torch.float64):
        yield {"input": x, "residual": residual.to(wrong), "weight": weight}
        yield {"input": x, "residual": residual, "weight": weight.to(wrong)}


def wrong_rotary_embedding() -> Iterator[Arguments]:
    positions, cache = torch.tensor([0, 2, 1]), torch.ones(3, 4)
    right = {"positions": positions, "head_size": 4, "cos_sin_cache": cache}
    for wrong in (
        {"positions": positions[:2]},
        {"positions": torch.zeros(3, 4, dtype=torch.int64)},
        {"positions": torch.tensor(0)},
        {"positions": positions.float()},
        {"positions": positions.short()},
        {"head_size": 3},
        {"head_size": 0},
        {"head_size": -4},
        {"cos_sin_cache": cache[0]},
        {"cos_sin_cache": cache[:, :3]},
        {"cos_sin_cache": torch.ones(3, 6)},
        {"cos_sin_cache": cache.double()},
        {"cos_sin_cache": cache.half()},
        {"rope_dim_offset": 1},
        {"rope_dim_offset": -1},
        {"rope_dim_offset": 2**63 - 1},
        {"key": torch.ones(2, 4)},
        {"key": torch.ones(3, 2, 2)},
        {"key": torch.ones(3, 4).half()},
        {"key": torch.ones(3, 1).expand(3, 4)},
    ):
        yield right | wrong


def wrong_products(*names: str) -> Iterator[Arguments]:
    for shapes in (
        ((3, 2), (3, 4)),
        ((2, 2), (2, 4)),
        ((2, 3, 2), (2, 4)),
        ((3, 2), ()),
        ((3, 2), (2,)),
    ):
        yield dict(zip(names, operands_of(*shapes), strict=True))
    x, y = operands_of((3, 2), (2, 4))
    for other in (torch.float64, torch.complex64):
        yield dict(zip(names, (x, y.to(other)), strict=True))


def wrong_gemm() -> Iterator[Arguments]:
    yield from wrong_products("a", "b")
    for flags in ({"trans_a": True}, {"trans_b": True}):
        yield {"a": torch.ones(3, 2), "b": torch.ones(2, 4), **flags}
    yield {"a": torch.ones(2), "b": torch.ones(2, 4)}


def wrong_linear() -> Iterator[Arguments]:
    for shapes in (
        ((3, 2), (4, 3)),
        ((3, 2), (2, 4)),
        ((3, 2), (2,)),
        ((), (4, 2)),
        ((2, 2), (4, 2)),
    ):
        yield dict(zip(("input", "weight"), operands_of(*shapes), strict=True))
    x, weight = operands_of((3, 2), (4, 2))
    for bias in (torch.ones(3), torch.ones(3, 4), torch.ones(4, dtype=torch.int32)):
        yield {"input": x, "weight": weight, "bias": bias}
    yield {"input": x.to(torch.complex64), "weight": weight}


# Every operator with a native slot needs an entry; test_every_native_operator_is_tested.
OPERATORS = {
    "add": Operator(
        examples=add_examples,
        wrong=lambda: wrong_elementwise("input", "other"),
        dtypes=FLOATS + INTEGERS,
        required=COMMON + INTEGERS,
        recorded="add.out",
    ),
    "add_rms_norm": Operator(examples=add_rms_norm_examples, wrong=wrong_added_norm, dtypes=COMMON),
    "cast": Operator(examples=cast_examples, wrong=wrong_cast, dtypes=ANY, required=ANY),
    "cat": Operator(
        examples=cat_examples, wrong=wrong_cat, dtypes=ANY, required=ANY, recorded="cat.out"
    ),
    "causal_softmax": Operator(examples=causal_softmax_examples, wrong=wrong_causal_softmax),
    "flash_attn_varlen_func": Operator(examples=varlen_examples, wrong=wrong_varlen, dtypes=COMMON),
    "flash_attn_with_kvcache": Operator(
        examples=cached_examples, wrong=wrong_cached, dtypes=COMMON
    ),
    "fused_add_rms_norm": Operator(
        examples=fused_add_rms_norm_examples, wrong=wrong_added_norm, dtypes=COMMON
    ),
    "gelu_and_mul": Operator(
        examples=partial(halves_examples, activation=gelu), wrong=wrong_halves, dtypes=COMMON
    ),
    "gelu_tanh_and_mul": Operator(
        examples=partial(halves_examples, activation=gelu_tanh), wrong=wrong_halves, dtypes=COMMON
    ),
    "gemm": Operator(
        examples=gemm_examples, wrong=wrong_gemm, dtypes=(*FLOATS, torch.int32, torch.int64)
    ),
    "grouped_gemm": Operator(
        examples=grouped_gemm_examples, wrong=wrong_grouped_gemm, dtypes=COMMON
    ),
    "grouped_topk": Operator(
        examples=grouped_topk_examples, wrong=wrong_grouped_topk, dtypes=COMMON
    ),
    "linear": Operator(
        examples=linear_examples,
        wrong=wrong_linear,
        dtypes=(*FLOATS, torch.int32, torch.int64),
        recorded="linear.out",
    ),
    "matmul": Operator(
        examples=matmul_examples,
        wrong=lambda: wrong_products("input", "other"),
        dtypes=(*FLOATS, torch.int32, torch.int64),
        recorded="matmul.out",
    ),
    "moe_align_block_size": Operator(
        examples=alignment_examples,
        wrong=wrong_alignment,
        dtypes=(torch.int32, torch.int64),
        required=(torch.int32, torch.int64),
    ),
    "moe_sum": Operator(examples=expert_sum_examples, wrong=wrong_expert_sum, dtypes=COMMON),
    "mul": Operator(
        examples=mul_examples,
        wrong=lambda: wrong_elementwise("input", "other"),
        dtypes=FLOATS + INTEGERS,
        required=COMMON + INTEGERS,
        recorded="mul.out",
    ),
    "reshape_and_cache": Operator(
        examples=reshape_and_cache_examples, wrong=wrong_paged_cache, dtypes=ANY, required=ANY
    ),
    "reshape_and_cache_flash": Operator(
        examples=reshape_and_cache_flash_examples, wrong=wrong_flash_cache, dtypes=ANY, required=ANY
    ),
    "scaled_dot_product_attention": Operator(
        examples=attention_examples, wrong=wrong_attention, dtypes=COMMON
    ),
    "rms_norm": Operator(examples=rms_norm_examples, wrong=wrong_rms_norm),
    "rotary_embedding": Operator(
        examples=rotary_embedding_examples, wrong=wrong_rotary_embedding, dtypes=COMMON
    ),
    "scaled_softmax": Operator(examples=scaled_softmax_examples, wrong=wrong_scaled_softmax),
    "silu_and_mul": Operator(
        examples=partial(halves_examples, activation=silu), wrong=wrong_halves, dtypes=COMMON
    ),
    "topk_sigmoid": Operator(
        examples=partial(topk_examples, function="sigmoid"), wrong=wrong_topk, dtypes=COMMON
    ),
    "topk_softmax": Operator(
        examples=partial(topk_examples, function="softmax"), wrong=wrong_topk, dtypes=COMMON
    ),
    "scaled_mm": Operator(examples=scaled_mm_examples, wrong=wrong_scaled_mm, dtypes=COMMON),
    "dynamic_per_token_scaled_fp8_quant": Operator(
        examples=tokens_float8_examples, wrong=partial(wrong_tokens, FLOAT8), dtypes=COMMON
    ),
    "dynamic_scaled_fp8_quant": Operator(
        examples=dynamic_float8_examples, wrong=partial(wrong_static, FLOAT8), dtypes=COMMON
    ),
    "dynamic_scaled_int8_quant": Operator(
        examples=tokens_int8_examples, wrong=partial(wrong_tokens, INT8), dtypes=COMMON
    ),
    "per_token_group_fp8_quant": Operator(
        examples=groups_float8_examples, wrong=partial(wrong_groups, FLOAT8), dtypes=COMMON
    ),
    "per_token_group_quant_int8": Operator(
        examples=groups_int8_examples, wrong=partial(wrong_groups, INT8), dtypes=COMMON
    ),
    "static_scaled_fp8_quant": Operator(
        examples=static_float8_examples, wrong=partial(wrong_static, FLOAT8), dtypes=COMMON
    ),
    "static_scaled_int8_quant": Operator(
        examples=static_int8_examples, wrong=partial(wrong_static, INT8), dtypes=COMMON
    ),
    "swiglu": Operator(examples=swiglu_examples, wrong=lambda: wrong_elementwise("input", "gate")),
    "top_k_top_p_sampling_from_logits": Operator(
        examples=sampling_examples, wrong=wrong_sampling, dtypes=COMMON
    ),
}
