"""Every fault, on real containers: ``nox -s faults``."""

from __future__ import annotations

from collections.abc import Callable

from tests.faults.model import Fault


def test_fault(fault: Fault, differences: Callable[[Fault], list[str]]) -> None:
    found = differences(fault)
    assert not found, "\n".join(found)
