"""Times the operators of ``bench.kernel_cases`` in a process of its own; prints JSON.

``python -m bench.kernel_worker DEVICE ROUNDS``. Correctness comes first: an implementation whose
error against float64 is above that of torch's own by more than a tolerance is not timed. On an
accelerator the figures are those of device events, on operands that take turns.
"""

from __future__ import annotations

import functools
import itertools
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import infini.ops
import torch
from bench.kernel_cases import Case, bytes_moved, cases, moved
from codegen.slots import Slot

# The memory-bound ones have 1 M elements on the CPU. On an accelerator every operand is larger
# than its caches (the largest today have 128 MB).
SIZES = {"cpu": {"elements": 1 << 20, "size": 1024}, "cuda": {"elements": 1 << 26, "size": 8192}}
ROTATING_SETS = 3  # while one is in use, two others push it out of the caches
ROUND_SECONDS = 10e-3  # long against an event's resolution and a thread's wake-up


class WrongResultError(Exception):
    """An implementation does not compute what it should."""


class Timing:
    """The implementations of one case, checked, and their seconds per call, one per round."""

    def __init__(self, case: Case, device: str) -> None:
        self.case = case
        self.device = device
        operands = [case.operands(device, seed) for seed in range(ROTATING_SETS)]
        inputs, out = operands[0]
        self.bytes = bytes_moved(inputs, out)
        self.calls = {"torch": [functools.partial(case.reference, *i, o) for i, o in operands]}
        function = getattr(infini.ops, case.operator)
        for slot in slots(case.operator, device):
            name = f"slot {slot}"
            self.calls[name] = [
                functools.partial(function, *i, o, implementation_index=slot) for i, o in operands
            ]
            check(case, name, self.calls[name][0], inputs, out)
        if not case.flops:
            # What the memory can do: as many bytes, read and written by torch's own copy.
            source = torch.empty(self.bytes // 2, dtype=torch.uint8, device=device)
            target = torch.empty_like(source)
            self.calls["copy"] = [functools.partial(target.copy_, source)]
        self.loops = {name: self._loop_size(name) for name in self.calls}
        self.seconds: dict[str, list[float]] = {name: [] for name in self.calls}

    def time_round(self, order: int) -> None:
        """Times every implementation once; ``order`` is 1, or -1 for the last one first."""
        for name in list(self.calls)[::order]:
            loops = self.loops[name]
            # Untimed first: the other side's threads spin for a while when they have nothing to do.
            self._time(name, loops)
            self.seconds[name].append(self._time(name, loops) / loops)

    def _loop_size(self, name: str) -> int:
        loops = ROTATING_SETS
        while self._time(name, loops) < ROUND_SECONDS:
            loops *= 2
        return loops

    def _time(self, name: str, loops: int) -> float:
        calls = itertools.islice(itertools.cycle(self.calls[name]), loops)
        if self.device == "cpu":
            start = time.perf_counter()
            for call in calls:
                call()
            return time.perf_counter() - start
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        begin.record()
        for call in calls:
            call()
        end.record()
        end.synchronize()
        return 1e-3 * float(begin.elapsed_time(end))


def slots(operator: str, device: str) -> list[int]:
    """The active slots that are not torch's."""
    name = "".join(part.title() for part in operator.split("_"))
    active: list[int] = getattr(infini.ops, name).active_implementation_indices(device)
    return [slot for slot in active if slot != Slot.TORCH]


def check(
    case: Case, name: str, call: Callable[[], object], inputs: tuple[Any, ...], out: torch.Tensor
) -> None:
    """Raises unless the call computes the case's exact value, within its dtype's precision."""
    expected = case.exact(*(moved(value, "cpu", torch.float64) for value in inputs))
    out.fill_(float("nan"))
    call()
    error = (out.cpu().double() - expected).abs().max()
    precision = max(torch.finfo(dtype).eps for dtype in (case.dtype, case.out_dtype))
    if case.flops:
        # Sums of random signs of as many products as the length of a row.
        precision *= 4
    allowed = 4 * precision * max(1.0, expected.abs().max().item())
    if not error <= allowed:  # also where it is NaN
        raise WrongResultError(f"{name}: off by {error:.3g} from float64, allowed {allowed:.3g}")


def main(device: str, rounds: int) -> None:
    if device == "cuda" and not torch.cuda.is_available():
        json.dump({"device": None, "cases": []}, sys.stdout)
        return
    timed, failed = [], []
    for case in cases(**SIZES[device]):
        # One at a time: the operands of all do not fit.
        try:
            timing = Timing(case, device)
        except Exception as error:  # one case that fails must not hide the others
            failed.append({"case": case.name, "error": f"{type(error).__name__}: {error}"})
            continue
        for index in range(rounds):
            timing.time_round(1 if index % 2 else -1)
        figures = {"bytes": timing.bytes, "flops": case.flops, "seconds": timing.seconds}
        timed.append({"case": case.name, "operator": case.operator, **figures})
    name = torch.cuda.get_device_name() if device == "cuda" else "the CPU"
    json.dump({"device": name, "cases": [*timed, *failed]}, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
