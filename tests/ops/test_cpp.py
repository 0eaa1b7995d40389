"""The installed headers and library, as a C++ program uses them."""

from __future__ import annotations

import ast
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from installed import Overload, class_name, operator_names, overloads
from programs import output_of
from test_signatures import REQUIRED, Signature, declared, of_operator, written

import infini.ops
import torch

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "operators.cc"
BASES = EXAMPLE.parents[1] / "src" / "base"
INCLUDE = infini.ops.include_dir()
PACKAGE = INCLUDE.parent
COMPILER = ("c++", "-std=c++17", "-Wall", "-Wextra", "-Werror", f"-I{INCLUDE}")
TORCH = Path(torch.__file__).parent


def link_options(package: Path, *, names_torch: bool) -> list[str]:
    """The options of docs/the-library.md; a library beside torch finds it."""
    options = [str(package / "libinfini_ops.so"), f"-Wl,-rpath,{package}"]
    if names_torch:
        options += ["-Wl,--no-as-needed", f"-Wl,-rpath,{TORCH / 'lib'}"]
        options += [str(TORCH / "lib" / name) for name in ("libtorch_cpu.so", "libc10.so")]
    return options


LINK = link_options(PACKAGE, names_torch=PACKAGE.parents[1] != TORCH.parent)

PROBE = """
#include <infini/ops/operator.h>

#include <cstdio>
#include <stdexcept>

using namespace infini::ops;

constexpr Parameter kParameters[] = {
    {Parameter::Type::kTensor, "input"},
    Parameter(Parameter::Type::kFloat, "eps").Default(0.5),
    Parameter(Parameter::Type::kTensor, "out").Out(),
};

int main() {
  Register("probe", "out", {kParameters, 3}, {Device::Type::kCpu, 0, nullptr});
  std::puts(Signature(FindOverload("probe", "out")).c_str());
  try {
    Register("probe", "out", {kParameters, 2}, {Device::Type::kCpu, 1, nullptr});
  } catch (const std::logic_error& error) {
    std::puts(error.what());
  }
}
"""

# The literal that a new user writes for an argument of each ATen type.
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
    output_of([*COMPILER, source, *LINK, "-o", program])
    return output_of([program]).splitlines()


@pytest.mark.cpu_kernels
@pytest.mark.operators("add", "clamp", "mean")
def test_the_example_runs_without_python(tmp_path: Path) -> None:
    assert run_program(EXAMPLE, tmp_path) == [
        "x + y       = 9 ... 34",
        "x + y / 2   = 4 ... 19",
        "at most 2   = -1 ... 2",
        "row means   = 0, 3",
        "by slot 8   = 9 ... 34",
        "error: add: slot 0 takes aligned strided tensors of one real type, an alpha that the type "
        "can hold, and an out of the shape that they broadcast to; out must not overlap itself, or "
        "an input unless both are the same view; got float32[2, 3], float32[2] "
        "and out float32[2, 3]",
    ]


@pytest.mark.full_suite
@pytest.mark.operators("add", "clamp", "mean")
def test_a_library_in_another_folder_than_torchs_finds_it(tmp_path: Path) -> None:
    """The program names torch. `pip install --target` and `--user` install into such a folder."""
    package, program = tmp_path / "infini" / "ops", tmp_path / "operators"
    shutil.copytree(PACKAGE, package)
    link = link_options(package, names_torch=True)
    compiler = ("c++", "-std=c++17", f"-I{package / 'include'}")
    output_of([*compiler, EXAMPLE, *link, "-o", program])
    assert "by slot 8   = 9 ... 34\n" in output_of([program])


@pytest.mark.operators("addmm", "div", "linalg_matrix_norm", "triu_inplace")
def test_defaults_that_are_left_out_are_those_of_the_schema(tmp_path: Path) -> None:
    """The defaults of numbers, of a list and of a text are those of the schema."""
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


def parts(type_: str) -> tuple[str, bool, bool]:
    """Splits an ATen type: its element, whether it is a list, whether it may be absent."""
    match = re.fullmatch(r"(\w+)(\?)?(\[\d*\])?(\?)?", type_)
    assert match, type_
    element, is_optional, is_list, is_optional_list = match.groups()
    return element, bool(is_list), bool(is_optional_list if is_list else is_optional)


def literal(type_: str) -> str:
    """Returns an argument of an ATen type: "{1, 1}" for ``int[2]``."""
    element, is_list, is_optional = parts(type_)
    if not is_list:
        return LITERALS[element]
    values = f"{{{LITERALS[element]}, {LITERALS[element]}}}"
    return f"{{{values}}}" if is_optional else values


def places(overload: Overload, signature: Signature) -> Iterator[list[int]]:
    """Yields the parameters of each form: all, then without one more of the last inputs."""
    end = len(signature) - sum(each.is_out for each in overload.aten()._schema.arguments)
    outs = range(end, len(signature))
    yield [*range(end), *outs]
    while end and signature[end - 1][2] is not REQUIRED:
        end -= 1
        yield [*range(end), *outs]


def calls(overload: Overload) -> Iterator[str]:
    """Calls an overload in each of its forms."""
    signature = declared(overload)
    for given in places(overload, signature):
        arguments = ", ".join(literal(signature[place][0]) for place in given)
        yield f"  {class_name(overload.name)}::Call({arguments});"


@pytest.mark.operators
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
    output_of([*COMPILER, "-fsyntax-only", "calls.cc"], cwd=tmp_path)


# Those that projects turn into errors.
WARNINGS = (
    *("-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Wsign-conversion"),
    *("-Wold-style-cast", "-Wcast-qual", "-Wnon-virtual-dtor", "-Woverloaded-virtual", "-Wundef"),
)


def headers(generated: int) -> list[str]:
    """Returns the hand-written ones, and so many of those that the generator writes."""
    names = sorted(path.relative_to(INCLUDE).as_posix() for path in INCLUDE.rglob("*.h"))
    hand_written = {path.stem for path in BASES.glob("*.h")}
    others = [it for it in names if "/base/" in it and Path(it).stem not in hand_written]
    step = len(others) // generated + 1
    return [name for name in names if name not in others or name in others[::step]]


def check_headers(compiler: str, standard: str, names: Sequence[str], folder: Path) -> None:
    """Compiles a file that includes them; all warnings are errors."""
    source = folder / "headers.cc"
    source.write_text("".join(f"#include <{name}>\n" for name in names))
    options = (f"-std={standard}", *WARNINGS, "-Werror", f"-I{INCLUDE}", "-fsyntax-only")
    output_of([compiler, *options, source])


@pytest.mark.full_suite
def test_no_header_has_a_warning(tmp_path: Path) -> None:
    """Not those of one compiler only: of all that are installed."""
    names = headers(generated=20)
    assert len(names) > 10
    for compiler in {"c++", *filter(shutil.which, ("g++", "clang++"))}:
        for standard in ("c++17", "c++20"):
            check_headers(compiler, standard, [*names[::-1], *names], tmp_path)


@pytest.mark.full_suite
def test_every_header_includes_what_it_needs(tmp_path: Path) -> None:
    for name in headers(generated=1):
        check_headers("c++", "c++17", [name], tmp_path)


# The types that ``Call`` takes.
TYPES = {
    "Tensor": "Tensor",
    "Scalar": "Scalar",
    "int": "std::int64_t",
    "SymInt": "std::int64_t",
    "DeviceIndex": "std::int64_t",
    "float": "double",
    "bool": "bool",
    "str": "std::string_view",
    "ScalarType": "DataType",
    "Layout": "Layout",
    "MemoryFormat": "MemoryFormat",
    "Device": "Device",
}


def call_type(type_: str) -> str:
    """Returns how ``Call`` takes an ATen type: "const std::optional<double>&" for ``float?``."""
    element, is_list, is_optional = parts(type_)
    if element == "Generator":
        return "std::nullopt_t"
    spelled = f"Span<{TYPES[element]}>" if is_list else TYPES[element]
    if is_optional:
        return f"const std::optional<{spelled}>&"
    return f"const {spelled}&" if spelled in ("Tensor", "Scalar") else spelled


def number(place: int, type_: str) -> object:
    """Returns the value that ``Value`` in the program below creates for a parameter."""
    element, is_list, _ = parts(type_)
    if element == "Generator":
        return None
    value = place % 2 if element == "bool" else 100 + place
    return str(value) if element == "str" else [value] if is_list else value


def forms(name: str) -> Iterator[tuple[str, list[object]]]:
    """Yields the types of every ``Call`` of an operator, and its arguments by torch's schema.

    Inputs with defaults may be left out from the last on; the first form of equal types counts.
    """
    seen = set()
    for overload in of_operator(name):
        signature = declared(overload)
        outs = written(overload)
        names = [f"{name}!" if name in outs else name for _, name, _ in signature]
        for given in places(overload, signature):
            types = ", ".join(call_type(signature[place][0]) for place in given)
            if types in seen:
                continue
            seen.add(types)
            values = [default for _, _, default in signature]
            for count, place in enumerate(given):
                values[place] = number(count, signature[place][0])
            yield types, [overload.overload_name, names, values]


DISPATCH_THAT_PRINTS = """
#include <cstdio>

using namespace infini::ops;

char memory[200];

// A value that encodes its position among the arguments.
template <typename T>
struct Value {
  static T At(int place) { return static_cast<T>(100 + place); }
};
template <>
struct Value<bool> {
  static bool At(int place) { return place % 2; }
};
template <>
struct Value<Tensor> {
  static Tensor At(int place) { return Tensor(memory + 100 + place, {}, DataType::kUInt8); }
};
template <>
struct Value<Device> {
  static Device At(int place) { return {Device::Type::kCpu, 100 + place}; }
};
template <>
struct Value<std::nullopt_t> {
  static std::nullopt_t At(int) { return std::nullopt; }
};
template <>
struct Value<std::string_view> {
  static std::string_view At(int place) {
    static std::string texts[100];
    return texts[place] = std::to_string(100 + place);
  }
};
template <typename T>
struct Value<Span<T>> {
  static Span<T> At(int place) {
    static T values[100];
    values[place] = Value<T>::At(place);
    return Span<T>(values + place, 1);
  }
};
template <typename T>
struct Value<std::optional<T>> {
  static std::optional<T> At(int place) { return Value<T>::At(place); }
};

void Print(double value) { std::printf("%.17g, ", value); }
void Print(const Scalar& value) { Print(value.To<double>()); }
void Print(const Tensor& value) { Print(double(value.data<char>() - memory)); }

template <typename T>
void PrintList(const Argument& list) {
  std::printf("[");
  for (std::size_t i = 0; i < list.size; ++i) Print(list.As<T>()[i]);
  std::printf("], ");
}

void Print(const Argument& argument) {
  switch (argument.tag) {
    case Argument::Tag::kScalar:
    case Argument::Tag::kEnumeration:
      return Print(argument.scalar);
    case Argument::Tag::kDevice:
      return Print(argument.device.index());
    case Argument::Tag::kString:
      std::printf("'%.*s', ", int(argument.size), argument.As<char>());
      return;
    case Argument::Tag::kTensor:
      return Print(*argument.As<Tensor>());
    case Argument::Tag::kTensors:
      return PrintList<Tensor>(argument);
    case Argument::Tag::kIntegers:
      return PrintList<std::int64_t>(argument);
    case Argument::Tag::kDoubles:
      return PrintList<double>(argument);
    case Argument::Tag::kBooleans:
      return PrintList<bool>(argument);
    case Argument::Tag::kScalars:
      return PrintList<Scalar>(argument);
    default:
      std::printf("None, ");
  }
}

void infini::ops::Dispatch(const Overload& overload, Span<Argument> arguments, const CallOptions&) {
  std::printf("['%s', [", overload.name);
  for (const Parameter& parameter : overload.parameters) {
    std::printf("'%s%s', ", parameter.name, parameter.is_out ? "!" : "");
  }
  std::printf("], [");
  for (const Argument& argument : arguments) Print(argument);
  std::printf("]]\\n");
}

template <typename... Types>
struct Form {
  using Call = void (*)(Types..., const CallOptions&);

  static void Show(Call call) { Show(call, std::index_sequence_for<Types...>()); }

  template <std::size_t... place>
  static void Show(Call call, std::index_sequence<place...>) {
    try {
      call(Value<std::decay_t<Types>>::At(place)..., {});
    } catch (const std::exception& error) {
      std::puts(error.what());
    }
  }
};

int main() {
// calls
}
"""


@pytest.mark.full_suite
@pytest.mark.operators
def test_every_form_of_call_dispatches_what_the_schema_says(tmp_path: Path) -> None:
    """The program has its own ``Dispatch``, which prints the arguments of every ``Call``."""
    expected = [
        (name, types, arguments) for name in operator_names() for types, arguments in forms(name)
    ]
    source = tmp_path / "program.cc"
    includes = "\n".join(f"#include <infini/ops/base/{name}.h>" for name in operator_names())
    calls = "\n".join(
        f"  Form<{types}>::Show({class_name(name)}::Call);" for name, types, _ in expected
    )
    source.write_text(includes + DISPATCH_THAT_PRINTS.replace("// calls", calls))
    lines = run_program(source, tmp_path)
    for (name, _, arguments), line in zip(expected, lines, strict=True):
        got = ast.literal_eval(line) if line.startswith("[") else line  # an error's message
        assert got == arguments, name


def test_an_operator_of_another_library_shows_the_names_of_its_parameters(tmp_path: Path) -> None:
    """The generator, which writes the other signatures, has not seen it."""
    source = tmp_path / "probe.cc"
    source.write_text(PROBE)
    known = "probe(input, eps, out)"
    assert run_program(source, tmp_path) == [
        known,
        "an implementation of 'probe.out' has other parameters than the operator: got "
        f"probe(input, eps), expected {known}",
    ]
