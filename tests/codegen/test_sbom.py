"""The SBOM that a wheel gets, of compiled files and a torch that are not real."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.sboms import require_valid

DYNAMIC = b"libstdc++.so.6\0libgcc_s.so.1\0"
# The SHA-256 of "infini", in hexadecimal digits and as RECORD has it.
HEXADECIMAL = "ffdad27baac4ae11955b6337cfb60030fb8c81e78359057ea78366635ceed6ff"
RECORDED = "_9rSe6rErhGVW2M3z7YAMPuMgeeDWQV-p4NmY1zu1v8"


def write(root: Path, folder: Path, *options: str, content: bytes = DYNAMIC) -> dict[str, Any]:
    (library := folder / "libinfini_ops.so").write_bytes(content)
    output = folder / "sboms" / "infini-ops.cdx.json"
    program = root / "src" / "packaging" / "sbom.py"
    given = ("--version=1.2", "--tool=cmake=4.3.0", *options)
    command = [sys.executable, str(program), str(output), str(library), *given]
    environment = {"SOURCE_DATE_EPOCH": "946684800"}
    subprocess.run(command, check=True, env=environment)
    require_valid(output.read_text())
    found: dict[str, Any] = json.loads(output.read_text())
    return found


def versions(components: list[Mapping[str, str]]) -> dict[str, str | None]:
    return {it["name"]: it.get("version") for it in components}


def test_the_project_and_what_builds_it(root: Path, tmp_path: Path) -> None:
    options = ("--compiler=GNU=12.2.0", "--tool=nvcc=13.0.88", "--part=cudart=13.0.88")
    found = write(root, tmp_path, *options)
    metadata = found["metadata"]
    assert metadata["timestamp"] == "2000-01-01T00:00:00+00:00"
    assert metadata["component"]["purl"] == "pkg:pypi/infini-ops@1.2"
    tools = {"GNU": "12.2.0", "cmake": "4.3.0", "nvcc": "13.0.88"}
    assert versions(metadata["tools"]["components"]) == tools
    assert versions(found["components"]) == {"cudart": "13.0.88"}
    assert write(root, tmp_path, *options) == found
    other = write(root, tmp_path, "--compiler=GNU=12.2.1")
    assert other["serialNumber"] != found["serialNumber"]


@pytest.mark.parametrize(("compiler", "version"), [("GNU", "12.2.0"), ("Clang", None)])
def test_what_is_linked_statically(
    root: Path, tmp_path: Path, compiler: str, version: str | None
) -> None:
    """clang takes the libraries of a GCC of another version."""
    found = write(root, tmp_path, f"--compiler={compiler}=12.2.0", content=b"libc.so.6\0")
    assert versions(found["components"]) == {"libgcc": version, "libstdc++": version}


@pytest.mark.parametrize("has_record", [True, False])
def test_torch(root: Path, tmp_path: Path, has_record: bool) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "version.py").write_text("__version__ = '2.13.0+cpu'\ncuda = None\n")
    if has_record:
        (info := tmp_path / "torch-2.13.0+cpu.dist-info").mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.13.0+cpu\n")
        names = ("libc10.so", "libtorch.so")
        rows = [f"torch/lib/{name},sha256={RECORDED},6" for name in names]
        (info / "RECORD").write_text("\n".join(rows))
    found = write(root, tmp_path, "--compiler=GNU=12.2.0", f"--torch-root={tmp_path}")
    [torch] = found["components"]
    assert (torch["name"], torch["version"]) == ("torch", "2.13.0+cpu")
    hashes = {it["name"]: it["hashes"] for it in torch.get("components", ())}
    linked = {"torch/lib/libc10.so": [{"alg": "SHA-256", "content": HEXADECIMAL}]}
    assert hashes == (linked if has_record else {})
