"""Watches torch execute the OpInfo database and keeps the arguments of what it calls."""

from __future__ import annotations

import contextlib
import random
import warnings
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

import torch

from . import without_defaults
from .layouts import kind_of, take_apart
from .values import BlankValue, CompositeValue, DeviceValue, NamedValue, TensorValue, Value, span

MAX_ELEMENTS = 4096
SEED = 0

# Calls beyond this number per overload and dtype are ignored, to limit memory.
_MAX_CALLS = 48
_MAX_SAMPLES_PER_OPINFO = 60

Recorded = dict[str, dict[str, list[dict[str, Value]]]]  # overload -> OpInfo dtype -> calls


class UnrecordableError(Exception):
    """A value that the sample file cannot hold, such as a generator."""


def overload_name(schema: Any) -> str:
    """Returns "add.out" or "abs_", as ``native_functions.yaml`` writes it."""
    base = schema.name.removeprefix("aten::")
    return f"{base}.{schema.overload_name}" if schema.overload_name else base


def capture(value: Any) -> Value:
    """Turns an argument into data."""
    if isinstance(value, torch.Tensor):
        return _capture_tensor(value)
    if isinstance(value, (list, tuple)):
        return [capture(item) for item in value]
    if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
        return NamedValue(str(value).removeprefix("torch."))
    if isinstance(value, torch.device):
        return DeviceValue()
    if value is None or isinstance(value, (bool, int, float, complex, str, BlankValue)):
        return value
    raise UnrecordableError(type(value).__name__)


def _capture_tensor(tensor: torch.Tensor) -> TensorValue | CompositeValue:
    kind = kind_of(tensor)
    if tensor.is_nested or tensor.device.type != "cpu" or tensor.numel() > MAX_ELEMENTS:
        raise UnrecordableError(f"{kind} tensor of {tensor.numel()} elements on {tensor.device}")
    if kind != "strided":
        parts = tuple(TensorValue.of(part) for part in take_apart(tensor))
        return CompositeValue(kind, tuple(tensor.shape), parts)
    tensor = tensor.detach().resolve_conj().resolve_neg()
    return TensorValue.of(tensor if span(tensor) <= 2 * MAX_ELEMENTS else tensor.contiguous())


def bind(schema: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Names the arguments of a call and drops those equal to their default."""
    names = [argument.name for argument in schema.arguments]
    return without_defaults(schema, dict(zip(names, args, strict=False)) | kwargs)


class CallRecorder(TorchDispatchMode):
    """Records every ATen call, and the calls inside CompositeImplicit operators."""

    def __init__(self) -> None:
        super().__init__()
        self.dtype = ""
        self.calls: Recorded = defaultdict(lambda: defaultdict(list))
        self._seen: set[tuple[Any, ...]] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func.namespace == "aten":
            with contextlib.suppress(UnrecordableError):
                self._observe(func._schema, args, kwargs)
        with self:
            result = func.decompose(*args, **kwargs)
        if result is NotImplemented:
            result = func(*args, **kwargs)
        if "empty" in func._schema.name:
            result.zero_()  # or the next call would be recorded with uninitialized values
        return result

    def _observe(self, schema: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        name = overload_name(schema)
        group = self.calls[name][self.dtype]
        key = (name, self.dtype, *(_shape(leaf) for leaf in tree_flatten((args, kwargs))[0]))
        if len(group) >= _MAX_CALLS or key in self._seen:
            return
        self._seen.add(key)
        group.append({n: capture(value) for n, value in bind(schema, args, kwargs).items()})


def _shape(leaf: Any) -> Any:
    if isinstance(leaf, torch.Tensor):
        return str(leaf.dtype), tuple(leaf.shape), leaf.is_contiguous()
    return str(leaf)


def record(dtypes: tuple[str, ...]) -> Recorded:
    """Runs the OpInfo database in the given dtypes and returns the calls seen."""
    recorder = CallRecorder()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for dtype in dtypes:
            recorder.dtype = dtype
            for op in op_db:
                if getattr(torch, dtype) in op.supported_dtypes("cpu"):
                    _run_operator(op, getattr(torch, dtype), recorder)
    return recorder.calls


def _run_operator(op: Any, dtype: torch.dtype, recorder: CallRecorder) -> None:
    for sample in _sample_inputs(op, dtype):
        for mode in (_run_forward, _run_in_place, _run_backward):
            # An OpInfo sample may be meant for one of the variants only.
            with contextlib.suppress(Exception):
                mode(op, sample, recorder)


def _sample_inputs(op: Any, dtype: torch.dtype) -> Iterator[Any]:
    torch.manual_seed(SEED)
    random.seed(SEED)
    differentiable = op.supports_autograd and (dtype.is_floating_point or dtype.is_complex)
    samples = iter(op.sample_inputs("cpu", dtype, requires_grad=differentiable))
    for _ in range(_MAX_SAMPLES_PER_OPINFO):
        try:
            yield next(samples)
        except StopIteration:
            return
        except Exception:  # a generator that needs an optional package
            return


def _run_forward(op: Any, sample: Any, recorder: CallRecorder) -> None:
    for variant in (op.op, *(alias.op for alias in op.aliases if alias.op)):
        with torch.inference_mode(), recorder:
            variant(_detached(sample.input), *_detached(sample.args), **_detached(sample.kwargs))


def _run_in_place(op: Any, sample: Any, recorder: CallRecorder) -> None:
    for variant in (op.inplace_variant, *(alias.inplace_variant for alias in op.aliases)):
        if variant is not None:
            arguments = _detached(sample.args), _detached(sample.kwargs)
            with torch.inference_mode(), recorder:
                variant(sample.input.detach().clone(), *arguments[0], **arguments[1])


def _run_backward(op: Any, sample: Any, recorder: CallRecorder) -> None:
    leaves, _ = tree_flatten((sample.input, sample.args, sample.kwargs))
    inputs = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    if not inputs:
        return
    with recorder:
        outputs, _ = tree_flatten(op.op(sample.input, *sample.args, **sample.kwargs))
    outputs = [out for out in outputs if isinstance(out, torch.Tensor) and out.requires_grad]
    cotangents = [torch.randn_like(output) for output in outputs]
    with recorder:
        torch.autograd.grad(outputs, inputs, cotangents, allow_unused=True)


def _detached(tree: Any) -> Any:
    return tree_map(
        lambda leaf: leaf.detach() if isinstance(leaf, torch.Tensor) else leaf,
        tree,
    )
