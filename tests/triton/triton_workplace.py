"""What the tests of the Triton backend work on."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TARGETS = (80, 90)


@dataclass(frozen=True, kw_only=True)
class Generated:
    """An output folder and its files."""

    folder: Path
    cache: Path
    rows: list[dict[str, Any]]  # of kernels.json

    def source(self, operator: str) -> str:
        return (self.folder / "triton" / f"{operator}.c").read_text()


@dataclass(frozen=True, kw_only=True)
class Library:
    """The library with nothing in it but the Triton backend."""

    build: Path
    options: tuple[str, ...]  # that it was configured with

    @property
    def path(self) -> Path:
        return self.build / "src" / "libinfini_ops.so"


def run_cmake(build: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Configures a build of the Triton backend."""
    python = f"-DPython_EXECUTABLE={sys.executable}"
    backends = ("-DWITH_TRITON=ON", "-DWITH_TORCH=OFF", "-DAUTO_DETECT_DEVICES=OFF")
    return subprocess.run(
        ["cmake", "-G", "Ninja", "-S", ROOT, "-B", build, python, *backends, *options],
        capture_output=True,
        text=True,
        check=False,
    )


def cubin_in(source: str, variant: str, target: int) -> bytes:
    """The machine code of a variant in a generated C source."""
    match = re.search(rf"cubin_{variant}_{target}\[\] =\n(.*?);\n", source, re.DOTALL)
    assert match
    return bytes(int(each, 8) for each in re.findall(r"\\(\d{3})", match[1]))
