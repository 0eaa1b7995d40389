"""Which dtype a call is of, and the same call in another dtype."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from .values import BlankValue, CompositeValue, NamedValue, TensorValue, Value, leaves

Call = dict[str, Value]


def primary_dtype(call: Call) -> str | None:
    """The dtype that a sample is filed under: the first floating tensor's, else the first's."""
    found = [leaf for value in call.values() for leaf in leaves(value)]
    dtypes = [leaf.dtype for leaf in found if isinstance(leaf, (TensorValue, CompositeValue))]
    floating = [name for name in dtypes if "float" in name or "complex" in name]
    named = [leaf.name for leaf in found if isinstance(leaf, NamedValue) and _is_dtype(leaf.name)]
    return next(iter([*floating, *dtypes, *named]), None)


def _is_dtype(name: str) -> bool:
    return isinstance(getattr(torch, name), torch.dtype)


def with_dtype(call: Call, old: str, new: str) -> Call:
    """Returns the call with every tensor of dtype ``old`` converted to ``new``."""
    return {name: _converted(value, old, new) for name, value in call.items()}


def _converted(value: Value, old: str, new: str) -> Any:
    if isinstance(value, list):
        return [_converted(item, old, new) for item in value]
    if isinstance(value, (TensorValue, CompositeValue)) and value.dtype == old:
        return value.with_dtype(new)
    if isinstance(value, BlankValue) and value.dtype == old:
        return replace(value, dtype=new)
    if value == NamedValue(old):
        return NamedValue(new)
    return value
