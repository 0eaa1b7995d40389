"""Compiled kernels by the digest of what they are compiled from."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

VARIABLE = "INFINI_OPS_TRITON_CACHE"


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """A compiled variant: its code and what a launcher needs to know."""

    cubin: bytes
    entry: str  # the name in the cubin
    parameters: tuple[str, ...]  # in order, without constants
    hidden: int  # pointers to scratch memory, of which there is none, after those
    num_warps: int
    shared: int  # bytes of dynamic shared memory


def default_folder() -> Path:
    """Where kernels are kept between builds; a user may delete it at any time."""
    if folder := os.environ.get(VARIABLE):
        return Path(folder)
    user = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(user, "infini-ops", "triton")


def load(folder: Path, key: str) -> Kernel | None:
    """The kernel, or nothing where there is none or a damaged one."""
    try:
        digest, text = _path(folder, key).read_bytes().split(b"\n", 1)
        if digest.decode() != hashlib.sha256(text).hexdigest():
            return None
        return decode(json.loads(text))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def store(folder: Path, key: str, kernel: Kernel) -> None:
    """Keeps the kernel. Several processes may do so at once."""
    fields = {**asdict(kernel), "cubin": base64.b64encode(kernel.cubin).decode()}
    text = json.dumps(fields).encode()
    path = _path(folder, key)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}.partial")
    partial.write_bytes(hashlib.sha256(text).hexdigest().encode() + b"\n" + text)
    partial.replace(path)


def decode(fields: dict[str, object]) -> Kernel:
    """A kernel from what a worker or an entry says of it."""
    try:
        cubin = base64.b64decode(str(fields["cubin"]), validate=True)
    except binascii.Error as error:
        raise ValueError(f"cubin: {error}") from error
    parameters = fields["parameters"]
    assert isinstance(parameters, list)
    return Kernel(
        cubin=cubin,
        entry=str(fields["entry"]),
        parameters=tuple(map(str, parameters)),
        hidden=int(str(fields["hidden"])),
        num_warps=int(str(fields["num_warps"])),
        shared=int(str(fields["shared"])),
    )


def _path(folder: Path, key: str) -> Path:
    return folder / key[:2] / f"{key}.kernel"
