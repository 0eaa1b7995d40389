"""A wrong call of any operator raises the exception that torch raises for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from harness import Arguments, error_of, invoke
from installed import TORCH_SLOT, Overload, all_overloads
from samples import Sample

import infini.ops
import torch

pytestmark = pytest.mark.filterwarnings("ignore")

# torch 2.13 reads or writes out of bounds, with another type or a missing dimension.
_UNSAFE = {"_logcumsumexp.out", "_fft_c2c.out", "_fft_c2r.out", "_fft_r2c.out"}
# Without the arguments at their default, another overload takes the call.
_SHADOWED = {"bernoulli.float_out", "range.out"}

Break = Callable[[Any], Any]


def _breaks(argument: Any, value: Any) -> Iterator[Break]:
    if isinstance(value, torch.Tensor):
        yield lambda tensor: tensor.to(torch.complex64)
        yield lambda tensor: torch.zeros(tensor.shape, dtype=torch.float8_e4m3fn)
        yield lambda tensor: torch.zeros(tensor.shape).to_sparse()
    elif argument.name in ("dim", "dims", "dim0", "dim1"):
        yield lambda dim: [100] * len(dim) if isinstance(dim, list) else 100
    elif isinstance(value, str):
        yield lambda _: "no such thing"


def _cases() -> list[tuple[Overload, Sample]]:
    found = []
    for overload in all_overloads():
        samples = overload.samples()
        if samples and overload.qualified_name not in _UNSAFE | _SHADOWED:
            found.append((overload, samples[-1]))
    return found


@pytest.mark.parametrize(
    ("overload", "sample"),
    [pytest.param(*case, id=case[0].qualified_name) for case in _cases()],
)
def test_one_wrong_argument(overload: Overload, sample: Sample) -> None:
    aten = overload.aten()
    call = overload.call(TORCH_SLOT, by_keyword=True)
    whole = sample.bind(aten._schema, "cpu")
    for argument in aten._schema.arguments:
        for change in _breaks(argument, whole[argument.name]):
            expected = error_of(partial(invoke, aten), _broken(sample, aten, argument.name, change))
            actual = error_of(call, _broken(sample, aten, argument.name, change))
            if not _is_refusal(actual):
                what = f"got {_shown(actual)}, expected {_shown(expected)}"
                assert type(actual) is type(expected), f"{argument.name}: {what}"


def _shown(error: Exception | None) -> str:
    """Describe an error in one line; torch's own may list all its backends."""
    text = str(error).partition("\n")[0]
    return f"{type(error).__name__} ({text:.80})" if error else "no error"


def _broken(sample: Sample, aten: Any, name: str, change: Break) -> Arguments:
    arguments = sample.bind(aten._schema, "cpu")
    arguments[name] = change(arguments[name])
    return arguments


def _is_refusal(error: Exception | None) -> bool:
    """Report whether our own check of the arguments refuses the call before torch sees it."""
    return isinstance(error, TypeError) and "candidates:" in str(error)


@pytest.mark.parametrize(
    ("operator", "arguments", "kind"),
    [
        ("cumsum", (torch.ones(2), 5, torch.ones(2)), IndexError),
        ("linalg_inv", (torch.zeros(2, 2), torch.ones(2, 2)), torch.linalg.LinAlgError),
        ("cat", ([], 0, torch.ones(2)), ValueError),
        ("bitwise_not", (torch.ones(2), torch.ones(2)), NotImplementedError),
        ("mm", (torch.ones(2, 3), torch.ones(2, 3), torch.ones(2, 3)), RuntimeError),
    ],
)
def test_kinds_of_errors(operator: str, arguments: tuple[Any, ...], kind: type[Exception]) -> None:
    *inputs, out = arguments
    torchs = torch.linalg.inv if operator == "linalg_inv" else getattr(torch, operator)
    with pytest.raises(kind, match=r".") as expected:
        torchs(*inputs, out=out)
    with pytest.raises(kind, match=r".") as actual:
        getattr(infini.ops, operator)(*arguments)
    assert actual.type is expected.type
    assert str(actual.value).partition("\n")[0] == str(expected.value).partition("\n")[0]
