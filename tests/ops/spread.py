"""torch's own spread: the values of an output on which torch's calls disagree with one another.

Kernels with atomic additions round differently each time, and some kernels leave elements of their
outputs uninitialized. Such values cannot be compared bit by bit, but torch alone shows which they
are: it is called again and again, over memory that was filled differently.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

# The order of additions changes the last bits of a sum. Values that differ by a larger share of
# the largest one come from uninitialized memory.
ROUNDING = 1 / 8


class Spread:
    """The values of one output in several calls of torch, all of one dtype and shape.

    An element that was the same in every call is steady. Of the others, those that differ by
    rounding have limits, and those that torch leaves uninitialized are free.
    """

    def __init__(self, values: Sequence[torch.Tensor]) -> None:
        self._first, *others = map(_elements, values)
        self._steady = torch.ones(len(self._first), dtype=torch.bool)
        for other in others:
            self._steady &= _same(self._first, other)
        self._rounded = torch.zeros_like(self._steady)
        if not self.is_steady and self._first.dtype.is_floating_point:
            self._measure(torch.stack([self._first, *others]))

    def _measure(self, values: torch.Tensor) -> None:
        lowest, highest = values.amin(0), values.amax(0)  # NaN where a value is
        width = highest - lowest
        self._rounded = width <= ROUNDING * values.nan_to_num(0, 0, 0).abs().max()  # not NaN
        widest = width[self._rounded].amax() if self._rounded.any() else 0.0
        self._lowest, self._highest = lowest - widest, highest + widest

    @property
    def is_steady(self) -> bool:
        """Whether every call of torch gave the same values."""
        return bool(self._steady.all())

    @property
    def is_free(self) -> bool:
        """Whether there is nothing to compare."""
        return bool(self._free.all())

    @property
    def _free(self) -> torch.Tensor:
        return ~self._steady & ~self._rounded

    def has(self, tensor: torch.Tensor) -> bool:
        """Report whether torch could have given these values, too.

        Where torch rounds differently each time, any element may lie outside of the values seen by
        the largest difference that one of them has: a few calls do not show all values.
        """
        got = _elements(tensor)
        right = _same(self._first, got) | self._free
        if self._rounded.any():
            right |= self._rounded & (got >= self._lowest) & (got <= self._highest)
        return bool(right.all())

    def __str__(self) -> str:
        """``3 of 12 elements within torch's spread, 2 of 12 not compared``."""
        counts = {
            "within torch's spread": int((~self._steady & self._rounded).sum()),
            "not compared": int(self._free.sum()),
        }
        total = len(self._first)
        found = [f"{count} of {total} elements {what}" for what, count in counts.items() if count]
        return ", ".join(found)


def _elements(tensor: torch.Tensor) -> torch.Tensor:
    """Returns the elements as a list: floating-point numbers as float64, all others as bytes."""
    values = tensor.detach().cpu().resolve_conj().resolve_neg()
    if values.is_complex():
        values = torch.view_as_real(values)
    flat = values.reshape(-1)
    if flat.dtype.is_floating_point:
        return flat.double()
    return flat.contiguous().view(torch.uint8).reshape(len(flat), flat.element_size())


def _same(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Returns where two lists of elements are equal; any NaN equals any other."""
    if left.dtype.is_floating_point:
        return (left == right) | (left.isnan() & right.isnan())
    return (left == right).all(-1)
