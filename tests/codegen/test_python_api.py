"""The bindings use nothing of CPython that a later version may take away."""

from __future__ import annotations

import re
from pathlib import Path

SRC = Path(__file__).resolve().parents[2] / "src"
SUFFIXES = {".h", ".c", ".cc", ".cu"}
# CPython's private names begin with an underscore: `_PyLong_AsInt` was gone in 3.13.
# `PyUnstable_` may change in any minor release; internal headers are not for extensions.
PRIVATE = re.compile(r"\b_Py\w+|\bPyUnstable_\w+|\bPy_BUILD_CORE\w*|internal/pycore_\w+")


def test_no_private_names_of_cpython() -> None:
    sources = [path for path in sorted(SRC.rglob("*")) if path.suffix in SUFFIXES]
    assert SRC / "bindings/operator_function.cc" in sources
    found = [
        f"{path.relative_to(SRC.parent)}:{number}: {name}"
        for path in sources
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        for name in PRIVATE.findall(line)
    ]
    assert not found, f"expected documented names of Python 3.10 to 3.14 only; got {found}"
