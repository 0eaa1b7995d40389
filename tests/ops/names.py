"""Test ids: builds the id of an operator test, and reads the parts of a node id."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

_OPERATOR_TEST = re.compile(r"(?P<overload>[^-]+)-(?P<dtype>\w+)-(?P<device>\w+)-slot(?P<slot>\d)")


def operator_test_id(*, overload: str, dtype: str, device: str, slot: int) -> str:
    """Returns the part of the node id in brackets: "add.out-float32-cpu-slot8"."""
    return f"{overload}-{dtype}-{device}-slot{slot}"


@dataclass(frozen=True)
class TestName:
    """A node id and its parts: "tests/ops/test_torch_ops.py::test_overload[...]"."""

    __test__ = False  # not a test class, whatever its name

    node_id: str

    @cached_property
    def parameters(self) -> str:
        """The part in brackets."""
        return self.node_id.partition("[")[2].removesuffix("]")

    @cached_property
    def properties(self) -> dict[str, Any]:
        """Overload, dtype, device and slot of an operator's test; empty for any other."""
        match = _OPERATOR_TEST.fullmatch(self.parameters)
        return {**match.groupdict(), "slot": int(match["slot"])} if match else {}

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names that an entry of the quarantine may use for the test."""
        return (
            self.properties.get("overload", ""),
            self.parameters,
            self.node_id.rpartition("/")[2],
        )
