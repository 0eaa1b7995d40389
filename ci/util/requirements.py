"""Files of requirements: of pip, or a lock (PEP 751)."""

from __future__ import annotations

import re
import tomllib

from packaging.pylock import Pylock, PylockValidationError

# A requirement of torch itself, by its name or as a wheel: not of torchvision or torch-npu.
_TORCH = re.compile(r"^\s*(\S*/)?torch(-\d|(?![\w.-]))", re.IGNORECASE | re.MULTILINE)


def read_lock(text: str) -> Pylock | None:
    """Read the content of a file; ``None``: it is no lock, or none of a known version."""
    try:
        return Pylock.from_dict(tomllib.loads(text))
    except (ValueError, PylockValidationError, RecursionError):
        return None


def brings_torch(text: str) -> bool:
    """Return whether the content of a file asks for torch itself."""
    lock = read_lock(text)
    if lock is None:
        return _TORCH.search(text) is not None
    return any(package.name == "torch" for package in lock.packages)
