"""Times calls of the library beside the same calls of torch's own Python API; prints JSON.

``python -m bench.python_worker ROUNDS``. The CPU tensors are small, so that the cost of the call
dominates. The calls cover all arities and every kind of argument: no tensor, scalars, lists, names,
several outs, in-place, lists of tensors. Prints an object for every call with its ``operator`` and
either ``error`` or ``ns``: for each variant, nanoseconds per call, one value per round.
"""

from __future__ import annotations

import json
import sys
import time
import timeit
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import infini.ops
import torch
from bench.interleaved import Interleaved
from codegen.slots import Slot

LOOP_SECONDS = 1e-3  # long compared with the clock's resolution, short compared with disturbances


@dataclass(frozen=True)
class Call:
    """Two expressions over the names of ``operands()``, ``ops`` and ``torch``.

    ``ours`` ends where a keyword for the slot can be appended. ``variant`` distinguishes calls of
    one operator.
    """

    ours: str
    reference: str
    variant: str = ""

    @property
    def name(self) -> str:
        """ATen's name: "_foreach_mul_(list)"."""
        operator = self.ours.removeprefix("ops.").partition("(")[0]
        name = operator.replace("internal_", "_").replace("_inplace", "_")
        return f"{name}({self.variant})" if self.variant else name


def operands() -> dict[str, Any]:
    """New tensors with at most 16 elements and constant values; the outs contain no result."""
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


CALLS = (
    # No tensor inputs.
    Call("ops.arange(4, ov)", "torch.arange(4, out=ov)"),
    Call("ops.eye(4, o)", "torch.eye(4, out=o)"),
    Call("ops.full((4, 4), 1.5, o)", "torch.full((4, 4), 1.5, out=o)"),
    Call("ops.linspace(0, 1, 4, ov)", "torch.linspace(0, 1, 4, out=ov)"),
    # One tensor input.
    Call("ops.abs(x, o)", "torch.abs(x, out=o)"),
    Call("ops.exp(x, o)", "torch.exp(x, out=o)"),
    Call("ops.sigmoid(x, o)", "torch.sigmoid(x, out=o)"),
    Call("ops.clamp(x, 0.25, 0.75, o)", "torch.clamp(x, 0.25, 0.75, out=o)"),
    Call("ops.pow(x, 2, o)", "torch.pow(x, 2, out=o)", "scalar"),
    Call("ops.round(x, o, decimals=1)", "torch.round(x, decimals=1, out=o)"),
    Call("ops.tril(x, 1, o)", "torch.tril(x, 1, out=o)"),
    Call("ops.linalg_inv(x, o)", "torch.linalg.inv(x, out=o)"),
    # Two tensor inputs.
    Call("ops.add(x, y, o)", "torch.add(x, y, out=o)"),
    Call("ops.add(x, y, o, alpha=2)", "torch.add(x, y, alpha=2, out=o)", "alpha"),
    Call("ops.mul(x, y, o)", "torch.mul(x, y, out=o)"),
    Call("ops.maximum(x, y, o)", "torch.maximum(x, y, out=o)"),
    Call("ops.eq(n, k, ob)", "torch.eq(n, k, out=ob)"),
    Call("ops.bitwise_and(n, k, oi)", "torch.bitwise_and(n, k, out=oi)"),
    Call("ops.mm(x, y, o)", "torch.mm(x, y, out=o)"),
    Call("ops.mv(x, v, ov)", "torch.mv(x, v, out=ov)"),
    Call(
        'ops.div(x, y, o, rounding_mode="floor")',
        'torch.div(x, y, rounding_mode="floor", out=o)',
        "rounding_mode",
    ),
    Call("ops.gather(x, 1, columns, o)", "torch.gather(x, 1, columns, out=o)"),
    Call("ops.index_select(x, 0, rows, o)", "torch.index_select(x, 0, rows, out=o)"),
    Call("ops.bucketize(x, sorted, oi)", "torch.bucketize(x, sorted, out=oi)"),
    # Three tensor inputs.
    Call("ops.addmm(x, y, z, o)", "torch.addmm(x, y, z, out=o)"),
    Call("ops.addcmul(x, y, z, o, value=0.5)", "torch.addcmul(x, y, z, value=0.5, out=o)"),
    Call("ops.lerp(x, y, z, o)", "torch.lerp(x, y, z, out=o)"),
    Call("ops.where(mask, x, y, o)", "torch.where(mask, x, y, out=o)"),
    Call("ops.baddbmm(b, b_left, b_right, b_out)", "torch.baddbmm(b, b_left, b_right, out=b_out)"),
    Call("ops.scatter(x, 1, columns, y, o)", "torch.scatter(x, 1, columns, y, out=o)"),
    Call(
        'ops.scatter_reduce(x, 1, columns, y, "amax", o)',
        'torch.scatter_reduce(x, 1, columns, y, "amax", out=o)',
    ),
    Call("ops.index_add(x, 0, rows, y, o)", "torch.index_add(x, 0, rows, y, out=o)"),
    # Lists of tensors.
    Call("ops.cat([x, y], 0, twice)", "torch.cat([x, y], 0, out=twice)"),
    Call("ops.stack((x, y), 0, stacked)", "torch.stack((x, y), 0, out=stacked)"),
    # Reductions: dimensions, their lists, a dtype.
    Call("ops.sum(x, (0, 1), number)", "torch.sum(x, (0, 1), out=number)", "dims"),
    Call(
        "ops.sum(x, 1, False, ov_double, dtype=torch.float64)",
        "torch.sum(x, 1, False, dtype=torch.float64, out=ov_double)",
        "dtype",
    ),
    Call("ops.amax(x, 1, ov)", "torch.amax(x, 1, out=ov)"),
    Call("ops.mean(x, 1, True, ov.view(4, 1))", "torch.mean(x, 1, True, out=ov.view(4, 1))"),
    Call("ops.argmax(x, 1, oiv)", "torch.argmax(x, 1, out=oiv)"),
    Call("ops.cumsum(x, 0, o)", "torch.cumsum(x, 0, out=o)"),
    Call("ops.softmax(x, 1, o)", "torch.softmax(x, 1, out=o)"),
    Call("ops.logsumexp(x, (1,), ov)", "torch.logsumexp(x, (1,), out=ov)"),
    # Several outs.
    Call("ops.max(x, 1, False, ov, oiv)", "torch.max(x, 1, False, out=(ov, oiv))", "dim"),
    Call("ops.sort(x, 1, True, o, oi)", "torch.sort(x, 1, True, out=(o, oi))"),
    Call("ops.topk(x, 2, 1, two, two_int)", "torch.topk(x, 2, 1, out=(two, two_int))"),
    Call("ops.aminmax(x, ov, pv, dim=1)", "torch.aminmax(x, dim=1, out=(ov, pv))"),
    Call("ops.frexp(x, o, oi32)", "torch.frexp(x, out=(o, oi32))"),
    # In-place, with stable values, so that the thousandth call costs as much as the first.
    Call("ops.mul_inplace(target, minus_one)", "target.mul_(minus_one)"),
    Call("ops.clamp_inplace(target, 0.25, 0.75)", "target.clamp_(0.25, 0.75)"),
    Call("ops.fill_inplace(target, 0.5)", "target.fill_(0.5)"),
    Call("ops.zero_inplace(target)", "target.zero_()"),
    Call("ops.relu_inplace(target)", "torch.relu_(target)"),
    Call("ops.masked_fill_inplace(target, mask, 0.5)", "target.masked_fill_(mask, 0.5)"),
    Call("ops.copy_inplace(target, x)", "target.copy_(x)"),
    Call("ops.index_put_inplace(target, (rows,), y)", "target.index_put_((rows,), y)"),
    # Lists of tensors, in-place.
    Call("ops.internal_foreach_mul_inplace(xs, -1.0)", "torch._foreach_mul_(xs, -1.0)", "scalar"),
    Call("ops.internal_foreach_mul_inplace(xs, negs)", "torch._foreach_mul_(xs, negs)", "list"),
)


class MismatchError(Exception):
    """Both calls ran, but with different results."""


def main(rounds: int) -> None:
    torch.set_num_threads(1)
    timings: dict[str, Interleaved] = {}
    failures: list[dict[str, str]] = []
    for call in CALLS:
        try:
            timings[call.name] = check_call(call)
        except Exception as error:  # a failing call must not hide the others
            message = f"{type(error).__name__}: {error}"
            failures.append({"operator": call.name, "error": message})
    # The outer loop is over rounds, so that a second of other load affects few rounds of every
    # operator instead of all rounds of a few.
    for index in range(rounds):
        for timing in timings.values():
            timing.time_round(index)
    figures = []
    for operator, timing in timings.items():
        times = {name: [round(1e9 * s, 1) for s in each] for name, each in timing.seconds.items()}
        figures.append({"operator": operator, "ns": times})
    json.dump([*figures, *failures], sys.stdout)


def check_call(call: Call) -> Interleaved:
    """The variants of a call; raise unless all change the operands in the same way."""
    reference = evaluate(call.reference)
    if all_equal(reference, evaluate("None")):
        raise MismatchError(f"{call.reference} changes no operand")
    slot = call.ours.removesuffix(")") + f", implementation_index={Slot.TORCH})"
    for expression in (call.ours, slot):
        if not all_equal(evaluate(expression), reference):
            raise MismatchError(f"{expression} does not do what {call.reference} does")
    variants = {"slot": slot, "default": call.ours, "reference": call.reference}
    # CPU time, so that waiting for a core does not count; all work is in one thread.
    timers = {
        name: timeit.Timer(expression, timer=time.thread_time, globals=evaluation_scope()).timeit
        for name, expression in variants.items()
    }
    return Interleaved(timers, LOOP_SECONDS, least_loops=2)


def evaluation_scope() -> dict[str, Any]:
    return {"torch": torch, "ops": infini.ops, **operands()}


def evaluate(expression: str) -> list[torch.Tensor]:
    """The operands after evaluating a call."""
    scope = evaluation_scope()
    eval(expression, scope)  # noqa: S307  (an expression of ``CALLS``)
    values = [scope[name] for name in operands()]
    return [each for value in values for each in (value if isinstance(value, list) else [value])]


def all_equal(left: Sequence[torch.Tensor], right: Sequence[torch.Tensor]) -> bool:
    """True if all tensors are equal bit for bit, or both NaN."""
    return all(map(torch.equal, left, right))


if __name__ == "__main__":
    main(int(sys.argv[1]))
