"""Calls torch's operators on a simulated device and the CPU, and prints where they differ.

``python opinfo.py FOLDER [SAMPLES]``: FOLDER has the package ``simulated_device``. SAMPLES limits
the samples of each entry of OpInfo. As torch's ``test_compare_cpu`` does, it makes samples on the
device, copies them, and compares with a tolerance of 0.001. Needs ``expecttest``.
"""

from __future__ import annotations

import itertools
import json
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

import torch

NAME = "acme"
# The values of these are whatever was in the memory.
UNINITIALIZED = ("empty", "new_empty")


class LastOperator(TorchDispatchMode):  # type: ignore[misc]
    """Records the operator that reached a device last."""

    def __init__(self) -> None:
        super().__init__()
        self.name = ""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.name = func.name().removeprefix("aten::")
        return func(*args, **kwargs or {})


class Draws(TorchDispatchMode):  # type: ignore[misc]
    """Whether an operator draws random numbers, whatever the seed."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen |= torch.Tag.nondeterministic_seeded in func.tags
        return func(*args, **kwargs or {})


def on_cpu(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with the same strides, and the elements between them."""
    is_lazy = tensor.is_conj() or tensor.is_neg() or tensor._is_zerotensor()
    if tensor.layout != torch.strided or is_lazy:
        return tensor.detach().cpu()
    with torch.no_grad():
        flat = torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(
            tensor.untyped_storage()
        )
        return flat.cpu().as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())


def fresh(value: Any, device: str, *, requires_grad: bool = False) -> Any:
    """Copies of the tensors on the device; tensors of the CPU stay there."""

    def copied(tensor: torch.Tensor) -> torch.Tensor:
        host = on_cpu(tensor)
        if device != "cpu" and tensor.device.type == NAME:
            if host.layout == torch.strided and not host.is_conj():
                flat = host.new_empty(0).set_(host.untyped_storage()).to(device)
                host = flat.as_strided(host.size(), host.stride(), host.storage_offset())
            else:
                host = host.to(device)
        return host.requires_grad_(requires_grad and tensor.requires_grad)

    value = tree_map_only(torch.Tensor, copied, value)
    if device != "cpu":
        return value
    value = tree_map_only(torch.device, lambda _: torch.device("cpu"), value)
    return tree_map_only(str, lambda text: "cpu" if text == NAME else text, value)


def forms(op: Any, *, with_gradient: bool) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The ways to call an operator, and the functions that return all results."""
    yield "functional", op
    if with_gradient:
        yield "gradient", partial(gradients, op)
    if op.inplace_variant:
        yield "in-place", op.inplace_variant
    if op.supports_out:
        yield "out=", partial(into_out, op)


def gradients(op: Any, *args: Any, **kwargs: Any) -> Any:
    results = [
        each
        for each in tree_leaves(op(*args, **kwargs))
        if isinstance(each, torch.Tensor) and each.requires_grad
    ]
    inputs = [
        each
        for each in tree_leaves((args, kwargs))
        if isinstance(each, torch.Tensor) and each.requires_grad
    ]
    if not results:
        return []
    weights = [torch.ones_like(each) for each in results]
    return torch.autograd.grad(results, inputs, weights, allow_unused=True)


def into_out(op: Any, *args: Any, **kwargs: Any) -> Any:
    with torch.no_grad():
        results = op(*args, **kwargs)
        # With empty_like, out= of fft.ihfft2 gives other values at each call, on the CPU too.
        out = tree_map_only(torch.Tensor, torch.zeros_like, results)
        out = tuple(out) if isinstance(out, (list, tuple)) else out
        return op(*args, **kwargs, out=out)


def call(function: Callable[..., Any], arguments: Any, device: str, *, form: str) -> Any:
    args, kwargs = fresh(arguments, device, requires_grad=form == "gradient")
    torch.manual_seed(1)
    results = tree_leaves(function(*args, **kwargs))
    return tree_map_only(torch.Tensor, on_cpu, results)


def same(actual: Any, expected: Any, *, values: bool = True) -> None:
    assert len(actual) == len(expected), f"{len(actual)} results, expected {len(expected)}"
    for one, other in zip(actual, expected, strict=True):
        if values:
            if isinstance(other, torch.Tensor) and other.is_floating_point():
                one, other = one.double(), other.double()
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3, equal_nan=True)
        elif isinstance(other, torch.Tensor):
            assert (one.shape, one.dtype) == (other.shape, other.dtype), f"{one.shape} {one.dtype}"


def check(op: Any, form: str, function: Callable[..., Any], arguments: Any) -> bool:
    """Compare one call with the CPU's; False if the CPU refuses it."""
    try:
        expected = call(function, arguments, "cpu", form=form)
    except Exception:
        return False
    actual = call(function, arguments, NAME, form=form)
    same(actual, expected, values=False)
    if op.name.startswith(UNINITIALIZED):
        return True
    with Draws() as draws:
        call(function, arguments, "cpu", form=form)
    if draws.seen:
        same(call(function, arguments, NAME, form=form), actual)
    else:
        same(actual, expected)
    return True


def failing_operator(function: Callable[..., Any], arguments: Any, form: str) -> str:
    """The operator that throws; "" if none does."""
    with LastOperator() as last:
        try:
            call(function, arguments, NAME, form=form)
        except Exception:
            return str(last.name)
    return ""


def run(most: int | None) -> dict[str, Any]:
    from torch.testing._internal.common_methods_invocations import op_db

    failures: list[dict[str, str]] = []
    refused: list[str] = []
    entries = samples = calls = 0
    for op in op_db:
        of_cpu = op.supported_dtypes("cpu")
        if not of_cpu:  # compiled at run time for CUDA
            continue
        dtype = next(
            (each for each in (torch.float32, torch.int64) if each in of_cpu),
            min(of_cpu, key=str),
        )
        torch.manual_seed(0)
        with_gradient = dtype.is_floating_point and op.supports_autograd
        checked = False
        for sample in itertools.islice(
            op.sample_inputs(NAME, dtype, requires_grad=with_gradient), most
        ):
            arguments = ((sample.input, *sample.args), sample.kwargs)
            checks = 0
            for form, function in forms(op, with_gradient=with_gradient):
                try:
                    checks += check(op, form, function, arguments)
                except Exception as error:
                    checks += 1
                    message = " ".join(f"{type(error).__name__}: {error}".split())[:300]
                    failures.append(
                        {
                            "entry": op.formatted_name,
                            "form": form,
                            "error": message,
                            "operator": failing_operator(function, arguments, form),
                        }
                    )
            samples += checks > 0
            calls += checks
            checked |= checks > 0
        entries += checked
        if not checked:
            refused.append(op.formatted_name)
    return {
        "entries": entries,
        "samples": samples,
        "calls": calls,
        "failures": failures,
        "refused_by_the_cpu": refused,
    }


if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])
    import simulated_device

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    simulated_device.load(NAME)
    print(json.dumps(run(int(sys.argv[2]) if len(sys.argv) > 2 else None)))
