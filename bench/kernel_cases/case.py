"""What a case of ``bench.kernel_worker`` is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch


@dataclass(frozen=True)
class KernelCase:
    """One operator with operands of one shape and dtype.

    ``inputs`` makes the arguments in the operator's order. ``exact`` takes them and returns the
    result on the CPU in float64, or a tuple of them. ``reference`` takes them and ``out``, and
    writes the result into it with torch's own kernels. If it is None, ``exact`` also takes ``out``.
    """

    operator: str
    inputs: Callable[[], tuple[Any, ...]]
    exact: Callable[..., torch.Tensor | tuple[torch.Tensor, ...]]
    title: str
    size: int
    """Elements of the output, or rows of a product."""
    dtype: torch.dtype
    out_dtype: torch.dtype
    reference: Callable[..., object] | None = None
    flops: int = 0  # 0: memory-bound
    other_dtype: torch.dtype | None = None
    """Of further outs with floats, if it is not ``out_dtype``: scales."""
    in_place: tuple[int, ...] = ()
    """The arguments that are written. There are no outs then, and ``reference`` takes none."""

    @property
    def name(self) -> str:
        return f"{self.operator} {self.title}"

    def operands(self, device: str, seed: int) -> tuple[tuple[Any, ...], tuple[torch.Tensor, ...]]:
        """Inputs and outs on ``device``, always the same for one seed."""
        torch.manual_seed(seed)
        inputs = self.inputs()
        outs: tuple[torch.Tensor, ...] = ()
        if not self.in_place:
            results = self.results([move(value, "meta") for value in inputs])
            outs = tuple(
                torch.empty(
                    each.shape,
                    dtype=dtype if each.is_floating_point() else each.dtype,
                    device=device,
                )
                for each, dtype in zip(results, self._dtypes(len(results)), strict=True)
            )
        return tuple(move(value, device) for value in inputs), outs

    def _dtypes(self, count: int) -> list[torch.dtype]:
        return [self.out_dtype] + (count - 1) * [self.other_dtype or self.out_dtype]

    def results(self, inputs: Sequence[Any]) -> tuple[torch.Tensor, ...]:
        """What ``exact`` computes from the inputs."""
        exact = self.exact(*inputs)
        return exact if isinstance(exact, tuple) else (exact,)

    def written(self, inputs: Sequence[Any], outs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The tensors that a call writes, in the order of ``results``."""
        return [inputs[place] for place in self.in_place] or list(outs)

    def torch_call(self, inputs: Sequence[Any], outs: Sequence[torch.Tensor]) -> partial[object]:
        """The same by torch's own kernels."""
        call = partial(self.reference or self.exact, *inputs)
        return partial(call, out=outs[0] if len(outs) == 1 else outs) if outs else call


def move(value: Any, device: str, dtype: torch.dtype | None = None) -> Any:
    """Move a tensor, a list of them, or any other value to a device, and floats to a dtype."""
    if isinstance(value, torch.Tensor):
        return value.to(device, dtype if value.is_floating_point() else None)
    return [move(each, device, dtype) for each in value] if isinstance(value, list) else value


def counted(count: int, noun: str) -> str:
    """ "1 row" or "2 rows"."""
    return f"{count} {noun}{'s' * (count > 1)}"


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def readable(count: int) -> str:
    """A power of two, by powers of 1024: "64 k"."""
    return f"{count >> 20} M" if count >> 20 else f"{count >> 10} k"
