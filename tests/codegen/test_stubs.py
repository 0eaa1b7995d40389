"""The generated stub, as strict mypy and a user's programs see it."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from codegen.emit import STUB_NAME, render_torch
from codegen.model import Library, Operator, Schemas
from codegen.native import read_bases
from codegen.stubs import signatures
from codegen.translate import make_library
from tests.built import cache_folder

GOOD = """
import infini.ops
import numpy as np
import torch
from infini.ops import add

x, y, out = torch.ones(2, 3), torch.ones(3), torch.empty(2, 3)
add(x, y, out)
add(x, y, 2, out)
add(x, y, 1 + 2j, out, implementation_index=8, stream=0)
add(x, y, out, alpha=0.5)
add(out=out, other=y, input=x)
add(x, 3, out)
infini.ops.add_inplace(x, y, alpha=2)
array = np.zeros(3, dtype=np.float32)
infini.ops.neg(array, array)
infini.ops.neg(memoryview(bytearray(3)), array)
infini.ops.complex(x, x, out)

infini.ops.clamp(x, None, 1, out)
infini.ops.clamp(x, out, max=y)
infini.ops.sum(x, out, dtype=torch.float64)
infini.ops.sum(x, [0, 1], False, out, dtype="float64")
infini.ops.mean(x, (0, 1), out)
infini.ops.mean(x, 0, out)
infini.ops.sort(x, dim=0, values=out, indices=out)
infini.ops.div(x, y, rounding_mode="floor", out=out)
infini.ops.clone(x, out, memory_format=torch.channels_last)
infini.ops.normal(x, 0, 1, torch.Generator(), out)
infini.ops.random_inplace(x, from_=0, to=None)
infini.ops.internal_to_sparse(x, layout=torch.strided, out=out)
infini.ops.internal_pin_memory(x, torch.device("cuda"), out)
infini.ops.internal_pin_memory(x, "cuda:0", out)
infini.ops.linear_backward(x, x, x, [True, False, True], out, out, out)
infini.ops.upsample_bilinear2d(x, None, False, [2, 2.5], out)
tensors = [x, y]
infini.ops.cat(tensors, 1, out)
infini.ops.index(x, [None, y], out)
infini.ops.internal_foreach_add(tensors, [1, 2.5], tensors)
infini.ops.internal_foreach_add_inplace((x, y), tensors)

infini.ops.gemm(x, x, out)
infini.ops.gemm(x, x, 2, 0.5, False, True, out)
infini.ops.gemm(x, x, out, trans_a=True)
infini.ops.cast(x, out)
infini.ops.rms_norm(x, y, 1e-5, out)
infini.ops.Swiglu.clear_cache()

operators: list[type[infini.ops.Operator]] = [infini.ops.Any, infini.ops.Abs]
names: list[str] = [operator.name for operator in operators] + infini.ops.devices()
slots: list[int] = infini.ops.Abs.active_implementation_indices(torch.device("cpu"))
infini.ops.Abs.clear_cache()
folder: str = infini.ops.include_dir().name + infini.ops.metadata_path().name
folder = infini.ops.native_metadata_path().name
"""

# The end of a line names the error of mypy that it must have.
BAD = """
import infini.ops
import torch

x, out = torch.ones(2), torch.empty(2)
infini.ops.abs("text", out)  # arg-type
infini.ops.abs(x)  # call-arg
infini.ops.abs(x, out, out)  # call-arg
infini.ops.abs(x, out=out, colour=1)  # call-arg
infini.ops.abs(x, out, implementation_index="torch")  # arg-type
infini.ops.add(x, "text", out)  # call-overload
infini.ops.add(x, x)  # call-overload
infini.ops.cat(x, 0, out)  # call-overload
infini.ops.mean(x, 1.5, out)  # call-overload
infini.ops.linear_backward(x, x, x, [1, 0, 1], out, out, out)  # list-item
infini.ops.gelu_inplace(x, approximate=None)  # arg-type
infini.ops.random_inplace(x, generator=0)  # call-overload
infini.ops.gemm(x, x, out, trans_a="yes")  # call-overload
infini.ops.causal_softmax(x, x, out)  # call-arg
infini.ops.no_such_operator(x, out)  # attr-defined
infini.ops.NoSuchOperator.clear_cache()  # attr-defined
infini.ops.Abs.no_such_method()  # attr-defined
slots: list[str] = infini.ops.Abs.active_implementation_indices("cpu")  # assignment
result = infini.ops.abs(x, out)  # func-returns-value
"""


@dataclass(frozen=True)
class Checked:
    """Return the error codes of strict mypy by file and line."""

    output: str

    def codes(self, file: str) -> dict[int, str]:
        """The code of each line, the first where it has several."""
        pattern = rf"^{re.escape(file)}:(\d+): error: .*\[([a-z-]+)\]$"
        found: dict[int, str] = {}
        for line, code in re.findall(pattern, self.output, re.MULTILINE):
            found.setdefault(int(line), code)
        return found


@pytest.fixture(scope="module")
def library(root: Path, schemas: Schemas) -> Library:
    """All operators of the installed torch, and all hand-written ones."""
    bases = read_bases(root / "src" / "base")
    return make_library(schemas, None, bases, bases)


def named_operators(library: Library) -> Library:
    """The library with the operators whose functions or classes the programs name."""
    names = set(re.findall(r"\w+", f"{GOOD}{BAD}".lower()))
    operators = tuple(operator for operator in library.operators if operator.name in names)
    return replace(library, operators=operators)


@pytest.fixture(scope="module", params=["named", pytest.param("all", marks=pytest.mark.complete)])
def checked(
    request: pytest.FixtureRequest, library: Library, tmp_path_factory: pytest.TempPathFactory
) -> Checked:
    """Runs mypy once on a stub and on the programs; that of all operators takes 50 CPU-seconds."""
    if request.param == "named":
        library = named_operators(library)
    folder = tmp_path_factory.mktemp("stubs")
    stub = folder / "infini" / "ops" / STUB_NAME
    stub.parent.mkdir(parents=True)
    stub.write_text(render_torch(library, frozenset())[STUB_NAME])
    (folder / "good.py").write_text(GOOD)
    (folder / "bad.py").write_text(BAD)
    cache = f"--cache-dir={cache_folder(request, 'mypy')}"  # of torch's and NumPy's modules
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--no-pretty", cache]
    result = subprocess.run(
        [*command, "--explicit-package-bases", stub.relative_to(folder), "good.py", "bad.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,  # it finds the errors of bad.py
    )
    assert not result.stderr
    assert result.returncode == 1
    return Checked(output=result.stdout)


def test_the_stub_passes(checked: Checked) -> None:
    assert checked.codes(str(Path("infini") / "ops" / STUB_NAME)) == {}


def test_a_good_program_passes(checked: Checked) -> None:
    assert checked.codes("good.py") == {}


def test_bad_calls_are_reported(checked: Checked) -> None:
    expected = {
        number: line.partition("  # ")[2]
        for number, line in enumerate(BAD.splitlines(), 1)
        if "  # " in line
    }
    assert checked.codes("bad.py") == expected


def operator_of(library: Library, name: str) -> Operator:
    return next(operator for operator in library.operators if operator.name == name)


def test_inputs_with_defaults_stand_before_the_outs_or_go_by_keyword(library: Library) -> None:
    addmv = operator_of(library, "addmv")
    calls = [str(signature).partition("implementation_index")[0] for signature in signatures(addmv)]
    first = "input: _Tensor, mat: _Tensor, vec: _Tensor, "
    assert calls[:3] == [
        f"{first}out: _Tensor, *, beta: _Scalar = 1, alpha: _Scalar = 1, ",
        f"{first}beta: _Scalar, out: _Tensor, *, alpha: _Scalar = 1, ",
        f"{first}beta: _Scalar, alpha: _Scalar, out: _Tensor, *, ",
    ]


def test_what_torch_takes_by_name_is_keyword_only_beside_another_overload(library: Library) -> None:
    calls = list(map(str, signatures(operator_of(library, "addmm"))))
    assert any("mat2: _Tensor, out: _Tensor, *, beta: _Scalar = 1" in call for call in calls)
    assert not any("mat2: _Tensor, beta" in call for call in calls)


def test_without_outs_after_them_defaults_are_those_of_python(library: Library) -> None:
    (signature,) = signatures(operator_of(library, "gelu_inplace"))
    assert str(signature).startswith("input: _Tensor, approximate: _String = 'none', *, ")


def test_signatures_that_no_call_reaches_are_left_out(library: Library) -> None:
    operator = operator_of(library, "all")
    *others, last = operator.overloads
    assert last.schema.full_name == "all.dims_out"  # before all.all_out it would take its calls
    operator = replace(operator, overloads=(last, *others))
    every_form = sum(overload.default_count + 1 for overload in operator.overloads)
    assert len(signatures(operator)) == every_form - 1
