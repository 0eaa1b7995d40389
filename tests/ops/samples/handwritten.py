"""Arguments written by hand for overloads that no recorded call reaches.

Outputs are not written down: ``selection`` finds their dtype and shape. A call that torch
refuses, or that changes nothing, is dropped there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import torch

from . import aten_overload, dense_calls, layout_calls
from .dense_calls import Call
from .recorder import SEED, capture
from .values import Value


def handwritten(overload: str) -> list[dict[str, Value]]:
    """Returns the calls written down for an overload such as "add.out"."""
    calls = [*_table().get(overload, []), *_foreach(overload), *_fused_optimizer(overload)]
    known = {argument.name for argument in aten_overload(overload)._schema.arguments}
    return [
        {name: capture(value) for name, value in call.items() if name in known} for call in calls
    ]


@cache
def _table() -> dict[str, list[Call]]:
    table: dict[str, list[Call]] = {}
    for group in (*dense_calls.GROUPS, *layout_calls.GROUPS):
        torch.manual_seed(SEED)  # each, so that a change in one leaves the others alone
        for overloads, call in group():
            for overload in overloads.split():
                table.setdefault(overload, []).append(call)
    return table


# The value of an argument of a ``_foreach_`` overload, by its type in the schema.
_FOREACH: dict[str, Callable[[], Any]] = {
    "List[Tensor]": lambda: [torch.rand(3, 2) + 0.25, torch.rand(4) + 0.25],
    "List[number]": lambda: [0.5, 0.75],
    "Tensor": lambda: torch.tensor(0.5),
    "number": lambda: 0.5,
}


def _foreach(overload: str) -> Iterator[Call]:
    """Writes the arguments of a ``_foreach_`` overload from its schema alone."""
    if not overload.startswith("_foreach_"):
        return
    arguments = [
        argument
        for argument in aten_overload(overload)._schema.arguments
        if not argument.is_out and not argument.has_default_value()
    ]
    if all(str(argument.type) in _FOREACH for argument in arguments):
        torch.manual_seed(SEED)
        call = {argument.name: _FOREACH[str(argument.type)]() for argument in arguments}
        if "addc" in overload and "scalars" in call and overload.endswith(("Tensor", "Tensor_out")):
            call["scalars"] = torch.tensor([0.5, 0.75])
        yield call
        if len(call) == 1:
            yield {"self": [-tensor for tensor in call["self"]]}


_HYPERPARAMETERS = {
    "lr": 0.1,
    "lr_decay": 0.01,
    "beta1": 0.9,
    "beta2": 0.99,
    "weight_decay": 0.01,
    "momentum": 0.9,
    "dampening": 0.1,
    "eps": 1e-8,
    "amsgrad": False,
    "maximize": False,
    "nesterov": False,
    "is_first_step": False,
}


def _fused_optimizer(overload: str) -> Iterator[Call]:
    """Writes the arguments of a ``_fused_<optimizer>`` overload from its schema."""
    if not overload.startswith(("_fused_adam", "_fused_sgd", "_fused_adagrad")):
        return
    torch.manual_seed(SEED)
    names = [argument.name for argument in aten_overload(overload)._schema.arguments]
    call: Call = {name: [torch.rand(3), torch.rand(2, 2)] for name in names if name != "out"}
    call |= {name: value for name, value in _HYPERPARAMETERS.items() if name in names}
    if "tensor_lr" in overload:
        call["lr"] = torch.tensor(0.1)
    call |= dict.fromkeys(("grad_scale", "found_inf"))
    call |= {"max_exp_avg_sqs": []} if "max_exp_avg_sqs" in names else {}
    call |= {"state_steps": [torch.ones(()), torch.ones(())]} if "state_steps" in names else {}
    yield call
