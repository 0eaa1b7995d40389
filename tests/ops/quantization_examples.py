"""Example calls and results of quantization and scaled products, for native_examples.py.

Results of quantization are compared bit by bit. The expected ones are computed by torch in float32,
in the operations that the operators are defined by: in float64 the ties would be others.
test_quantization.py compares with float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from native_operands import HOSTILE, INFINITY, Example, Maker, in_margin, tolerance

import torch

FLOAT8, INT8 = torch.float8_e4m3fn, torch.int8
LARGEST = 448.0  # of float8_e4m3fn
LEAST_SCALE = 1 / (LARGEST * 512)
Tensor: TypeAlias = torch.Tensor


def to_float8(values: Tensor, least: float = -LARGEST, most: float = LARGEST) -> Tensor:
    """The nearest numbers within the limits. Torch's conversion makes NaN of what is too large."""
    return values.clamp(least, most).to(FLOAT8)


def to_int8(
    values: Tensor, azp: Tensor | int = 0, least: float = -128, most: float = 127
) -> Tensor:
    rounded = torch.where(values.isnan(), 0, values.round()) + azp
    return rounded.clamp(least, most).to(INT8)


def magnitude(x: Tensor) -> Tensor:
    """The largest one of each row, of which NaN has none."""
    return torch.where(x.isnan(), 0, x.float().abs()).amax(-1, keepdim=True)


def exact_tokens_float8(x: Tensor, scale_ub: float = INFINITY) -> tuple[Tensor, Tensor]:
    scale = (magnitude(x).clamp(max=scale_ub) / LARGEST).clamp(min=LEAST_SCALE)
    return to_float8(x.float() / scale), scale


def exact_tokens_int8(x: Tensor) -> tuple[Tensor, Tensor]:
    most = magnitude(x)
    # A number divided by a tensor is multiplied by its reciprocal.
    factor = torch.where(most == 0, 0, torch.full_like(most, 127) / most)
    return to_int8(x.float() * factor), most / 127


def exact_tokens_azp(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    wide = x.float()
    least = torch.where(x.isnan(), INFINITY, wide).amin(-1, keepdim=True)
    most = torch.where(x.isnan(), -INFINITY, wide).amax(-1, keepdim=True)
    least, most = (torch.where(least > most, 0, each) for each in (least, most))
    scale = torch.where(least == most, least.abs(), (most - least) / 255)
    has_inverse = scale >= torch.finfo(torch.float32).tiny
    factor = torch.where(has_inverse, 1 / scale, 0)
    azp = (-128 - torch.where(has_inverse, least / scale, 0)).round().nan_to_num(-128)
    return to_int8(wide * factor, azp), scale, azp.int()


def exact_groups(
    x: Tensor, size: int, eps: float, least: float, most: float, *, is_power: bool = False
) -> tuple[Tensor, Tensor]:
    groups = x.float().unflatten(-1, (x.shape[-1] // size, size))
    scale = magnitude(groups).clamp(min=eps) / most
    if is_power:
        fraction, exponent = torch.frexp(scale.clamp(min=1e-10))
        exponent = exponent - (fraction == 0.5).int()
        scale = torch.where(scale.isinf(), scale, torch.ldexp(torch.ones_like(scale), exponent))
    convert = to_float8 if most > 127 else to_int8
    return convert(groups / scale, least=least, most=most).flatten(-2), scale.squeeze(-1)


@dataclass(frozen=True, kw_only=True)
class Input:
    """An input, and the memory of its quantized elements."""

    title: str
    x: Tensor
    result: Tensor
    has_rows: bool = True  # and these are not empty


def inputs(dtype: torch.dtype, quantized: torch.dtype) -> Iterator[Input]:
    make, out = Maker(dtype), Maker(quantized)
    yield Input(title="contiguous", x=make(3, 4, 24), result=out(3, 4, 24))
    yield Input(title="one row", x=make(40), result=out(40))
    yield Input(title="one column", x=make(4, 8)[:, ::8], result=out(4, 1))
    yield Input(title="transposed", x=make(16, 5).t(), result=out(5, 16))
    yield Input(title="sliced", x=make(6, 80)[::2, 1:73], result=out(3, 72))
    yield Input(title="every other column", x=make(3, 2400)[:, ::2], result=out(3, 1200))
    yield Input(title="strided result", x=make(4, 16), result=out(16, 8)[:, ::2].t())
    yield Input(title="columns apart", x=make(3, 1200), result=out(3, 2400)[:, ::2])
    yield Input(title="rows apart", x=make(5, 40), result=out(5, 64)[:, 1:41])
    yield Input(title="dimensions apart", x=make(3, 2, 16).transpose(0, 1), result=out(2, 3, 16))
    yield Input(title="expanded", x=make(1, 8).expand(5, 8), result=out(5, 8))
    yield Input(title="unaligned", x=make(121)[1:].view(3, 40), result=out(123)[3:].view(3, 40))
    yield Input(title="no rows", x=make(0, 8), result=out(0, 8))
    yield Input(title="zeros", x=make(3, 8) * 0, result=out(3, 8))
    yield Input(title="small", x=in_margin(make(3, 8) * 1e-4), result=out(3, 8))
    yield Input(title="one number", x=make(5, 1).expand(5, 16), result=out(5, 16))
    yield Input(title="large", x=make(65, 1032), result=out(65, 1032))
    hostile = make(len(HOSTILE), 32)
    hostile[:, 5] = make.of(HOSTILE)
    hostile[3] = float("nan")
    yield Input(title="hostile", x=hostile, result=out(len(HOSTILE), 32))
    if dtype.itemsize == 2:
        every = torch.arange(2**16, dtype=torch.int32).short().view(dtype).view(256, 256)
        yield Input(title="every number", x=in_margin(every), result=out(256, 256))
    yield Input(title="no elements", x=make(3, 0), result=out(3, 0), has_rows=False)
    yield Input(title="no dimensions", x=make(), result=out(), has_rows=False)


def one(value: float, dtype: torch.dtype = torch.float32) -> Tensor:
    return in_margin(torch.tensor([value], dtype=dtype))


def static_float8_examples(dtype: torch.dtype) -> Iterator[Example]:
    for each in inputs(dtype, FLOAT8):
        for scale in (0.0123, 0.25, 100.0):
            yield Example(
                title=f"{each.title}, scale {scale}",
                arguments={"input": each.x, "scale": one(scale)},
                name="result",
                out=each.result,
                expected=to_float8(each.x.float() * (1 / torch.tensor(scale))),
            )


def static_int8_examples(dtype: torch.dtype) -> Iterator[Example]:
    for each in inputs(dtype, INT8):
        for scale, azp in ((0.0123, None), (0.25, 3), (0.25, -1000), (100.0, 127)):
            given = {} if azp is None else {"azp": one(azp, torch.int32)}
            yield Example(
                title=f"{each.title}, scale {scale}, azp {azp}",
                arguments={"input": each.x, "scale": one(scale), **given},
                name="result",
                out=each.result,
                expected=to_int8(each.x.float() / torch.tensor(scale), azp or 0),
            )


def dynamic_float8_examples(dtype: torch.dtype) -> Iterator[Example]:
    for each in inputs(dtype, FLOAT8):
        x = each.x.float()
        scale = magnitude(x.flatten() if x.numel() else torch.zeros(1)) / LARGEST
        scale = torch.where(scale < torch.finfo(torch.float32).tiny, LEAST_SCALE, scale)
        yield Example(
            title=each.title,
            arguments={"input": each.x},
            name="result",
            out=each.result,
            expected=to_float8(x * (1 / scale)).view(x.shape),
            others={"scale": (one(0), scale)},
        )


Exact = Callable[[Tensor], tuple[Tensor, ...]]


def _of_tokens(dtype: torch.dtype, exact: Exact, names: tuple[str, ...]) -> Iterator[Example]:
    """With scales in memory of several strides, of shape [tokens, 1] by turns."""
    quantized = FLOAT8 if exact is exact_tokens_float8 else INT8
    for number, each in enumerate(inputs(dtype, quantized)):
        if not each.has_rows:
            continue
        result, *scales = exact(each.x)
        if number % 2:
            scales = [values.reshape(-1, 1) for values in scales]
        yield Example(
            title=each.title,
            arguments={"input": each.x},
            name="result",
            out=each.result,
            expected=result,
            others={
                name: (Maker(values.dtype)(*values.shape[:-1], 3)[..., 1:2], values)
                for name, values in zip(names, scales, strict=True)
            },
        )


def tokens_float8_examples(dtype: torch.dtype) -> Iterator[Example]:
    yield from _of_tokens(dtype, exact_tokens_float8, ("scale",))
    make, out = Maker(dtype), Maker(FLOAT8)
    for bound in (2.0, 100.0, 0.0):
        x = make(3, 40)
        result, scale = exact_tokens_float8(x, bound)
        yield Example(
            title=f"scale_ub {bound}",
            arguments={"input": x, "scale_ub": one(bound)},
            name="result",
            out=out(3, 40),
            expected=result,
            others={"scale": (Maker(torch.float32)(3, 1), scale)},
        )


def tokens_int8_examples(dtype: torch.dtype) -> Iterator[Example]:
    yield from _of_tokens(dtype, exact_tokens_int8, ("scale",))
    yield from _of_tokens(dtype, exact_tokens_azp, ("scale", "azp"))


def _of_groups(
    dtype: torch.dtype, quantized: torch.dtype, limits: tuple[str, str], **options: Any
) -> Iterator[Example]:
    least, most = (-128.0, 127.0) if quantized is INT8 else (-LARGEST, LARGEST)
    for number, each in enumerate(inputs(dtype, quantized)):
        columns = each.x.shape[-1] if each.x.dim() else 0
        if not columns and each.title != "no elements":
            continue
        for size in {1: (1,), 0: (8,)}.get(columns, (8, columns)):
            own = (least / 2, most / 2) if number == 1 else (least, most)
            result, scale = exact_groups(
                each.x, size, 1e-10, *own, is_power=options.get("scale_ue8m0", False)
            )
            # As vLLM's column-major scales, by turns.
            memory = Maker(torch.float32)(scale.shape[-1], *scale.shape[:-1]).movedim(0, -1)
            yield Example(
                title=f"{each.title}, groups of {size}",
                arguments={
                    "input": each.x,
                    "group_size": size,
                    "eps": 1e-10,
                    **dict(zip(limits, own, strict=True)),
                    **options,
                },
                name="output_q",
                out=each.result,
                expected=result,
                others={
                    "output_s": (memory if number % 2 else memory.contiguous(), scale),
                },
            )


def groups_float8_examples(dtype: torch.dtype) -> Iterator[Example]:
    for options in ({}, {"scale_ue8m0": True}):
        yield from _of_groups(dtype, FLOAT8, ("fp8_min", "fp8_max"), **options)


def groups_int8_examples(dtype: torch.dtype) -> Iterator[Example]:
    yield from _of_groups(dtype, INT8, ("int8_min", "int8_max"))


Arguments = dict[str, Any]


def _wrong(right: Arguments, *changes: Arguments) -> Iterator[Arguments]:
    yield right | {"input": torch.ones(3, 4, dtype=torch.float64)}
    yield right | {"input": torch.ones(3, 5)}
    yield right | {"input": torch.ones(4)}
    for name, value in right.items():
        if isinstance(value, torch.Tensor) and name != "input":
            yield right | {name: value.to(torch.float16)}
            yield right | {name: torch.zeros(2, *value.shape, dtype=value.dtype)}
    for change in changes:
        yield right | change


def wrong_static(quantized: torch.dtype) -> Iterator[Arguments]:
    result = torch.zeros(3, 4, dtype=quantized)
    right: Arguments = {"input": torch.ones(3, 4), "result": result, "scale": torch.ones(1)}
    given = {"azp": torch.zeros(1, dtype=torch.int32)} if quantized is INT8 else {}
    yield from _wrong(right | given, {"scale": torch.ones(3, 1)}, {"scale": torch.ones(0)})


def wrong_tokens(quantized: torch.dtype) -> Iterator[Arguments]:
    result = torch.zeros(3, 4, dtype=quantized)
    right: Arguments = {"input": torch.ones(3, 4), "result": result, "scale": torch.ones(3, 1)}
    given: Arguments = {"scale_ub": torch.ones(1)}
    if quantized is INT8:
        given = {"azp": torch.zeros(3, 1, dtype=torch.int32)}
    empty = {"input": torch.ones(3, 0), "result": torch.zeros(3, 0, dtype=quantized)}
    yield from _wrong(right | given, {"scale": torch.ones(3)}, {"scale": torch.ones(1, 3)}, empty)


def wrong_groups(quantized: torch.dtype) -> Iterator[Arguments]:
    least, most = ("int8_min", "int8_max") if quantized is INT8 else ("fp8_min", "fp8_max")
    right = {
        "input": torch.ones(3, 4),
        "group_size": 2,
        "eps": 1e-10,
        least: -100.0,
        most: 100.0,
        "output_q": torch.zeros(3, 4, dtype=quantized),
        "output_s": torch.zeros(3, 2),
    }
    sizes = ({"group_size": size} for size in (0, -2, 3, 4))
    limits = ({least: -449.0}, {most: 449.0}, {least: 1.0}, {most: 0.0}, {most: float("nan")})
    yield from _wrong(right, *sizes, *limits, {"eps": 0.0}, {"output_s": torch.zeros(3, 1)})


def exact_product(
    a: Tensor, b: Tensor, a_scales: Tensor, b_scales: Tensor, bias: Tensor | None = None
) -> Tensor:
    """In float64, which has the sums of int8 exactly."""
    product = a.double() @ b.double()
    scaled = a_scales.double().reshape(-1, 1) * (b_scales.double().reshape(1, -1) * product)
    return scaled if bias is None else scaled + bias.double()


def scaled_mm_examples(dtype: torch.dtype) -> Iterator[Example]:
    scales, biases = Maker(torch.float32, 0.001, 0.01), Maker(dtype)

    def example(
        title: str,
        a: Tensor,
        b: Tensor,
        a_scales: Tensor,
        b_scales: Tensor,
        bias: Tensor | None = None,
        out: Tensor | None = None,
    ) -> Example:
        arguments = {"a": a, "b": b, "a_scales": a_scales, "b_scales": b_scales}
        exact = exact_product(a, b, a_scales, b_scales, bias)
        sizes = exact_product(a.double().abs(), b.double().abs(), a_scales, b_scales)
        largest = float(sizes.max()) if sizes.numel() else 0.0
        return Example(
            title=title,
            arguments=arguments if bias is None else arguments | {"bias": bias},
            out=biases(*exact.shape) if out is None else out,
            expected=exact.to(dtype),
            tolerance=tolerance(dtype, ulps=8, size=8 * largest),
        )

    for quantized in (FLOAT8, INT8):
        make = Maker(quantized, -128, 128)
        name = str(quantized).removeprefix("torch.")
        yield example(f"{name}", make(3, 16), make(16, 4), scales(1), scales(1))
        for m, n, k in (
            *((1, 1, 1), (1, 40, 33), (5, 33, 300), (13, 70, 1024), (4, 17, 1025), (7, 5, 2500)),
            *((30, 130, 64), (0, 4, 5), (3, 0, 5), (3, 4, 0)),
        ):
            title = f"{name}, {m} x {n} x {k}"
            a, b = make(m, k), make(n, k).t()  # as weights are
            yield example(title, a, b, scales(m, 1), scales(1, n), biases(n))
            yield example(f"{title}, scales of all", a, make(k, n), scales(), scales(1, 1))
            out = biases(n, 2 * m)[:, ::2].t()
            apart = make(m, 2 * k)[:, ::2], make(k, 3 * n)[:, ::3]
            strided = scales(m, 3)[:, 1], scales(2 * n)[::2], biases(2 * n)[::2]
            yield example(f"{title}, strided", *apart, *strided, out)
        large = make(130, 300), make(300, 257), scales(130, 1), scales(257)
        yield example(f"large, {name}", *large, biases(257))
    a, b = (in_margin(torch.full(shape, -128, dtype=INT8)) for shape in ((9, 3000), (3000, 33)))
    yield example("the largest sums", a, b, scales(1), scales(33))


def wrong_scaled_mm() -> Iterator[Arguments]:
    a, b = torch.ones(3, 2).to(INT8), torch.ones(2, 4).to(INT8)
    right: Arguments = {"a": a, "b": b, "a_scales": torch.ones(3, 1), "b_scales": torch.ones(4)}
    for wrong in (
        {"a": a.to(FLOAT8)},
        {"a": a.float(), "b": b.float()},
        {"a": a.byte(), "b": b.byte()},
        {"a": a[0]},
        {"b": b.unsqueeze(0)},
        {"b": b[:1]},
        {"b": b[:, :3]},
        {"a_scales": torch.ones(2)},
        {"a_scales": torch.ones(0)},
        {"a_scales": torch.ones(3, 1).double()},
        {"b_scales": torch.ones(2, 2)},
        {"b_scales": torch.ones(4).half()},
        {"bias": torch.ones(3)},
        {"bias": torch.ones(1, 4)},
        {"bias": torch.ones(4).half()},
    ):
        yield right | wrong
