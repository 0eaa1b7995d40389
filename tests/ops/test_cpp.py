"""The installed headers and library, as a C++ program uses them."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from installed import Overload, Parameter, class_name, operator_names, overloads

import infini.ops

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "operators.cc"
INCLUDE = infini.ops.include_dir()
PACKAGE = INCLUDE.parent
COMPILER = ("c++", "-std=c++17", "-Wall", "-Wextra", "-Werror", f"-I{INCLUDE}")
LINK = (str(PACKAGE / "libinfini_ops.so"), f"-Wl,-rpath,{PACKAGE}")

# What a newcomer writes for an argument of each ATen type.
LITERALS = {
    "Tensor": "tensor",
    "Scalar": "1",
    "int": "1",
    "SymInt": "1",
    "DeviceIndex": "1",
    "float": "1",
    "bool": "true",
    "str": '"text"',
    "ScalarType": "DataType::kFloat8E4M3FN",
    "Layout": "Layout::kSparseCsr",
    "MemoryFormat": "MemoryFormat::kContiguous",
    "Device": "Device::Type::kCpu",
    "Generator": "std::nullopt",
}


def run_program(source: Path, folder: Path) -> list[str]:
    """Compiles a program against the library; returns the lines that it prints."""
    program = folder / "program"
    subprocess.run([*COMPILER, source, *LINK, "-o", program], check=True)
    return subprocess.run([program], capture_output=True, text=True, check=True).stdout.splitlines()


def test_the_example_runs_without_python(tmp_path: Path) -> None:
    assert run_program(EXAMPLE, tmp_path) == [
        "x + y       = 9 ... 34",
        "x + y / 2   = 4 ... 19",
        "at most 2   = -1 ... 2",
        "row means   = 0, 3",
        "by slot 8   = 9 ... 34",
        "error: add: slot 0 takes aligned strided tensors of one real type, an alpha that the type "
        "can hold, and an out of the shape they broadcast to that overlaps neither itself nor, in "
        "part, an input; got float32[2, 3], float32[2] and out float32[2, 3]",
    ]


def test_defaults_that_are_left_out_are_those_of_the_schema(tmp_path: Path) -> None:
    """Numbers, a list and a text: the defaults are those of the schema."""
    source = tmp_path / "program.cc"
    source.write_text("""
#include <cstdio>
#include <infini/ops/base/addmm.h>
#include <infini/ops/base/div.h>
#include <infini/ops/base/linalg_matrix_norm.h>
#include <infini/ops/base/triu_inplace.h>

using namespace infini::ops;

int main() {
  float x[2][2] = {{1, 2}, {3, 4}};
  float y[2][2] = {};
  float z = 0;
  const Tensor input(x, {2, 2}, DataType::kFloat32);
  const Tensor out(y, {2, 2}, DataType::kFloat32);
  const Tensor norm(&z, {}, DataType::kFloat32);
  Addmm::Call(input, input, input, out);
  std::printf("%g\\n", y[1][1]);
  Addmm::Call(input, input, input, 2, out);
  std::printf("%g\\n", y[1][1]);
  Addmm::Call(input, input, input, 2, 0.5, out);
  std::printf("%g\\n", y[1][1]);
  LinalgMatrixNorm::Call(input, norm);
  std::printf("%.3f\\n", *norm.data<float>());
  LinalgMatrixNorm::Call(input, "nuc", norm);
  std::printf("%.3f\\n", *norm.data<float>());
  LinalgMatrixNorm::Call(input, 1, norm);
  std::printf("%g\\n", *norm.data<float>());
  LinalgMatrixNorm::Call(input, 1, {1, 0}, norm);
  std::printf("%g\\n", *norm.data<float>());
  Div::Call(input, Tensor(x, {}, DataType::kFloat32), "floor", out);
  TriuInplace::Call(input);
  std::printf("%g %g\\n", x[1][0], y[1][1]);
}
""")
    assert run_program(source, tmp_path) == [
        *("26", "30", "19"),  # 4 + 22, 2 * 4 + 22, 2 * 4 + 0.5 * 22
        *("5.477", "5.831"),  # Frobenius, nuclear
        *("6", "7"),  # the largest sum of a column, of a row
        "0 4",
    ]


def literal(parameter: Parameter) -> str:
    """Returns an argument of the parameter's type: "{1, 1}" for ``int[2]``."""
    match = re.fullmatch(r"(\w+)\??(\[\d*\])?(\?)?", parameter.type)
    assert match, parameter.type
    element, is_list, is_optional = match.groups()
    if not is_list:
        return LITERALS[element]
    values = f"{{{LITERALS[element]}, {LITERALS[element]}}}"
    return f"{{{values}}}" if is_optional else values


def calls(overload: Overload) -> Iterator[str]:
    """Calls an overload with all of its inputs, then without the last one that has a default."""
    parameters = list(overload.parameters)
    while True:
        arguments = ", ".join(literal(parameter) for parameter in parameters)
        yield f"  {class_name(overload.name)}::Call({arguments});"
        inputs = len(parameters)
        while inputs and parameters[inputs - 1].is_out:
            inputs -= 1
        if not inputs or parameters[inputs - 1].default is None:
            return
        del parameters[inputs - 1]


def test_every_overload_can_be_called_with_literals(tmp_path: Path) -> None:
    """All headers fit into one program, and no call in it is ambiguous."""
    lines = [
        *(f"#include <infini/ops/base/{name}.h>" for name in operator_names()),
        "using namespace infini::ops;",
        "void CallEverything(const Tensor& tensor) {",
        *(line for overload in overloads() for line in calls(overload)),
        "}",
    ]
    (tmp_path / "calls.cc").write_text("\n".join(lines) + "\n")
    subprocess.run([*COMPILER, "-fsyntax-only", "calls.cc"], cwd=tmp_path, check=True)
