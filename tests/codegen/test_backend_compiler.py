"""--impl-path with a compiler: definitions are judged as the compiler judges them."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from codegen.aten import NativeFunctions, Torch
from codegen.backend.compiler import find_compiler
from codegen.backend.definitions import check_definitions
from codegen.backend.document import read_backend_file
from codegen.backend.emit import render_backend
from codegen.errors import GenerationError

# The types of the kernels below, in place of torch's headers, which take seconds to read.
TENSOR = """\
#pragma once
#include <cstdint>
namespace at { struct Tensor {}; struct Scalar {}; using IntArrayRef = const int64_t*; }
namespace c10 { using at::Scalar; }
namespace torch { using at::Tensor; }
"""
YAML = """\
backend: PrivateUse1
cpp_namespace: acme::npu
class_name: Kernels
supported: [abs, add.Tensor]
"""
START = '#include "PrivateUse1NativeFunctions.h"\nusing at::Tensor; using at::Scalar;\n'
IN = "namespace acme::npu {\n"
ADD = """
at::Tensor acme::npu::Kernels::add(const at::Tensor&, const at::Tensor&, const at::Scalar&) {
  return {};
}
"""
BODY = "{ return self; }"
K = "acme::npu::Kernels"
LIKE = f"at::Tensor {K}::abs(const at::Tensor& self)"

VALID = [
    f"{LIKE} {BODY}",
    f"Tensor {K}::abs(const Tensor& self) {BODY}",
    f"at :: Tensor\nacme::npu\n::\nKernels::abs\n(\nat::Tensor const & // a\n/* b */ self)\n{BODY}",
    f"::at::Tensor acme::npu::Kernels::abs(const ::at::Tensor & self) {BODY}",
    f"torch::Tensor {K}::abs(torch::Tensor const &self) {BODY}",
    f"auto {K}::abs(const Tensor& self) -> at::Tensor {BODY}",
    f"auto {K}::abs(const Tensor& self) -> Tensor {{ return self; }}",
    f"[[nodiscard]] {LIKE} {BODY}",
    f"Tensor {K}::abs([[maybe_unused]] const Tensor& self) {BODY}",
    f'__attribute__((visibility("default"))) {LIKE} {BODY}',
    f"#define API\nAPI {LIKE} {BODY}",
    f"#define EXPORT(x)\nEXPORT(1) {LIKE} {BODY}",
    f"#define NOTHING(x)\nNOTHING(x)\n{LIKE} {BODY}",
    f"{IN}Tensor Kernels::abs(const Tensor& self) {BODY} }}",
    f"namespace acme {{ namespace npu {{ Tensor Kernels::abs(const Tensor& self) {BODY} }} }}",
    f"namespace acme {{ Tensor npu::Kernels::abs(const Tensor& self) {BODY} }}",
    f'extern "C++" {{ {LIKE} {BODY} }}',
    f"namespace {{ int f() {{ return 1'000; }} }}  // }}\n{LIKE} {BODY}",
    f"using T = at::Tensor;\nT {K}::abs(const T& self) {BODY}",
    f"typedef const at::Tensor& Input;\nTensor {K}::abs(Input self) {BODY}",
    f"#define INPUT const at::Tensor&\nTensor {K}::abs(INPUT self) {BODY}",
    f"using C = {K};\nTensor C::abs(const Tensor& self) {BODY}",
    f"typedef {K} C;\nTensor C::abs(const Tensor& self) {BODY}",
    f"namespace other {{ using T = at::Tensor; }}\nother::T {K}::abs(const other::T& self) {BODY}",
    f"namespace n = acme::npu;\nTensor n::Kernels::abs(const Tensor& self) {BODY}",
    f"namespace t = at;\nt::Tensor {K}::abs(const t::Tensor& self) {BODY}",
    f"{LIKE} <% return self; %>",
    "#define PASTE Ten\\\nsor\nat::PASTE acme::npu::Ker\\\nnels::a\\\nbs(const Tensor& self) "
    + BODY,
    f"#define DEFINE(x) Tensor {K}::x(const Tensor& self) {BODY}\nDEFINE(abs)",
    f"#define DEFINE(x) Tensor {K}::x##s(const Tensor& self) {BODY}\nDEFINE(ab)",
    f"#define CLASS {K}\nTensor CLASS::abs(const Tensor& self) {BODY}",
    f"#if 1\n{LIKE} {BODY}\n#else\nbroken(\n#endif",
    f"#if 0\n{LIKE.replace('self', 'x, int')} {BODY}\n#endif\n{LIKE} {BODY}",
    f"Tensor {K}::abs(\n#if 0\nTensor self\n#else\nconst Tensor& self\n#endif\n) {BODY}",
    f"decltype(at::Tensor()) {K}::abs(const decltype(at::Tensor())& self) {BODY}",
    f"template <class T> using Id = T;\nId<Tensor> {K}::abs(const Id<Tensor>& self) {BODY}",
    f"using namespace acme::npu;\nTensor Kernels::abs(const Tensor& self) {BODY}",
    f"struct Other {{ Tensor abs(Tensor x) {{ return x; }} }};\n{LIKE} try {BODY} catch (...) "
    "{ throw; }",
]
BAD = [
    "",
    f"{LIKE};",
    f"// {LIKE} {BODY}",
    f"#if 0\n{LIKE} {BODY}\n#endif",
    f"#ifdef SOMETHING\n{LIKE} {BODY}\n#endif",
    f'auto text = R"cpp( {LIKE} {BODY} )cpp";',
    f"#define MAKE {LIKE} {BODY}",
    f"Tensor {K}::abs(Tensor self) {BODY}",
    f"Tensor& {K}::abs(const Tensor& self) {{ throw 1; }}",
    f"const Tensor {K}::abs(const Tensor& self) {BODY}",
    f"Tensor {K}::abs(const Tensor& self, int) {BODY}",
    f"Tensor {K}::abs(Tensor& self) {BODY}",
    f"Tensor {K}::abs() {{ return {{}}; }}",
    f"template <class T> Tensor {K}::abs(const Tensor& self) {BODY}",
    f"{LIKE} const {BODY}",
    f"static {LIKE} {BODY}",
    f"inline {LIKE} {BODY}",
    f"{LIKE} {BODY}\n{LIKE} {BODY}",
    f"{LIKE} {BODY}\nTensor {K}::neg(const Tensor& self) {BODY}",
    f"namespace other {{ struct Kernels {{ Tensor abs(const Tensor&); }}; }}\n"
    f"Tensor other::Kernels::abs(const Tensor& self) {BODY}",
    f"namespace other {{ Tensor Kernels::abs(const Tensor& self) {BODY} }}",
    f"#define DEFINE(x) Tensor {K}::x(Tensor self) {BODY}\nDEFINE(abs)",
]

Judge = Callable[..., list[str]]


@pytest.fixture(params=["g++", "clang++"])
def judge(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    functions: NativeFunctions,
    monkeypatch: pytest.MonkeyPatch,
) -> Judge:
    """Return the findings for C++ files in src/, by name."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CXX", request.param)
    (include := tmp_path / "torch" / "include" / "ATen").mkdir(parents=True)
    (include / "Tensor.h").write_text(TENSOR)
    Path("npu.yaml").write_text(YAML)
    Path("src").mkdir()
    torch = Torch(torch=tmp_path / "torch", torchgen=tmp_path)
    file = read_backend_file(Path("npu.yaml"), functions)
    header = render_backend(file, functions)["PrivateUse1NativeFunctions.h"]
    Path("include").mkdir()
    Path("include/PrivateUse1NativeFunctions.h").write_text(header)
    compiler = find_compiler(torch, Path("src"))
    if isinstance(compiler, str):
        pytest.skip(compiler)
    cache: dict[str, object] = {}

    def judge(**texts: str) -> list[str]:
        for name, text in texts.items():
            Path(f"src/{name.replace('_', '.')}").write_text(text)
        src = Path("src")
        try:
            found = check_definitions(file, functions, src, compiler, header=header, cache=cache)
        except GenerationError as error:
            return ["error", *str(error).splitlines()]
        return list(found)

    return judge


def links(text: str) -> bool:
    """True if g++ compiles the file, and links it with code that calls both kernels."""
    program = f"{START}int main() {{ {K}::abs({{}}); {K}::add({{}}, {{}}, {{}}); }}\n"
    Path("oracle.cc").write_text(text)
    Path("main.cc").write_text(program)
    command = ["g++", "-std=c++17", "-w", "-Iinclude", "-Itorch/include", "oracle.cc", "main.cc"]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


@pytest.mark.parametrize("text", [*VALID, *BAD])
def test_each_spelling_is_judged_as_the_compiler_judges_it(judge: Judge, text: str) -> None:
    source = START + text + ADD
    found = judge(kernels_cc=source)
    assert (found[:1] != ["error"]) == links(source) == (text in VALID)
    assert found == [] or text in BAD


def test_messages_have_the_place_and_the_difference(judge: Judge) -> None:
    signature = "at::Tensor Kernels::abs(const at::Tensor & self)"
    prefix = "Kernels::abs is not the kernel of 'abs' (npu.yaml:4): "
    texts = {
        f"Tensor {K}::abs(Tensor self) {BODY}": (
            "parameter 1 is 'Tensor self', expected 'const at::Tensor &'"
        ),
        f"const Tensor {K}::abs(const Tensor& self) {BODY}": (
            "it returns 'const Tensor', expected 'at::Tensor'"
        ),
        f"template <int N> {LIKE} {BODY}": "it is a template",
        f"{LIKE} const {BODY}": "it is a const member function",
        f"static {LIKE} {BODY}": "it is static",
    }
    for text, difference in texts.items():
        [_, error] = judge(kernels_cc=START + ADD + text)
        assert error.startswith("src/kernels.cc:7: Kernels::abs")
        assert difference in error
        assert error.startswith(f"src/kernels.cc:7: {prefix}{difference}; ex") == (
            not error.startswith("src/kernels.cc:7: Kernels::abs of 'abs': ")
        )
        assert error.endswith(signature) or "it is static" in error


def test_a_kernel_in_two_files_and_one_that_only_the_text_has(judge: Judge) -> None:
    kernel = START + LIKE + BODY
    assert judge(a_cc=kernel + ADD, b_cc=kernel) == [
        "error",
        "src/b.cc:3: Kernels::abs of 'abs': it is defined in several files: src/a.cc, src/b.cc; "
        "remove all but one",
    ]
    [_, error] = judge(b_cc="", a_cc=START + ADD, c_h=kernel)
    assert "the compiler does not see the definition at src/c.h:3" in error


def test_a_missing_header_leaves_its_file_to_the_text(judge: Judge) -> None:
    kernel = f"#include <acl.h>\n{START}{LIKE} {BODY}\n"
    [note] = judge(a_cc=kernel, b_cc=START + ADD)
    assert note.startswith("src/a.cc:1: not compared by the compiler: ")
    assert "acl.h" in note
    [_, error, _] = judge(a_cc=kernel.replace("const at", "at"))
    assert "parameter 1 is 'at::Tensor & self'" in error


def test_a_macro_of_a_header_defines_a_kernel_where_the_class_is_not_named(judge: Judge) -> None:
    define = f"{START}#define DEFINE(x) {LIKE.replace('abs', 'x')} {BODY}\n"
    assert judge(define_h=define, a_cc=START + ADD, b_cc='#include "define.h"\nDEFINE(abs)\n') == []


def test_files_that_did_not_change_are_not_compiled_again(
    judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    from codegen.backend import compiler

    compiled: list[str] = []
    compile_unit = compiler._compile

    def count(*arguments: Any) -> Any:
        compiled.append(arguments[2])
        return compile_unit(*arguments)

    monkeypatch.setattr(compiler, "_compile", count)
    texts = {"a_cc": f"{START}{LIKE} {BODY}", "b_cc": START + ADD}
    assert judge(**texts) == []
    assert len(compiled) == 2
    assert judge() == []
    assert len(compiled) == 2
    assert judge(b_cc=START + ADD + "\n") == []
    assert len(compiled) == 3
