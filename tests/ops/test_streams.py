"""Hand-written and Triton kernels of a CUDA device: streams, threads and graphs.

Runs where ``--device`` is a cuda device that is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest
from evidence import is_absent
from installed import TORCH_SLOT, check_slot, class_name
from torch.nn import functional

import infini.ops
import torch

ROWS, COLUMNS = 256, 512
# Much longer than the launch of a kernel: half a second on a device of 2 GHz.
DELAY_CYCLES = 1_000_000_000


def causal_softmax(x: torch.Tensor) -> torch.Tensor:
    rows, columns = x.shape
    hidden = torch.ones(rows, columns, dtype=torch.bool, device=x.device).triu(columns - rows + 1)
    return torch.softmax(x.masked_fill(hidden, -torch.inf), -1)


# Operator -> the shapes of its inputs, its other arguments, and what it computes.
CALLS: dict[str, tuple[tuple[tuple[int, ...], ...], tuple[Any, ...], Callable[..., Any]]] = {
    "add": (((ROWS, COLUMNS),) * 2, (), torch.add),
    "mul": (((ROWS, COLUMNS),) * 2, (), torch.mul),
    "gemm": (((ROWS, COLUMNS), (COLUMNS, ROWS)), (), torch.mm),
    "matmul": (((ROWS, COLUMNS), (COLUMNS, ROWS)), (), torch.matmul),
    "linear": (((ROWS, COLUMNS), (ROWS, COLUMNS), (ROWS,)), (), functional.linear),
    "cat": (((ROWS, COLUMNS),) * 2, (1,), torch.cat),
    "cast": (((ROWS, COLUMNS),), (), torch.Tensor.clone),
    "causal_softmax": (((ROWS, COLUMNS),), (), causal_softmax),
    "rms_norm": (
        ((ROWS, COLUMNS), (COLUMNS,)),
        (1e-6,),
        lambda x, weight, eps: functional.rms_norm(x, (COLUMNS,), weight, eps),
    ),
    "swiglu": (((ROWS, COLUMNS),) * 2, (), lambda x, gate: x * functional.silu(gate)),
}


@dataclass(frozen=True)
class Kernel:
    """One operator at one slot."""

    operator: str
    slot: int

    def operands(self, device: str) -> Operands:
        shapes, others, reference = CALLS[self.operator]
        tensors = [torch.randn(*shape, device=device) for shape in shapes]
        positional = (tensors,) if self.operator == "cat" else tuple(tensors)
        arguments = (*positional, *others)
        return Operands(self, tensors, arguments, torch.zeros_like(reference(*arguments)))


@dataclass(frozen=True)
class Operands:
    """The arguments of a call; ``tensors`` are the inputs among them."""

    kernel: Kernel
    tensors: list[torch.Tensor]
    arguments: tuple[Any, ...]
    out: torch.Tensor

    def call(self, **options: Any) -> None:
        function: Any = getattr(infini.ops, self.kernel.operator)
        function(*self.arguments, self.out, implementation_index=self.kernel.slot, **options)
        check_slot(self.kernel.operator, self.kernel.slot)

    def refill(self) -> None:
        """Gives the inputs new values, on the current stream."""
        for tensor in self.tensors:
            tensor.normal_()

    def check(self) -> None:
        expected = CALLS[self.kernel.operator][2](*self.arguments)
        torch.testing.assert_close(self.out, expected, rtol=1e-4, atol=1e-4)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    kernels = list(_kernels(metafunc.config.getoption("device")))
    metafunc.parametrize("kernel", kernels, ids=[f"{k.operator}-slot{k.slot}" for k in kernels])


def _kernels(device: str) -> Iterator[Kernel]:
    if device != "cuda" or is_absent(device):
        return
    for operator in CALLS:
        operator_class = getattr(infini.ops, class_name(operator))
        for slot in operator_class.active_implementation_indices(device):
            if slot != TORCH_SLOT:
                yield Kernel(operator, slot)


def test_it_runs_on_the_stream_that_is_given(device: str, kernel: Kernel) -> None:
    """On another stream, the kernel would not wait for the inputs and would use old values."""
    operands = kernel.operands(device)
    stream = torch.cuda.Stream(device)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(DELAY_CYCLES)
        operands.refill()
    operands.call(stream=stream.cuda_stream)
    torch.cuda.synchronize()
    operands.check()


def test_it_runs_on_torchs_current_stream(device: str, kernel: Kernel) -> None:
    operands = kernel.operands(device)
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream(device)):
        torch.cuda._sleep(DELAY_CYCLES)
        operands.refill()
        operands.call()
    torch.cuda.synchronize()
    operands.check()


def test_eight_threads_compute_what_one_does(device: str, kernel: Kernel) -> None:
    work = [kernel.operands(device) for _ in range(8)]
    torch.cuda.synchronize()

    def run(operands: Operands) -> None:
        with torch.cuda.stream(torch.cuda.Stream(device)):
            for _ in range(50):
                operands.call()

    with ThreadPoolExecutor(len(work)) as executor:
        list(executor.map(run, work))
    torch.cuda.synchronize()
    for operands in work:
        operands.check()


def test_a_graph_replays_it(device: str, kernel: Kernel) -> None:
    operands = kernel.operands(device)
    operands.call()  # loads the kernel and its state between calls
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        operands.call()
    operands.refill()
    graph.replay()
    torch.cuda.synchronize()
    operands.check()
