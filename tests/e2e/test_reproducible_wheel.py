"""Two builds of one tree, in two folders with a torch in each, make the same wheel."""

from __future__ import annotations

import json
import sys
import tarfile
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

from ci.plan.planning import SOURCE_DATE
from ci.plan.source import TIMESTAMP, write_archive
from ci.util.invocation import REPOSITORY
from codegen.aten import find_torch
from tests.built import run
from tests.sboms import require_valid


def build_wheel(folder: Path) -> Path:
    """Copy the sources as a run does, and build the wheel with a torch in the same folder."""
    archive = folder / "source.tar"
    with archive.open("wb") as file:
        write_archive(REPOSITORY, file, prefix="source")
    with tarfile.open(archive) as file:
        file.extractall(folder, filter="data")
    pip = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation")
    (packages := folder / "packages").mkdir()
    installed = find_torch()
    (packages / "torch").symlink_to(installed.torch)
    (packages / "torchgen").symlink_to(installed.torchgen)
    variables = {
        "INFINI_OPS_TORCH_OPS": "abs",
        "PYTHONPATH": str(packages),
        "SKBUILD_CMAKE_DEFINE": "WITH_CPU=ON;AUTO_DETECT_DEVICES=OFF",
        SOURCE_DATE: str(TIMESTAMP),
    }
    done = run(*pip, "--wheel-dir", folder, ".", folder=folder / "source", **variables)
    assert done.returncode == 0, done.stderr
    [wheel] = folder.glob("*.whl")
    return wheel


@pytest.mark.complete
def test_two_builds_in_two_folders_make_one_wheel(tmp_path: Path) -> None:
    wheels = []
    for name in ("a", "another-place"):
        (tmp_path / name).mkdir()
        wheels.append(build_wheel(tmp_path / name))
    first, second = map(zipfile.ZipFile, wheels)
    # First the contents, as a difference is named then.
    differing = [it for it in first.namelist() if first.read(it) != second.read(it)]
    assert differing == []
    assert wheels[0].read_bytes() == wheels[1].read_bytes()
    check_sbom(first)


def check_sbom(wheel: zipfile.ZipFile) -> None:
    """It is valid, names the torch and the tools of the build, and is one of the recorded files."""
    [name] = [it for it in wheel.namelist() if ".dist-info/sboms/" in it]
    require_valid(text := wheel.read(name).decode())
    sbom = json.loads(text)
    project = sbom["metadata"]["component"]
    assert f"{project['name'].replace('-', '_')}-{project['version']}.dist-info" in name
    [torch] = [it for it in sbom["components"] if it["name"] == "torch"]
    assert torch["version"] == version("torch")
    tools = {it["name"]: it["version"] for it in sbom["metadata"]["tools"]["components"]}
    asked = run("cmake", "--version", folder=REPOSITORY).stdout
    assert tools["cmake"] == asked.split()[2]
    [record] = [it for it in wheel.namelist() if it.endswith(".dist-info/RECORD")]
    assert f"{name},sha256=" in wheel.read(record).decode()
