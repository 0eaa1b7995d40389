"""Calls of the library beside the same calls of torch's own Python API.

Small CPU tensors, so that the cost of the call is what differs; all arities, and every kind
of argument: no tensor, scalars, lists, names, several outs, in-place, lists of tensors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Case:
    """Two expressions over the names of ``operands()``, ``ops`` and ``torch``.

    ``ours`` ends where a keyword for the slot can be appended; ``variant`` tells calls of one
    operator apart.
    """

    ours: str
    reference: str
    variant: str = ""

    @property
    def name(self) -> str:
        """As ATen calls it: "_foreach_mul_(list)"."""
        operator = self.ours.removeprefix("ops.").partition("(")[0]
        name = operator.replace("internal_", "_").replace("_inplace", "_")
        return f"{name}({self.variant})" if self.variant else name

    def with_slot(self, slot: int) -> str:
        return self.ours.removesuffix(")") + f", implementation_index={slot})"


def operands() -> dict[str, Any]:
    """Fresh tensors of 16 elements or fewer, always of the same values; outs hold no result."""
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> torch.Tensor:
        return torch.rand(shape, generator=generator) * 0.8 + 0.1

    def integers(*shape: int) -> torch.Tensor:
        return torch.randint(0, 4, shape, generator=generator)

    def out(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.full(shape, 77, dtype=dtype)

    return {
        **{name: random(4, 4) for name in ("x", "y", "z")},
        "target": random(4, 4) - 0.5,
        "b_left": random(2, 2, 4),
        "b_right": random(2, 4, 2),
        "b": random(2, 2, 2),
        "b_out": out(2, 2, 2),
        "v": random(4),
        "sorted": torch.tensor([0.2, 0.4, 0.6, 0.8]),
        "minus_one": torch.full((4, 4), -1.0),
        "mask": integers(4, 4) > 1,
        **{name: integers(4, 4) for name in ("n", "k", "columns")},
        "rows": torch.tensor([3, 1, 0, 2]),
        "xs": [random(4) for _ in range(3)],
        "negs": [torch.full((4,), -1.0) for _ in range(3)],
        "o": out(4, 4),
        **{name: out(4) for name in ("ov", "pv")},
        "number": out(),
        "twice": out(8, 4),
        "stacked": out(2, 4, 4),
        "two": out(4, 2),
        "two_int": out(4, 2, dtype=torch.int64),
        "oi": out(4, 4, dtype=torch.int64),
        "oi32": out(4, 4, dtype=torch.int32),
        "oiv": out(4, dtype=torch.int64),
        "ob": torch.zeros(4, 4, dtype=torch.bool),
        "ov_double": out(4, dtype=torch.float64),
    }


CASES = (
    # No tensor among the inputs.
    Case("ops.arange(4, ov)", "torch.arange(4, out=ov)"),
    Case("ops.eye(4, o)", "torch.eye(4, out=o)"),
    Case("ops.full((4, 4), 1.5, o)", "torch.full((4, 4), 1.5, out=o)"),
    Case("ops.linspace(0, 1, 4, ov)", "torch.linspace(0, 1, 4, out=ov)"),
    # One.
    Case("ops.abs(x, o)", "torch.abs(x, out=o)"),
    Case("ops.exp(x, o)", "torch.exp(x, out=o)"),
    Case("ops.sigmoid(x, o)", "torch.sigmoid(x, out=o)"),
    Case("ops.clamp(x, 0.25, 0.75, o)", "torch.clamp(x, 0.25, 0.75, out=o)"),
    Case("ops.pow(x, 2, o)", "torch.pow(x, 2, out=o)", "scalar"),
    Case("ops.round(x, o, decimals=1)", "torch.round(x, decimals=1, out=o)"),
    Case("ops.tril(x, 1, o)", "torch.tril(x, 1, out=o)"),
    Case("ops.linalg_inv(x, o)", "torch.linalg.inv(x, out=o)"),
    # Two.
    Case("ops.add(x, y, o)", "torch.add(x, y, out=o)"),
    Case("ops.add(x, y, o, alpha=2)", "torch.add(x, y, alpha=2, out=o)", "alpha"),
    Case("ops.mul(x, y, o)", "torch.mul(x, y, out=o)"),
    Case("ops.maximum(x, y, o)", "torch.maximum(x, y, out=o)"),
    Case("ops.eq(n, k, ob)", "torch.eq(n, k, out=ob)"),
    Case("ops.bitwise_and(n, k, oi)", "torch.bitwise_and(n, k, out=oi)"),
    Case("ops.mm(x, y, o)", "torch.mm(x, y, out=o)"),
    Case("ops.mv(x, v, ov)", "torch.mv(x, v, out=ov)"),
    Case(
        'ops.div(x, y, o, rounding_mode="floor")',
        'torch.div(x, y, rounding_mode="floor", out=o)',
        "rounding_mode",
    ),
    Case("ops.gather(x, 1, columns, o)", "torch.gather(x, 1, columns, out=o)"),
    Case("ops.index_select(x, 0, rows, o)", "torch.index_select(x, 0, rows, out=o)"),
    Case("ops.bucketize(x, sorted, oi)", "torch.bucketize(x, sorted, out=oi)"),
    # Three.
    Case("ops.addmm(x, y, z, o)", "torch.addmm(x, y, z, out=o)"),
    Case("ops.addcmul(x, y, z, o, value=0.5)", "torch.addcmul(x, y, z, value=0.5, out=o)"),
    Case("ops.lerp(x, y, z, o)", "torch.lerp(x, y, z, out=o)"),
    Case("ops.where(mask, x, y, o)", "torch.where(mask, x, y, out=o)"),
    Case("ops.baddbmm(b, b_left, b_right, b_out)", "torch.baddbmm(b, b_left, b_right, out=b_out)"),
    Case("ops.scatter(x, 1, columns, y, o)", "torch.scatter(x, 1, columns, y, out=o)"),
    Case(
        'ops.scatter_reduce(x, 1, columns, y, "amax", o)',
        'torch.scatter_reduce(x, 1, columns, y, "amax", out=o)',
    ),
    Case("ops.index_add(x, 0, rows, y, o)", "torch.index_add(x, 0, rows, y, out=o)"),
    # Lists of tensors.
    Case("ops.cat([x, y], 0, twice)", "torch.cat([x, y], 0, out=twice)"),
    Case("ops.stack((x, y), 0, stacked)", "torch.stack((x, y), 0, out=stacked)"),
    # Reductions: dimensions, their lists, a dtype.
    Case("ops.sum(x, (0, 1), number)", "torch.sum(x, (0, 1), out=number)", "dims"),
    Case(
        "ops.sum(x, 1, False, ov_double, dtype=torch.float64)",
        "torch.sum(x, 1, False, dtype=torch.float64, out=ov_double)",
        "dtype",
    ),
    Case("ops.amax(x, 1, ov)", "torch.amax(x, 1, out=ov)"),
    Case("ops.mean(x, 1, True, ov.view(4, 1))", "torch.mean(x, 1, True, out=ov.view(4, 1))"),
    Case("ops.argmax(x, 1, oiv)", "torch.argmax(x, 1, out=oiv)"),
    Case("ops.cumsum(x, 0, o)", "torch.cumsum(x, 0, out=o)"),
    Case("ops.softmax(x, 1, o)", "torch.softmax(x, 1, out=o)"),
    Case("ops.logsumexp(x, (1,), ov)", "torch.logsumexp(x, (1,), out=ov)"),
    # Several outs.
    Case("ops.max(x, 1, False, ov, oiv)", "torch.max(x, 1, False, out=(ov, oiv))", "dim"),
    Case("ops.sort(x, 1, True, o, oi)", "torch.sort(x, 1, True, out=(o, oi))"),
    Case("ops.topk(x, 2, 1, two, two_int)", "torch.topk(x, 2, 1, out=(two, two_int))"),
    Case("ops.aminmax(x, ov, pv, dim=1)", "torch.aminmax(x, dim=1, out=(ov, pv))"),
    Case("ops.frexp(x, o, oi32)", "torch.frexp(x, out=(o, oi32))"),
    # In-place: nothing that grows, so that the thousandth call costs what the first one does.
    Case("ops.mul_inplace(target, minus_one)", "target.mul_(minus_one)"),
    Case("ops.clamp_inplace(target, 0.25, 0.75)", "target.clamp_(0.25, 0.75)"),
    Case("ops.fill_inplace(target, 0.5)", "target.fill_(0.5)"),
    Case("ops.zero_inplace(target)", "target.zero_()"),
    Case("ops.relu_inplace(target)", "torch.relu_(target)"),
    Case("ops.masked_fill_inplace(target, mask, 0.5)", "target.masked_fill_(mask, 0.5)"),
    Case("ops.copy_inplace(target, x)", "target.copy_(x)"),
    Case("ops.index_put_inplace(target, (rows,), y)", "target.index_put_((rows,), y)"),
    # Lists of tensors, in-place.
    Case("ops.internal_foreach_mul_inplace(xs, -1.0)", "torch._foreach_mul_(xs, -1.0)", "scalar"),
    Case("ops.internal_foreach_mul_inplace(xs, negs)", "torch._foreach_mul_(xs, negs)", "list"),
)
