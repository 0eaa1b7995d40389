"""Hand-written and Triton kernels of a CUDA device: streams, threads and graphs.

Runs where ``--device`` is a cuda device that is there.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from evidence import is_absent
from installed import check_slot, hand_written_slots
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


def of_halves(activation: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., Any]:
    return lambda x: activation(x[:, :COLUMNS]) * x[:, COLUMNS:]


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
    "gelu_and_mul": (((ROWS, 2 * COLUMNS),), (), of_halves(functional.gelu)),
    "gelu_tanh_and_mul": (
        ((ROWS, 2 * COLUMNS),),
        (),
        of_halves(partial(functional.gelu, approximate="tanh")),
    ),
    "silu_and_mul": (((ROWS, 2 * COLUMNS),), (), of_halves(functional.silu)),
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
    if "kernel" in metafunc.fixturenames:
        device = metafunc.config.getoption("device")
        kernels = kernels_of(device) if device == "cuda" and not is_absent(device) else []
        metafunc.parametrize("kernel", kernels, ids=[f"{k.operator}-slot{k.slot}" for k in kernels])


def kernels_of(device: str) -> list[Kernel]:
    """The kernels of this build; it may have been built without some of the operators."""
    return [Kernel(name, slot) for name in CALLS for slot in hand_written_slots(name, device)]


def test_an_operator_that_the_build_lacks_has_no_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """It must not end the collection of this file either."""
    kernels = kernels_of("cpu")
    monkeypatch.setitem(CALLS, "in_no_build", ((), (), torch.clone))
    assert kernels_of("cpu") == kernels


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
