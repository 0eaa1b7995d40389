"""The Python examples of docs/torch-compile-and-vllm.md run with the installed library."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "torch-compile-and-vllm.md"
EXAMPLES = re.findall(r"(?<!-->\n)^```python\n(.*?)^```$", PAGE.read_text(), re.M | re.S)


@pytest.mark.cpu_kernels
@pytest.mark.full_suite  # seconds each, of torch's compiler
@pytest.mark.operators("rms_norm", "fused_add_rms_norm")
@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_runs(number: int) -> None:
    finished = subprocess.run(
        [sys.executable, "-c", EXAMPLES[number]], capture_output=True, text=True
    )
    assert finished.returncode == 0, finished.stderr


def test_the_page_has_examples() -> None:
    assert len(EXAMPLES) == 4
