"""--impl-path: kernels that are declared, compared with those that C++ source defines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from codegen.aten import NativeFunctions
from codegen.backend.cpp_source import scan
from codegen.backend.definitions import check_definitions
from codegen.backend.document import read_backend_file
from codegen.backend.kernels import declared_kernels
from codegen.backend.model import BackendFile, Entry
from codegen.errors import GenerationError
from tests.cases import narrowed

ABS = "Tensor Kernels::abs(const Tensor& self) {}\n"
DECLARED_ABS = "expected at::Tensor Kernels::abs(const at::Tensor & self)"
DECLARED_ADD = (
    "expected at::Tensor Kernels::add(const at::Tensor & self, const at::Tensor & other, "
    "const at::Scalar & alpha)"
)

UNCOMPARED = "kernels.cc:1: not compared by the compiler: no compiler"

Check = Callable[..., list[str]]


@pytest.fixture
def check(tmp_path: Path, functions: NativeFunctions, monkeypatch: pytest.MonkeyPatch) -> Check:
    """Return the findings for a kernels.cc with this text and a file with these operators."""
    monkeypatch.chdir(tmp_path)

    def check(text: str, *operators: str, symint: str = "") -> list[str]:
        lists = "".join(f"  - {name}\n" for name in operators or ["abs"])
        Path("npu.yaml").write_text(
            f"backend: PrivateUse1\ncpp_namespace: torch_npu\nclass_name: Kernels\n"
            f"symint: [{symint}]\nsupported:\n{lists}"
        )
        Path("kernels.cc").write_text(text)
        file = read_backend_file(Path("npu.yaml"), functions)
        try:
            found = list(check_definitions(file, functions, Path("kernels.cc"), "no compiler"))
        except GenerationError as error:
            found = ["error", *str(error).splitlines()]
        assert UNCOMPARED in found or f"note: {UNCOMPARED}" in found
        return [each for each in found if UNCOMPARED not in each]

    return check


def test_a_kernel_that_is_defined(check: Check) -> None:
    assert check(ABS) == []


STRUCTURED = ("{func: mm.out, structured: true}", "abs")
PARAMETERS = "(const at::Tensor& self, const at::Tensor& mat2, const at::Tensor& out)"


@pytest.mark.parametrize(
    "head",
    [
        "TORCH_IMPL_FUNC(mm_out)",
        "TORCH_IMPL_FUNC(mm_out)\n",
        "void structured_mm_out::impl",
        "void torch_npu::structured_mm_out::impl",
    ],
)
def test_a_structured_kernel(check: Check, head: str) -> None:
    assert check(f"{ABS}{head}{PARAMETERS} {{}}\n", *STRUCTURED) == []


def test_a_structured_kernel_that_is_none(check: Check) -> None:
    expected = "expected void structured_mm_out::impl(const at::Tensor & self, "
    expected += "const at::Tensor & mat2, const at::Tensor & out)"
    wrong = f"{ABS}TORCH_IMPL_FUNC(mm_out)(const at::Tensor& self, at::Tensor, int64_t) {{}}\n"
    assert check(wrong, *STRUCTURED) == [
        "error",
        "kernels.cc:2: structured_mm_out::impl is not the kernel of 'mm.out' (npu.yaml:6): "
        "parameter 2 is 'at::Tensor', expected 'const at::Tensor &', "
        f"parameter 3 is 'int64_t', expected 'const at::Tensor &'; {expected}",
    ]
    plain = f"{ABS}at::Tensor& Kernels::mm_out{PARAMETERS} {{}}\n"
    [_, missing, note] = check(plain, *STRUCTURED)
    assert missing == f"npu.yaml:6: 'mm.out' has no kernel in kernels.cc; {expected}"
    assert "Kernels::mm_out(" in note
    other = f"{ABS}TORCH_IMPL_FUNC(mul_out){PARAMETERS} {{}}\n"
    [note] = check(other)
    assert note.startswith("kernels.cc:2: structured_mul_out::impl(")
    assert "is declared by no entry of npu.yaml" in note


def test_a_kernel_that_is_not(check: Check) -> None:
    assert check("// nothing\n", "abs", "add.Tensor") == [
        "error",
        f"npu.yaml:6: 'abs' has no kernel in kernels.cc; {DECLARED_ABS}",
        f"npu.yaml:7: 'add.Tensor' has no kernel in kernels.cc; {DECLARED_ADD}",
    ]


@pytest.mark.parametrize(
    "hidden",
    [
        f"// {ABS}",
        f"// \\\n{ABS}",
        f"/* {ABS} */",
        f"/* {ABS}",  # without an end
        f"#if 0\n{ABS}#endif\n",
        f"#if A\n#if 0\n{ABS}#endif\n#endif\n",
        f"#define MAKE \\\n  {ABS}",
        'auto text = "Tensor Kernels::abs(const Tensor& self) {";\n',
        f'auto text = R"cpp( {ABS} )cpp";\n',
        "Tensor Kernels::abs(const Tensor& self);\n",
        "Tensor f(const Tensor& x) { return torch_npu::Kernels::abs(x); }\n",
        "Tensor f(const Tensor& x) { if (x) { return Kernels::abs(x); } }\n",
        "Tensor f(const Tensor& x) { return (\n  Kernels::abs(x)\n); }\n",
        "auto result = Kernels::abs(x);\n",
        f"struct Other {{ {ABS} }};\n",
        "Tensor OtherKernels::abs(const Tensor& self) {}\n",
        "template <typename T> struct S { S() : Kernels::abs(1) {} };\n",
    ],
)
def test_what_is_no_definition(check: Check, hidden: str) -> None:
    assert check(hidden) == [
        "error",
        f"npu.yaml:6: 'abs' has no kernel in kernels.cc; {DECLARED_ABS}",
    ]
    assert check(f"{ABS}{hidden}") == []


@pytest.mark.parametrize(
    "definition",
    [
        "at::Tensor Kernels::abs(const at::Tensor & self) {}",
        "\ufeff#if 1\nat::Tensor Kernels::abs(const at::Tensor & self) {}\n#endif\n",
        "at::Tensor Kernels::abs(\r\n    const at::Tensor & self)\r\n{}\r\n",
        "at :: Tensor\nKernels\n::\nabs\n(\nat::Tensor const & // a name\n/* or not */)\n{\n}",
        "::at::Tensor Kernels::abs(const ::at::Tensor &) noexcept {}",
        "torch::Tensor Kernels::abs(torch::Tensor const &self) {}",
        "auto Kernels::abs(const at::Tensor& self) -> at::Tensor {}",
        "[[nodiscard]] at::Tensor Kernels::abs([[maybe_unused]] const at::Tensor& self) {}",
        '__attribute__((visibility("default"))) at::Tensor Kernels::abs(const at::Tensor& s) {}',
        "NPU_API at::Tensor Kernels::abs(const at::Tensor& self) {}",
        "NPU_EXPORT(1) at::Tensor Kernels::abs(const at::Tensor& self = {}) {}",
        "MACRO_WITHOUT_SEMICOLON(x)\nat::Tensor Kernels::abs(const at::Tensor& self) {}",
        "at::Tensor torch_npu::Kernels::abs(const at::Tensor& self) {}",
        "namespace torch_npu { at::Tensor Kernels::abs(const at::Tensor& self) {} }",
        "namespace torch_npu { at::Tensor torch_npu::Kernels::abs(const at::Tensor& self) {} }",
        'extern "C++" { namespace torch_npu { at::Tensor Kernels::abs(const at::Tensor& s) {} } }',
        "namespace { int f() { return 1'000; } }  // }\nTensor Kernels::abs(const Tensor& s) {}",
        "using K = torch_npu::Kernels;\nat::Tensor K::abs(const at::Tensor& self) {}",
        "int a[] = {1, 2};\nstruct X { int y{1}; } x;\nat::Tensor Kernels::abs(const Tensor& s) {}",
    ],
)
def test_usual_spellings(check: Check, definition: str) -> None:
    assert check(definition) == []


@pytest.mark.parametrize(
    ("operator", "returns", "parameters"),
    [
        (
            "sum.dim_IntList",
            "Tensor",
            "const Tensor& s, OptionalIntArrayRef d, bool k, c10::optional<ScalarType> t",
        ),
        (
            "sum.dim_IntList",
            "Tensor",
            "const Tensor& s, c10::OptionalArrayRef<int64_t> d, const bool k, "
            "std::optional<c10::ScalarType> t",
        ),
        ("view", "Tensor", "const Tensor& s, c10::ArrayRef<int64_t> size"),
        ("view", "Tensor", "const Tensor& s = {}, IntArrayRef size = {1, 2}"),
        ("view", "Tensor", "const Tensor& s = Tensor(f(1, 2)), IntArrayRef size = 1 < 2"),
        ("cat", "Tensor", "const c10::IListRef<at::Tensor>& tensors, int64_t dim"),
        ("stack", "Tensor", "at::ArrayRef<at::Tensor> tensors, int64_t dim"),
        (
            "index.Tensor",
            "Tensor",
            "const Tensor& s, const c10::List<::std::optional<Tensor> >& indices",
        ),
        ("max.dim", "std::tuple<Tensor, Tensor>", "const Tensor& s, const int64_t d, bool k"),
        ("split.Tensor", "std::vector<at::Tensor>", "const Tensor& s, int64_t n, int64_t d"),
        (
            "convolution_backward",
            "std::tuple<Tensor,Tensor,Tensor>",
            "const Tensor& a, const Tensor& b, const Tensor& c, OptionalIntArrayRef d, "
            "IntArrayRef e, IntArrayRef f, IntArrayRef g, bool h, IntArrayRef i, int64_t j, "
            "std::array<bool, 3ul> k",
        ),
        ("_foreach_abs_", "void", "TensorList self"),
    ],
)
def test_usual_spellings_of_types(
    check: Check, operator: str, returns: str, parameters: str
) -> None:
    name = operator.partition(".")[0]
    assert check(f"{returns} Kernels::{name}({parameters}) {{}}\n", operator) == []


@pytest.mark.parametrize("is_symint", [False, True])
def test_all_declarations_of_torch_are_understood(
    tmp_path: Path, functions: NativeFunctions, is_symint: bool
) -> None:
    """Each operator defined as it is declared, and with one parameter more."""
    names = [str(each.func.name) for each in functions.functions]
    file = BackendFile(
        path=tmp_path / "npu.yaml",
        backend="PrivateUse1",
        class_name="Kernels",
        cpp_namespace="torch::npu",
        extra_headers=(),
        supported=tuple(Entry(name=name, line=1) for name in names),
        autograd=(),
        symint=frozenset(names if is_symint else ()),
        use_out_as_primary=False,
        device_guard=False,
    )
    kernels = declared_kernels(file, functions)
    path = tmp_path / "kernels.cpp"
    definitions = "".join(f"{kernel.declaration} {{\n}}\n" for kernel in kernels)
    path.write_text(f"namespace torch {{ namespace npu {{\n{definitions}}} }}\n")
    note = f"{path}:1: not compared by the compiler: no compiler"
    assert check_definitions(file, functions, path, "no compiler") == (note,)

    path.write_text(definitions.replace(") {\n}", ", std::byte more) {\n}"))
    with pytest.raises(GenerationError, match="is not the kernel of 'abs'") as raised:
        check_definitions(file, functions, path, "no compiler")
    assert len(str(raised.value).splitlines()) == len(names) + 1


def test_another_signature(check: Check) -> None:
    text = f"""\
{ABS}
Tensor& Kernels::add(const Tensor& self, Tensor other, const Scalar& alpha) {{}}
Tensor Kernels::mul(const Tensor& self) {{}}
Tensor Kernels::view(const Tensor& self, c10::SymIntArrayRef size) {{}}
"""
    assert check(text, "abs", "add.Tensor", "mul.Tensor", "view") == [
        "error",
        "kernels.cc:3: Kernels::add is not the kernel of 'add.Tensor' (npu.yaml:7): it returns "
        "'Tensor &', expected 'at::Tensor', parameter 2 is 'Tensor other', expected "
        f"'const at::Tensor &'; {DECLARED_ADD}",
        "kernels.cc:4: Kernels::mul is not the kernel of 'mul.Tensor' (npu.yaml:8): it has 1 "
        "parameter, expected 2; expected at::Tensor Kernels::mul(const at::Tensor & self, const "
        "at::Tensor & other)",
        "kernels.cc:5: Kernels::view is not the kernel of 'view' (npu.yaml:9): parameter 2 is "
        "'c10::SymIntArrayRef size', expected 'at::IntArrayRef'; expected at::Tensor "
        "Kernels::view(const at::Tensor & self, at::IntArrayRef size)",
    ]


def test_overloads_are_told_apart(check: Check) -> None:
    tensor = (
        "Tensor Kernels::add(const Tensor& self, const Tensor& other, const Scalar& alpha) {}\n"
    )
    scalar = (
        "Tensor Kernels::add(const Tensor& self, const Scalar& other, const Scalar& alpha) {}\n"
    )
    both = ("add.Tensor", "add.Scalar")
    declared = DECLARED_ADD.replace("Tensor & other", "Scalar & other")
    assert check(tensor + scalar, *both) == []
    assert check(tensor, *both) == [
        "error",
        f"npu.yaml:7: 'add.Scalar' has no kernel in kernels.cc; {declared}",
    ]
    assert check(tensor + scalar, "add.Tensor") == [
        "kernels.cc:2: Kernels::add(const Tensor & self, const Scalar & other, const Scalar "
        "& alpha) is declared by no entry of npu.yaml; list 'add.Scalar' under supported, or "
        "remove it"
    ]


def test_the_nearest_overload_is_the_one_that_is_meant(check: Check) -> None:
    text = "Tensor Kernels::add(const Tensor& self, const Scalar& other, Scalar alpha) {}\n"
    findings = check(text, "add.Tensor", "add.Scalar")
    assert [finding.partition(":")[0] for finding in findings] == [
        "error",
        "kernels.cc",
        "npu.yaml",
    ]
    assert "'add.Scalar' (npu.yaml:7): parameter 3 is 'Scalar alpha', expected" in findings[1]


def test_a_definition_with_a_misspelt_name(check: Check) -> None:
    assert check("Tensor Kernels::aabs(const Tensor& self) {}\n") == [
        "error",
        f"npu.yaml:6: 'abs' has no kernel in kernels.cc; {DECLARED_ABS}",
        "note: kernels.cc:1: Kernels::aabs(const Tensor & self) is declared by no entry of "
        "npu.yaml; did you mean 'abs'?",
    ]


def test_a_definition_too_many_is_a_note(check: Check) -> None:
    assert check(f"{ABS}Tensor Kernels::quux(int) {{}}\n") == [
        "kernels.cc:2: Kernels::quux(int) is declared by no entry of npu.yaml; correct its name "
        "and types, or remove it"
    ]


def unlisted(line: int, kernel: str, operators: str) -> str:
    return (
        f"kernels.cc:{line}: {kernel} is declared by no entry of npu.yaml; list {operators} under "
        "supported, or remove it"
    )


@pytest.mark.parametrize(
    ("text", "note"),
    [
        pytest.param(
            "Tensor Kernels::neg(const Tensor& self) {}\n",
            unlisted(2, "Kernels::neg(const Tensor & self)", "'neg'"),
            id="operator",
        ),
        pytest.param(
            "#ifdef A\nTensor Kernels::neg(const Tensor& self) {}\n#endif\n",
            unlisted(3, "Kernels::neg(const Tensor & self)", "'neg'"),
            id="conditional",
        ),
        pytest.param(
            "#ifdef A\nTensor& Kernels::abs_out(const Tensor& self, Tensor& out) {}\n#endif\n",
            unlisted(3, "Kernels::abs_out(const Tensor & self, Tensor & out)", "'abs.out'"),
            id="variant",
        ),
        pytest.param(
            "Tensor Kernels::mul(int) {}\n",
            unlisted(2, "Kernels::mul(int)", "'mul.Tensor' or 'mul.Scalar'"),
            id="other types",
        ),
        pytest.param(
            "Tensor Kernels::neg(PARAMETERS) {}\n",
            unlisted(2, "Kernels::neg(PARAMETERS)", "'neg'"),
            id="unclear types",
        ),
        pytest.param(
            "Tensor Kernels::view_symint(const Tensor& self, c10::SymIntArrayRef size) {}\n",
            unlisted(
                2, "Kernels::view_symint(const Tensor & self, c10::SymIntArrayRef size)", "'view'"
            ),
            id="symint",
        ),
        pytest.param(
            "namespace other {\nTensor Kernels::neg(const Tensor& self) {}\n}\n",
            unlisted(3, "other::Kernels::neg(const Tensor & self)", "'neg'"),
            id="namespace",
        ),
    ],
)
def test_a_kernel_that_the_file_does_not_list(check: Check, text: str, note: str) -> None:
    assert check(f"{ABS}{text}") == [note]


def test_kernels_that_the_file_does_not_list_are_noted_beside_errors(check: Check) -> None:
    neg = ABS.replace("abs", "neg")
    assert check(neg) == [
        "error",
        f"npu.yaml:6: 'abs' has no kernel in kernels.cc; {DECLARED_ABS}",
        "note: " + unlisted(1, "Kernels::neg(const Tensor & self)", "'neg'"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "namespace other {\nvoid Kernels::quux() {}\n}\n",  # not an operator
        "#ifdef A\nTensor Kernels::abs(Tensor self) {}\n#endif\n",  # for another torch
        "#define MAKE(name) Tensor Kernels::name(const Tensor&) {}\nMAKE(neg)\n",
        "#define MAKE(name, like) Tensor Kernels::name(const Tensor&) {}\nMAKE(abs, neg)\n",
        "DEFINE_ELSEWHERE(neg)\n",
    ],
)
def test_what_may_belong_to_something_else_is_not_noted(check: Check, text: str) -> None:
    assert check(f"{ABS}{text}") == []


def test_symint_belongs_to_the_name(check: Check) -> None:
    ints = "Tensor Kernels::view(const Tensor& self, IntArrayRef size) {}\n"
    symints = "Tensor Kernels::view_symint(const Tensor& self, c10::SymIntArrayRef size) {}\n"
    assert check(ints, "view") == []
    assert check(symints, "view", symint="view") == []
    assert check(symints, "view")[1] == (
        "npu.yaml:6: 'view' has no kernel in kernels.cc; got view_symint at kernels.cc:1: list "
        "'view' under symint, or rename it; expected at::Tensor Kernels::view(const at::Tensor & "
        "self, at::IntArrayRef size)"
    )
    assert check(ints, "view", symint="view")[1] == (
        "npu.yaml:6: 'view' has no kernel in kernels.cc; got view at kernels.cc:1: do not list "
        "'view' under symint, or rename it; expected at::Tensor Kernels::view_symint(const "
        "at::Tensor & self, c10::SymIntArrayRef size)"
    )


@pytest.mark.parametrize(
    "definition",
    [
        "namespace other {\nat::Tensor Kernels::abs(const at::Tensor& self) {}\n}\n",
        "\nat::Tensor other::Kernels::abs(const at::Tensor& self) {}\n",
    ],
)
def test_another_namespace(check: Check, definition: str) -> None:
    assert check(definition) == [
        "error",
        "npu.yaml:6: 'abs' has no kernel in kernels.cc; got one in namespace other at "
        f"kernels.cc:2, expected it in torch_npu; {DECLARED_ABS}",
    ]


def test_branches_are_all_read(check: Check) -> None:
    """Braces that are opened in each of them are closed once."""
    text = f"""\
#ifndef KERNELS
#define KERNELS
#if TORCH_VERSION > 2
Tensor Kernels::abs(const Tensor& self) {{
#else
Tensor Kernels::abs(Tensor self) {{
#endif
  if (a) {{
#ifdef A
    for (;;) {{
#elif B
    while (b) {{
#endif
    }}
  }}
}}
#if A
{ABS.replace("abs", "neg")}
#elif 0
#else
{ABS.replace("abs", "cos")}
#endif
{ABS.replace("abs", "sin")}
#endif
"""
    assert check(text, "abs", "neg", "cos", "sin") == []


@pytest.mark.parametrize(
    ("text", "note"),
    [
        (
            "#define DEFINE(name) Tensor Kernels::name(const Tensor& self) {}\nDEFINE(abs)\n",
            "2: not compared by the compiler: the macro DEFINE may define Kernels::abs of 'abs'",
        ),
        (
            "#define DEFINE(name) Tensor Kernels::name##s(const Tensor& self) {}\n#if A\n"
            "DEFINE(ab);\n#endif\n",
            "3: not compared by the compiler: the macro DEFINE may define Kernels::abs of 'abs'",
        ),
        (
            "#define DEFINE(name) Tensor Kernels::name(const Tensor& self) {}\n"
            "namespace torch_npu {\nDEFINE(abs)\n}\n",
            "3: not compared by the compiler: the macro DEFINE may define Kernels::abs of 'abs'",
        ),
        (
            "#include <define.h>\nDEFINE_ELSEWHERE(\n  abs,\n  Tensor)\nint x;\n",
            "2: not compared by the compiler: the macro DEFINE_ELSEWHERE may define Kernels::abs "
            "of 'abs'",
        ),
        (
            "Tensor Kernels::abs(\n  UNARY_PARAMETERS) {}\n",
            "1: not compared by the compiler: Kernels::abs is written with 'UNARY_PARAMETERS'",
        ),
        (
            "Tensor Kernels::abs(IN(Tensor, self)) {}\n",
            "1: not compared by the compiler: Kernels::abs is written with 'IN'",
        ),
        (
            "Tensor Kernels::abs(\n#ifdef A\nTensor a)\n#else\nconst Tensor& a)\n#endif\n{}\n",
            "1: not compared by the compiler: Kernels::abs is written with '#ifdef A'",
        ),
        (
            "using A = B;\nusing B = A;\nA Kernels::abs(const Tensor& self) {}\n",
            "3: not compared by the compiler: Kernels::abs is written with 'A'",
        ),
    ],
)
def test_signatures_that_macros_hide_are_reported(check: Check, text: str, note: str) -> None:
    assert check(text) == [f"kernels.cc:{note}"]


def test_a_bomb_of_aliases_is_not_understood(check: Check) -> None:
    lines = [f"using A{n} = std::pair<A{n + 1}, A{n + 1}>;\n" for n in range(40)]
    assert check("".join([*lines, "A0 Kernels::abs(const Tensor& self) {}\n"])) == [
        "kernels.cc:41: not compared by the compiler: Kernels::abs is written with 'A0'"
    ]


def test_a_macro_that_has_nothing_to_do_with_it(check: Check) -> None:
    text = "#define REGISTER(name) static int name##_registered\nREGISTER(abs);\n"
    assert check(text)[0] == "error"


def test_a_folder(tmp_path: Path, functions: NativeFunctions) -> None:
    source = tmp_path / "npu.yaml"
    source.write_text(
        "backend: PrivateUse1\ncpp_namespace: torch_npu\nclass_name: Kernels\n"
        "supported: [abs, neg, sin]\n"
    )
    file = read_backend_file(source, functions)
    kernels = tmp_path / "kernels"
    (kernels / "unary").mkdir(parents=True)
    with pytest.raises(GenerationError, match="without C") as raised:
        check_definitions(file, functions, kernels, "no compiler")
    expected = "expected a C++ file or a folder of C++ files that define the kernels"
    assert str(raised.value) == f"{kernels}: got a folder without C++ files; {expected}"

    (kernels / "abs.cc").write_bytes(b"// caf\xe9\n" + ABS.encode())
    (kernels / "unary" / "neg.CU").write_text(ABS.replace("abs", "neg"))
    (kernels / "notes.md").write_text(ABS.replace("abs", "sin"))
    with pytest.raises(GenerationError, match="'sin' has no kernel") as raised:
        check_definitions(file, functions, kernels, "no compiler")
    note = f"{kernels}:1: not compared by the compiler: no compiler"
    assert str(raised.value).splitlines()[1:] == [f"note: {note}"]
    (kernels / "unary" / "inner.h").write_text(ABS.replace("abs", "sin"))
    assert check_definitions(file, functions, kernels, "no compiler") == (note,)

    with pytest.raises(GenerationError, match="No such file") as raised:
        check_definitions(file, functions, tmp_path / "nowhere.cc", "no compiler")
    assert str(raised.value) == f"{tmp_path}/nowhere.cc: No such file or directory; {expected}"


@pytest.mark.parametrize(
    "text",
    [
        "Tensor Kernels::abs(Tensor self) {}\n" * 3000 + ABS,
        "".join(f"Tensor Kernels::abs{n}(Tensor self) {{}}\n" for n in range(3000)) + ABS,
        "#define MAKE(x) Kernels::x##y\n" + "MAKE(quux)\n" * 20_000 + ABS,
        "namespace torch_npu {\n" * 10_000 + "Tensor Kernels::abs(const Tensor& s) {}\n" * 3000,
    ],
    ids=["overloads", "names", "macros", "namespaces"],
)
def test_thousands_of_definitions(check: Check, text: str) -> None:
    assert len(check(text, "abs", "neg")) <= 3010


@pytest.mark.parametrize(
    "piece",
    narrowed(
        [
            *("(", "{", "}", "<", '"', "'", "/*", 'R"(', "#if A\n", "#endif\n", "A(x) ", "K::abs("),
            *("A(x)\n#if B\n", "#if A\n#else\n", "namespace a {\n", "a::", "x ", "\\\n", "#/*"),
            *(
                ABS,
                "T K::f(a<",
                "T K::f(,",
                "T K::f([a",
                "[",
                "extern ",
                "using a=b;",
                "T K::f() {}",
            ),
        ],
        kept=12,
    ),
)
def test_pages_of_anything(piece: str) -> None:
    """Nothing raises, and nothing takes the hours that a quadratic reader would take."""
    source = scan(Path("kernels.cc"), piece * (200_000 // len(piece)), "K")
    assert len(source.definitions) <= 200_000 // len(piece)
