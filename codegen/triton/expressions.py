"""The C expressions of a ``build.py``."""

from __future__ import annotations

import re
from collections.abc import Mapping

# What they may use beside fields and constants: functions of src/triton/driver.h, and C's own.
KNOWN = {
    "cdiv": "InfiniOpsCeilDiv",
    "min": "InfiniOpsMin",
    "max": "InfiniOpsMax",
    "INT32_MAX": "INT32_MAX",
}
_NAME = re.compile(r"\b[A-Za-z_]\w*")


def names_in(expression: str) -> list[str]:
    """The fields and constants that the expression is over."""
    return [name for name in _NAME.findall(expression) if name not in KNOWN]


def substituted(expression: str, values: Mapping[str, str]) -> str:
    """The expression with names replaced by what stands for them in the generated source."""
    known = {**KNOWN, **values}
    return _NAME.sub(lambda match: known[match[0]], expression)
