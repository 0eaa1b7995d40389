"""Structured kernels of a backend, compiled and run: torch's `meta` checks and allocates.

The device has few operators and no fallback, so each variant must be registered from its kernel.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from codegen.aten import find_torch
from codegen.backend.emit import generate_backend
from tests.built import built_once, cached_compiler

SOURCES = Path(__file__).parent / "structured"

pytestmark = pytest.mark.skipif(shutil.which("c++") is None, reason="c++ is not installed")


@pytest.fixture(scope="session")
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch = pytest.importorskip("torch")
    environment = {**os.environ, **cached_compiler(request)}
    launcher = environment.get("CMAKE_CXX_COMPILER_LAUNCHER", "")

    def build(folder: Path) -> None:
        kernels = SOURCES / "kernels.cc"
        outcome = generate_backend(
            SOURCES / "backend.yaml", folder, find_torch(None), implementation=kernels
        )
        assert outcome.notes == ()  # the compiler finds the kernels where macros define them
        shutil.copy(kernels, folder)
        unit = folder / "unit.cc"
        unit.write_text('#include "kernels.cc"\n#include "RegisterPrivateUse1.cpp"\n')
        root = Path(torch.__file__).parent
        include = root / "include"
        compile_ = [*filter(None, [launcher]), "c++", "-std=c++20", "-O0", "-fPIC", "-w", "-I."]
        compile_ += ["-isystem", str(include), "-isystem", str(include / "torch/csrc/api/include")]
        compile_ += ["-c", unit.name, "-o", "unit.o"]
        link = ["c++", "-shared", "unit.o", f"-L{root / 'lib'}", "-ltorch_cpu", "-lc10"]
        for command in (compile_, [*link, "-Wl,-z,defs", "-o", "libacme.so"]):
            subprocess.run(command, check=True, cwd=folder, env=environment)

    return built_once(tmp_path_factory, "structured", build) / "libacme.so"


def run(library: Path, program: str) -> list[str]:
    """Run a program with the device; the printed lines."""
    head = f"""
import types, torch
torch.ops.load_library({str(library)!r})
torch.utils.rename_privateuse1_backend("acme")
torch._register_device_module("acme", types.ModuleType("torch.acme"))
def on(tensor): return tensor.to("acme")
def same(got, expected):
    assert got.device.type == "acme" and got.dtype == expected.dtype, (got.device, got.dtype)
    torch.testing.assert_close(got.cpu(), expected)
def refused(function, *arguments, **options):
    try:
        function(*arguments, **options)
    except (IndexError, RuntimeError) as error:
        print(str(error).splitlines()[0])
    else:
        print("not refused")
a, b = torch.randn(3, 4), torch.randn(3, 4)
"""
    finished = subprocess.run(
        [sys.executable, "-W", "error", "-c", head + program],
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout.splitlines()


def test_all_variants_are_registered_from_one_kernel(library: Path) -> None:
    report = json.loads((library.parent / "coverage.json").read_text(encoding="utf-8"))
    status = {each["name"]: each["status"] for each in report["overloads"]}
    variants = {
        "add.out": ["add.Tensor", "add_.Tensor"],
        "mm.out": ["mm"],
        "cat.out": ["cat"],
        "_softmax.out": ["_softmax"],
        "cumsum.out": ["cumsum", "cumsum_"],
        "linalg_inv_ex.inverse": ["linalg_inv_ex"],
    }
    for out, others in variants.items():
        assert status[out] == "supported"
        assert {status[name] for name in others} == {"derived"}
    names = [name for out, others in variants.items() for name in (out, *others)]
    program = f"""
for name in {names!r}:
    print(torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{{name}}", "PrivateUse1"))
"""
    assert run(library, program) == ["True"] * len(names)


def test_values_of_all_variants(library: Path) -> None:
    """Also of promoted, broadcast and empty arguments, and of Python's numbers."""
    program = """
same(torch.add(on(a), on(b), alpha=2), torch.add(a, b, alpha=2))
same(on(a) + 1, a + 1)
same(on(a) + on(torch.arange(4)), a + torch.arange(4))
same(on(a.t()) + on(b.t()), a.t() + b.t())
x = on(a)
assert x.add_(on(b[0])) is x
same(x, a + b[0])
out = on(torch.empty(4, 3)).t()
assert torch.add(on(a), on(b), out=out) is out and out.stride() == (1, 3)
same(out, a + b)
same(torch.mm(on(a), on(b).t()), torch.mm(a, b.t()))
same(torch.cat([on(a), on(b)], -1), torch.cat([a, b], -1))
same(torch.cat([on(torch.empty(0)), on(a)]), a)
same(torch.softmax(on(a), 1), torch.softmax(a, 1))
same(torch.cumsum(on(a), -1), torch.cumsum(a, -1))
same(torch.cumsum(on(torch.arange(3, dtype=torch.int32)), 0), torch.arange(3).cumsum(0))
"""
    assert run(library, program) == []


def test_an_output_is_resized(library: Path) -> None:
    program = """
for function, arguments, shape in (
    (torch.add, (on(a), on(b)), (3, 4)),
    (torch.mm, (on(a), on(b).t()), (3, 3)),
    (torch.cat, ([on(a), on(b)],), (6, 4)),
    (torch.softmax, (on(a), 1), (3, 4)),
):
    out = torch.empty(0, device="acme")
    assert function(*arguments, out=out) is out and out.shape == shape
    same(out, function(*arguments).cpu())
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    torch.mm(on(a), on(b).t(), out=on(torch.empty(2)))
print("was resized" in str(caught[0].message))
"""
    assert run(library, program) == ["True"]


def test_an_output_with_other_strides_is_copied(library: Path) -> None:
    """The kernel writes a matrix in column order, whatever the caller's order is."""
    program = """
matrix = torch.eye(3) * 2 + torch.arange(9).reshape(3, 3) / 10
inverse, info = torch.empty(3, 3, device="acme"), torch.empty((), dtype=torch.int32, device="acme")
torch.linalg.inv_ex(on(matrix), out=(inverse, info))
assert inverse.is_contiguous()
same(inverse, torch.linalg.inv(matrix))
same(torch.linalg.inv_ex(on(matrix)).inverse, torch.linalg.inv(matrix))
"""
    assert run(library, program) == []


def test_torch_refuses_wrong_arguments(library: Path) -> None:
    program = """
whole = on(torch.zeros(3, 4, dtype=torch.int64))
refused(torch.add, on(a), on(b), out=whole)
refused(torch.add, on(a), on(torch.randn(5)))
refused(on(a[0]).add_, on(b))
refused(torch.mm, on(a), on(b))
refused(torch.mm, on(a), on(b).t(), out=whole)
refused(torch.mm, on(a), b.t())
refused(torch.cat, [on(a), on(b[0])])
refused(torch.softmax, on(a), 2)
refused(on(torch.arange(3)).cumsum_, 0, dtype=torch.float64)
"""
    expected = [
        "result type Float can't be cast to the desired output type Long",
        "The size of tensor a (4) must match the size of tensor b (5)",
        "output with shape [4] doesn't match the broadcast shape [3, 4]",
        "mat1 and mat2 shapes cannot be multiplied (3x4 and 3x4)",
        "Expected out tensor to have dtype Float on acme:0, but got dtype Long on acme:0 instead",
        "Expected all tensors to be on the same device",
        "Tensors must have same number of dimensions: got 2 and 1",
        "Dimension out of range",
        "Bad in-place call: input tensor of size [3] with dtype Long on acme:0 and output tensor "
        "of size [3] with dtype Double on acme:0 should match",
    ]
    got = run(library, program)
    assert [line[: len(text)] for line, text in zip(got, expected, strict=True)] == expected


def test_gradients_are_those_of_torch(library: Path) -> None:
    """Torch's autograd has the formulas; the kernels are below it."""
    program = """
x = on(a).requires_grad_()
for result in (x + 1, torch.mm(x, on(b.t())), torch.cat([x, x]), torch.softmax(x, 1), x.cumsum(0)):
    print(result.grad_fn.name())
"""
    assert run(library, program) == [
        f"{name}Backward0" for name in ("Add", "Mm", "Cat", "Softmax", "Cumsum")
    ]
