"""Torch's device tests are configured from the coverage report of the same torch only."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

REMEDY = "; write it with the torch that runs the tests: python -m infini.codegen backend-stubs"


@pytest.fixture(scope="module")
def skips() -> Callable[..., Any]:
    """Imported here, because torch.testing takes seconds."""
    pytest.importorskip("torch")
    pytest.importorskip("expecttest", reason="torch's device tests need it")
    from codegen.installed import device_tests

    return device_tests.skips


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("{", "not a coverage.json (JSONDecodeError", id="no-json"),
        pytest.param("[]", "not a coverage.json (TypeError", id="no-object"),
        pytest.param("{}", "not a coverage.json (KeyError('torch_version'))", id="no-version"),
        pytest.param(
            json.dumps({"torch_version": "1.0", "overloads": []}),
            "torch_version: got '1.0', expected '",
            id="another-torch",
        ),
    ],
)
def test_a_file_that_is_no_report_of_this_torch(
    skips: Callable[..., Any], tmp_path: Path, text: str, message: str
) -> None:
    file = tmp_path / "coverage.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=f"^{re.escape(f'{file}: {message}')}.*{REMEDY}$"):
        skips(file, [])


def test_a_file_that_is_absent(skips: Callable[..., Any], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"coverage.json: No such file or directory{REMEDY}$"):
        skips(tmp_path / "coverage.json", [])
