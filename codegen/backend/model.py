"""What the YAML file of a backend says, validated."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One operator of the file."""

    name: str  # as torchgen's OperatorName prints it: "add.Tensor"
    line: int


@dataclass(frozen=True, kw_only=True)
class BackendFile:
    """A valid file; the keys mean what they mean to torchgen/gen_backend_stubs.py."""

    path: Path
    backend: str  # dispatch key: "PrivateUse1"
    class_name: str  # of the kernels; what torchgen gives the key if the file says none
    cpp_namespace: str
    extra_headers: tuple[str, ...]  # as `#include` takes them: '"npu/kernels.h"', "<vector>"
    supported: tuple[Entry, ...]  # `supported` and `full_codegen`, in the order of the file
    autograd: tuple[Entry, ...]
    symint: frozenset[str]
    use_out_as_primary: bool
    device_guard: bool
