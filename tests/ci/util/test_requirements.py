"""Files of requirements: of pip, or a lock."""

from __future__ import annotations

import pytest

from ci.util.requirements import brings_torch, read_lock

LOCK = 'lock-version = "1.0"\ncreated-by = "any"\n'
VENDORS = '[tool.infini-ci.unlocked]\ntorch = "2.1.0+maca"\n'


@pytest.mark.parametrize(
    ("text", "brings"),
    [
        ("torch", True),
        ("numpy\nTorch >= 2 ; python_version > '3.10'\n", True),
        ("torch[opt]==2.13.0", True),
        ("torch @ https://mirror.example/torch.whl", True),
        ("https://mirror.example/whl/torch-2.13.0-cp312.whl", True),
        ("# torch", False),
        ("torchvision\ntorch-npu\ntorch_mlu\ntorch.extra", False),
        ("--extra-index-url https://download.pytorch.org/whl/cpu", False),
        (f'{LOCK}[[packages]]\nname = "torch"\ndirectory = {{path = "."}}\n', True),
        (f'{LOCK}packages = [{{name = "torch", directory = {{path = "."}}}}]\n', True),
        (f'{LOCK}[[packages]]\nname = "torchvision"\ndirectory = {{path = "."}}\n', False),
        (f"{LOCK}packages = []\n{VENDORS}", False),
        (
            f'{LOCK}[[packages]]\nname = "accelerate"\ndirectory = {{path = "."}}\n'
            '[[packages.dependencies]]\nname = "torch"\n',
            False,
        ),
    ],
)
def test_requirements_that_bring_torch(text: str, brings: bool) -> None:
    assert brings_torch(text) is brings


@pytest.mark.parametrize(
    "text",
    [
        "",
        "six==1.0\n",
        "lock-version = 1",
        'lock-version = "9.0"',
        f"lock-version = {'[' * 100000}",
        f"lock-version = {'9' * 5000}",
    ],
)
def test_what_is_no_lock(text: str) -> None:
    assert read_lock(text) is None
