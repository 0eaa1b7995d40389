"""Wheels with a compiled library, as runs keep them."""

from __future__ import annotations

import hashlib
import subprocess
import zipfile
from pathlib import Path

from ci.model.results import Distribution


def library(folder: Path, *functions: str) -> bytes:
    """A library that has these functions."""
    return compiled(folder, "".join(f"int {name}(void) {{ return 0; }}\n" for name in functions))


def compiled(folder: Path, text: str, *options: str) -> bytes:
    """A library of these lines of C."""
    command = ("cc", "-shared", *options, "-x", "c", "-", "-o", str(folder / "tiny.so"))
    subprocess.run(command, input=text, check=True, text=True)
    return (folder / "tiny.so").read_bytes()


def wheel_of(path: Path, content: bytes, member: str = "tiny.so") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(member, content)
    return path


def kept(run: Path, name: str, content: bytes) -> Distribution:
    """A wheel that a run on the CPU, which has this folder, tested and kept."""
    path = wheel_of(run / "cpu" / "dist" / name, content)
    return Distribution(
        name=name,
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        size_bytes=path.stat().st_size,
        path=f"cpu/dist/{name}",
        installed=True,
    )
