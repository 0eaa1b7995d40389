"""Times the calls of ``bench.python_cases`` in a process of its own; prints JSON.

``python -m bench.python_worker ROUNDS``. For every case an object with its ``operator`` and
either ``error`` or ``ns``: nanoseconds per call, one number per round, of each variant.
"""

from __future__ import annotations

import json
import sys
import time
import timeit
from collections.abc import Sequence
from typing import Any

import infini.ops
import torch
from bench.python_cases import CASES, Case, operands
from codegen.slots import Slot

LOOP_SECONDS = 1e-3  # long against the clock, short against what disturbs a shared machine


class MismatchError(Exception):
    """Both calls ran and did not do the same."""


class Timing:
    """The variants of one case, checked, and their nanoseconds per call, one per round."""

    def __init__(self, case: Case) -> None:
        check(case)
        variants = {
            "slot": case.with_slot(Slot.TORCH),
            "default": case.ours,
            "reference": case.reference,
        }
        # CPU time, so that waiting for a core is not counted; all of it is one thread's.
        self.timers = {
            name: timeit.Timer(expression, timer=time.thread_time, globals=names())
            for name, expression in variants.items()
        }
        self.loops = {name: loop_size(timer) for name, timer in self.timers.items()}
        self.nanoseconds: dict[str, list[float]] = {name: [] for name in variants}

    def time_round(self, order: int) -> None:
        """Times every variant once; ``order`` is 1, or -1 for the last one first."""
        for name in list(self.timers)[::order]:
            seconds = self.timers[name].timeit(self.loops[name])
            self.nanoseconds[name].append(round(1e9 * seconds / self.loops[name], 1))


def main(rounds: int) -> None:
    torch.set_num_threads(1)
    timings: dict[str, Timing] = {}
    errors: dict[str, str] = {}
    for case in CASES:
        try:
            timings[case.name] = Timing(case)
        except Exception as error:  # one case that fails must not hide the others
            errors[case.name] = f"{type(error).__name__}: {error}"
    # Rounds outside, so that a second of other load disturbs few rounds of every operator
    # rather than all rounds of a few.
    for index in range(rounds):
        for timing in timings.values():
            timing.time_round(1 if index % 2 else -1)
    figures = [{"operator": name, "ns": timing.nanoseconds} for name, timing in timings.items()]
    failures = [{"operator": name, "error": error} for name, error in errors.items()]
    json.dump([*figures, *failures], sys.stdout)


def names() -> dict[str, Any]:
    return {"torch": torch, "ops": infini.ops, **operands()}


def check(case: Case) -> None:
    """Raises unless all variants change the operands, and in the same way."""
    reference = results(case.reference)
    if same(reference, results("None")):
        raise MismatchError(f"{case.reference} changes no operand")
    for expression in (case.ours, case.with_slot(Slot.TORCH)):
        if not same(results(expression), reference):
            raise MismatchError(f"{expression} does not do what {case.reference} does")


def results(expression: str) -> list[torch.Tensor]:
    """The operands after a call."""
    scope = names()
    eval(expression, scope)  # noqa: S307  (an expression of bench.python_cases)
    values = [scope[name] for name in operands()]
    return [each for value in values for each in (value if isinstance(value, list) else [value])]


def same(left: Sequence[torch.Tensor], right: Sequence[torch.Tensor]) -> bool:
    """Whether all tensors are equal, bit for bit but for NaN."""
    return all(map(torch.equal, left, right))


def loop_size(timer: timeit.Timer) -> int:
    """Calls per round; also warms up."""
    calls, seconds = 1, 0.0
    while seconds < LOOP_SECONDS:
        calls *= 2
        seconds = timer.timeit(calls)
    return calls


if __name__ == "__main__":
    main(int(sys.argv[1]))
