"""Cases of parametrized tests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def narrowed(cases: Iterable[Any], kept: int) -> list[Any]:
    """Leave all but the first ``kept`` cases to complete tests."""
    first, others = (found := list(cases))[:kept], found[kept:]
    values = (case if isinstance(case, tuple) else (case,) for case in others)
    return [*first, *(pytest.param(*each, marks=pytest.mark.complete) for each in values)]
