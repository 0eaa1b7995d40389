"""WITH_CPU_KERNELS=OFF: the library works, without the hand-written kernels of the CPU."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.built import built_once, cached_compiler
from tests.codegen.test_cmake import compiled, configure, run_cmake

OFF = "-DWITH_CPU_KERNELS=OFF"

pytestmark = [
    pytest.mark.skipif(shutil.which(name) is None, reason=f"{name} is not installed")
    for name in ("cmake", "ninja", "c++")
]
needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed"
)


@needs_torch
def test_none_is_compiled(root: Path, tmp_path: Path) -> None:
    """The metadata lists them as left out, as it does for operators that are not selected."""
    finished = run_cmake(root, tmp_path, OFF, INFINI_OPS_TORCH_OPS="ab*,add,gemm")
    assert finished.returncode == 0, finished.stderr
    files = [path.as_posix() for path in compiled(tmp_path)]
    assert f"{root}/src/core/dispatch.cc" in files
    assert [path for path in files if "src/cpu/" in path] == []
    metadata = json.loads((tmp_path / "registry" / "native_ops_metadata.json").read_text())
    assert metadata["ops"] == []
    operators = {path.stem for path in (root / "src" / "base").glob("*.h")}
    assert {each["name"] for each in metadata["not_selected"]} == operators


@pytest.mark.parametrize("options", [("-DWITH_CPU=ON",), ("-DWITH_CPU=OFF", "-DWITH_NVIDIA=ON")])
def test_a_build_without_any_operator(root: Path, tmp_path: Path, options: tuple[str, ...]) -> None:
    options = (*options, OFF, "-DWITH_TORCH=OFF", "-DAUTO_DETECT_BACKENDS=OFF")
    message = configure(root, tmp_path, *options)
    assert "This build would have no operators: it has neither torch nor hand-written" in message
    assert "Set WITH_CPU_KERNELS to ON, or install torch, for WITH_TORCH." in message


PROGRAM = """
import infini.ops, torch

x, out = torch.ones(3), torch.empty(3)
infini.ops.add(x, x, out, alpha=2)
assert out.tolist() == [3, 3, 3]
assert infini.ops.last_call().slot == 8
infini.ops.add(x.numpy(), x.numpy(), out.numpy())
assert out.tolist() == [2, 2, 2]
assert infini.ops.Operator.active_implementation_indices("cpu") == [8]
try:
    infini.ops.add(x, x, out, implementation_index=0)
except ValueError as error:
    print(error)
try:
    infini.ops.gemm
except AttributeError as error:
    print(error)
"""


@needs_torch
@pytest.mark.complete
def test_calls_run_on_torch(
    root: Path, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> None:
    def build(folder: Path) -> None:
        launcher = cached_compiler(request)
        variables = {"INFINI_OPS_TORCH_OPS": "add,gemm", **launcher}
        configured = run_cmake(root, folder / "build", OFF, **variables)
        assert configured.returncode == 0, configured.stderr
        package = folder / "infini" / "ops"
        for words in (
            ["--build", folder / "build", "--parallel", "2"],
            ["--install", folder / "build", "--prefix", package],
        ):
            command = ["cmake", *map(str, words)]
            subprocess.run(command, env=os.environ | variables, check=True, capture_output=True)
        shutil.copy(root / "src" / "infini" / "ops" / "__init__.py", package)

    folder = built_once(tmp_path_factory, "without-cpu-kernels", build)
    finished = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=os.environ | {"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (finished.returncode, finished.stderr) == (0, "")
    assert finished.stdout.splitlines() == [
        "implementation_index 0 is not active for 'add.out' on cpu; active: 8",
        "module 'infini.ops' has no operator 'gemm': this build was made without its "
        "implementations (INFINI_OPS_TORCH_OPS, or WITH_CPU_KERNELS=OFF)",
    ]
