"""Times hand-written and Triton operators beside torch's own kernels; prints JSON.

``python -m bench.kernel_worker DEVICE ROUNDS [CASE...]``, all cases if none is named. Results are
checked first: an implementation is not timed if its error against float64 exceeds torch's own error
by more than a tolerance. On an accelerator, device events measure the time; on one thread, the CPU
time does, so that other programs do not count. Each case makes new operands on request, so that a
timing can rotate through sets that together do not fit into the caches.
"""

from __future__ import annotations

import itertools
import json
import math
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import infini.ops
import torch
from bench.interleaved import Interleaved
from bench.kernel_cases import cases
from bench.kernel_cases.case import KernelCase, move
from codegen.slots import Slot

GRAPH_CALLS = 60  # in one CUDA graph
ROTATING_SETS = 3  # while one is used, the other two evict it from the caches
LARGE_BYTES = 1 << 26  # operands that evict themselves, and are compared with a copy
# Long against an event's resolution, and against the wake-up of a thread.
ROUND_SECONDS = {"cpu": 3e-3, "cuda": 10e-3}


def bytes_moved(inputs: tuple[Any, ...], written: Sequence[torch.Tensor]) -> int:
    """The minimum number of bytes that a memory-bound operator reads and writes."""
    values = [each for value in inputs for each in (value if isinstance(value, list) else [value])]
    tensors = [each for each in (*written, *values) if isinstance(each, torch.Tensor)]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


class WrongResultError(Exception):
    """An implementation computes a wrong result."""


def main(device: str, rounds: int, names: Sequence[str]) -> None:
    if device == "cuda" and not torch.cuda.is_available():
        json.dump({"device": None, "cases": []}, sys.stdout)
        return
    timed, failed = [], []
    # One at a time, because the operands of all cases do not fit.
    for case in cases(device):
        if names and case.name not in names:
            continue
        try:
            timed.append(figures(case, device, rounds))
        except Exception as error:  # a failing case must not hide the others
            failed.append({"case": case.name, "error": f"{type(error).__name__}: {error}"})
    name = torch.cuda.get_device_name() if device == "cuda" else "the CPU"
    json.dump({"device": name, "cases": [*timed, *failed]}, sys.stdout)


def figures(case: KernelCase, device: str, rounds: int) -> dict[str, Any]:
    """Check every implementation, then return its seconds per call, one value per round."""
    operands = [case.operands(device, 0)]
    inputs, outs = operands[0]
    moved_bytes = bytes_moved(inputs, case.written(inputs, outs))
    is_large = moved_bytes >= LARGE_BYTES and not case.flops
    if not case.flops and not is_large:
        operands += [case.operands(device, seed) for seed in range(1, ROTATING_SETS)]
    calls = {"torch": [case.torch_call(*each) for each in operands]}
    function = getattr(infini.ops, case.operator)
    for slot in slots(case.operator, device):
        name = f"slot {slot}"
        calls[name] = [partial(function, *i, *o, implementation_index=slot) for i, o in operands]
        check(case, name, calls[name][0], *operands[0])
    if is_large:
        # The memory's limit: torch's own copy of as many bytes, read and written.
        source = torch.empty(moved_bytes // 2, dtype=torch.uint8, device=device)
        calls["copy"] = [partial(torch.empty_like(source).copy_, source)]
    is_short = device == "cuda" and not is_large and not case.flops
    timers = {
        name: graph_timer(each) if is_short else partial(warm_seconds, device, each)
        for name, each in calls.items()
    }
    timing = Interleaved(timers, ROUND_SECONDS[device], least_loops=len(operands))
    for index in range(rounds):
        timing.time_round(index)
    about = {"case": case.name, "operator": case.operator, "size": case.size}
    return {**about, "bytes": moved_bytes, "flops": case.flops, "seconds": timing.seconds}


def slots(operator: str, device: str) -> list[int]:
    """The active slots without torch's."""
    name = "".join(part.title() for part in operator.split("_"))
    active: list[int] = getattr(infini.ops, name).active_implementation_indices(device)
    return [slot for slot in active if slot != Slot.TORCH]


def check(
    case: KernelCase,
    name: str,
    call: partial[object],
    inputs: Sequence[Any],
    outs: Sequence[torch.Tensor],
) -> None:
    """Raise unless the call computes the exact value within the precision of its dtype."""
    results = case.results([move(value, "cpu", torch.float64) for value in inputs])
    for out in outs:
        out.fill_(float("nan") if out.is_floating_point() else -1)
    call()
    for written, expected in zip(case.written(inputs, outs), results, strict=True):
        compare(case, name, inputs, written, expected)


def compare(
    case: KernelCase,
    name: str,
    inputs: Sequence[Any],
    written: torch.Tensor,
    expected: torch.Tensor,
) -> None:
    """Raise unless one of the written tensors has the exact values, within the precision."""
    error = (written.cpu().double() - expected).abs().max()
    precision, rounding = 0.0, 0.0
    if written.is_floating_point():
        precision = 4 * max(torch.finfo(dtype).eps for dtype in (case.dtype, written.dtype))
    elif expected.is_floating_point():  # quantized: computed in float32, then rounded
        precision, rounding = 4 * torch.finfo(torch.float32).eps, 0.5
    if case.flops:
        # Each of a row's products is added in float32. The roundings have random signs, so that
        # their sum grows with the square root of the number: https://doi.org/10.1137/18M1226312.
        precision += torch.finfo(torch.float32).eps * math.sqrt(inputs[0].shape[-1])
    allowed = precision * max(1.0, expected.abs().max().item()) + rounding
    if not error <= allowed:  # also true for NaN
        raise WrongResultError(f"{name}: off by {error:.3g} from float64, allowed {allowed:.3g}")


def warm_seconds(device: str, calls: Sequence[Callable[[], object]], loops: int) -> float:
    """The seconds of ``loops`` calls, in turns, after as many untimed calls."""
    turns = itertools.cycle(calls)
    # Untimed first: idle threads of the other implementation spin for a while.
    for call in itertools.islice(turns, loops):
        call()
    if device == "cpu":
        clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
        start = clock()
        for call in itertools.islice(turns, loops):
            call()
        return clock() - start
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    begin.record()
    for call in itertools.islice(turns, loops):
        call()
    end.record()
    end.synchronize()
    return 1e-3 * float(begin.elapsed_time(end))


def graph_timer(calls: Sequence[Callable[[], object]]) -> Callable[[int], float]:
    """``warm_seconds`` of a CUDA graph of the calls: short kernels take less than their launch."""
    for call in calls:
        call()  # once outside of the graph, to load the kernel
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in itertools.islice(itertools.cycle(calls), GRAPH_CALLS):
            call()

    def seconds(loops: int) -> float:
        replays = math.ceil(loops / GRAPH_CALLS)
        took = warm_seconds("cuda", [graph.replay], replays)
        return took * loops / (replays * GRAPH_CALLS)

    return seconds


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
