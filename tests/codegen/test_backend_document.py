"""The YAML file of a backend: its meaning, and the errors for wrong content."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from codegen.aten import NativeFunctions
from codegen.backend.document import KEYS, read_backend_file
from codegen.backend.model import BackendFile, DispatchKeys, Entry
from codegen.errors import GenerationError
from codegen.nodes import LARGEST, MOST_FINDINGS

HEAD = "backend: PrivateUse1\ncpp_namespace: torch_npu\n"
ONE = f"{HEAD}supported:\n  - abs\n"
ALL_KEYS = f"expected one of {', '.join(KEYS)}"
A_DEVICE = "expected the key of a device that torch has no kernels for, such as PrivateUse1"

Read = Callable[[str], BackendFile]
Refusal = Callable[[str | bytes], str]


@pytest.fixture
def read(tmp_path: Path, functions: NativeFunctions) -> Read:
    """Reads a file with this text."""

    def read(text: str) -> BackendFile:
        path = tmp_path / "backend.yaml"
        path.write_text(text)
        return read_backend_file(path, functions)

    return read


@pytest.fixture
def refusal(tmp_path: Path, functions: NativeFunctions, monkeypatch: pytest.MonkeyPatch) -> Refusal:
    """Return the error for an npu.yaml with this text; the torch is called "torch X"."""
    monkeypatch.chdir(tmp_path)

    def refusal(text: str | bytes) -> str:
        path = Path("npu.yaml")
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        with pytest.raises(GenerationError, match=r"npu\.yaml") as raised:
            read_backend_file(path, functions)
        return str(raised.value).replace(f"torch {functions.torch_version} ", "torch X ")

    return refusal


def test_all_keys(read: Read, tmp_path: Path) -> None:
    text = f"""\
# of a backend
{HEAD}class_name: Kernels
extra_headers: [npu/kernels.h, "<vector>", '"a.h"']
full_codegen:
  - sin
supported:
  - add.Tensor
  - _copy_from
  # - abs
  - view
autograd: [max_pool2d]
symint: [view]
ir_gen: [cos]
non_native:
  - func: scalar(Scalar value, ScalarType type) -> Tensor
    opkind: at::prim::Constant
use_out_as_primary: yes
device_guard: True
device: npu
"""
    assert read(text) == BackendFile(
        path=tmp_path / "backend.yaml",
        backend="PrivateUse1",
        class_name="Kernels",
        cpp_namespace="torch_npu",
        extra_headers=('"npu/kernels.h"', "<vector>", '"a.h"'),
        supported=(
            Entry(name="sin", line=7),
            Entry(name="add.Tensor", line=9),
            Entry(name="_copy_from", line=10),
            Entry(name="view", line=12),
        ),
        autograd=(Entry(name="max_pool2d", line=13),),
        symint=frozenset({"view"}),
        use_out_as_primary=True,
        device_guard=True,
        device="npu",
    )


def test_defaults(read: Read, tmp_path: Path) -> None:
    assert read(ONE) == BackendFile(
        path=tmp_path / "backend.yaml",
        backend="PrivateUse1",
        class_name="PrivateUse1NativeFunctions",
        cpp_namespace="torch_npu",
        extra_headers=(),
        supported=(Entry(name="abs", line=4),),
        autograd=(),
        symint=frozenset(),
        use_out_as_primary=False,
        device_guard=False,
    )


@pytest.mark.parametrize("key", ["supported", "full_codegen", "autograd", "symint"])
def test_an_empty_list_beside_a_filled_one(read: Read, key: str) -> None:
    filled = "autograd" if key == "supported" else "supported"
    for empty in ("", "[]", "~"):
        file = read(f"{HEAD}{key}: {empty}\n{filled}: [abs]\n")
        assert [entry.name for entry in (*file.supported, *file.autograd)] == ["abs"]


def test_an_alias_is_the_list_that_it_stands_for(read: Read) -> None:
    file = read(f"{HEAD}supported: &all [view, expand]\nsymint: *all\n")
    assert file.symint == {"view", "expand"}


@pytest.mark.parametrize("marker", ["", "\ufeff", "---\n"])
def test_a_file_as_editors_save_it(read: Read, marker: str) -> None:
    assert read(marker + ONE.replace("\n", "\r\n")).supported[0].name == "abs"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(
            f"{HEAD}supported: [abs\nautograd: [sin]\n",
            "npu.yaml:4: not YAML: while parsing a flow sequence, expected ',' or ']', but got ':'",
            id="not-closed",
        ),
        pytest.param(
            "backend: PrivateUse1\n\tcpp_namespace: a\n",
            "npu.yaml:2: not YAML: while scanning for the next token, found character '\\t' that "
            "cannot start any token",
            id="tab",
        ),
        pytest.param(
            f"{ONE}---\n{ONE}",
            "npu.yaml:5: not YAML: expected a single document in the stream, but found another "
            "document",
            id="two-documents",
        ),
        pytest.param(
            "supported: *all\n", "npu.yaml:1: not YAML: found undefined alias 'all'", id="alias"
        ),
        pytest.param(
            "backend: a\n\nclass_name: \x07\n",
            "npu.yaml:3: not YAML: got the character U+0007; remove it",
            id="control-character",
        ),
        pytest.param(
            b"backend: a\nclass_name: \xe9\n",
            "npu.yaml:2: got the byte 0xE9, expected UTF-8. Save the file as UTF-8",
            id="latin-1",
        ),
        pytest.param(
            "[" * 1500,
            "npu.yaml: got hundreds of nested lists or mappings; expected the YAML file "
            "of a backend",
            id="deep",
        ),
        pytest.param(
            " " * (LARGEST + 1),
            "npu.yaml: got more than 1,048,576 bytes; expected the YAML file of a backend",
            id="large",
        ),
    ],
)
def test_not_yaml(refusal: Refusal, text: str | bytes, expected: str) -> None:
    assert refusal(text) == expected


@pytest.mark.parametrize(
    ("text", "got"),
    [
        ("", "1: got nothing"),
        ("# a comment\n", "1: got nothing"),
        ("~", "1: got nothing"),
        ("\n- abs\n", "2: got a list"),
        ("abs", "1: got 'abs'"),
        ("5", "1: got the number 5"),
        ("!!map abs", "1: got a value of the type '!!map'"),
        ("!!map [abs]", "1: got a value of the type '!!map'"),
        ("!!python/dict {a: 1}", "1: got a value of the type '!!python/dict'"),
    ],
)
def test_not_a_mapping(refusal: Refusal, text: str, got: str) -> None:
    assert refusal(text) == (
        f"npu.yaml:{got}, expected a mapping with backend, cpp_namespace and supported"
    )


def test_a_file_that_is_not_there(tmp_path: Path, functions: NativeFunctions) -> None:
    with pytest.raises(GenerationError, match=r"nowhere\.yaml") as raised:
        read_backend_file(tmp_path / "nowhere.yaml", functions)
    assert str(raised.value) == (
        f"{tmp_path}/nowhere.yaml: No such file or directory; expected the YAML file of a backend"
    )


def test_a_folder(tmp_path: Path, functions: NativeFunctions) -> None:
    with pytest.raises(GenerationError, match="Is a directory") as raised:
        read_backend_file(tmp_path, functions)
    assert str(raised.value) == (f"{tmp_path}: Is a directory; expected the YAML file of a backend")


# The error for a file, after "npu.yaml:".
_WRONG = {
    "no-backend": (
        "cpp_namespace: torch_npu\nsupported: [abs]\n",
        "1: no 'backend'; expected a dispatch key such as PrivateUse1. Add 'backend: PrivateUse1'",
    ),
    "empty-backend": (
        "cpp_namespace: torch_npu\nbackend:\nsupported: [abs]\n",
        "2: backend: got nothing, expected a dispatch key such as PrivateUse1",
    ),
    "no-cpp-namespace": (
        "backend: PrivateUse1\nsupported: [abs]\n",
        "1: no 'cpp_namespace'; expected a C++ namespace such as torch_npu or torch::lazy. Add "
        "'cpp_namespace: torch_npu'",
    ),
    "empty-cpp-namespace": (
        "backend: PrivateUse1\ncpp_namespace: \nsupported: [abs]\n",
        "2: cpp_namespace: got nothing, expected a C++ namespace such as torch_npu or torch::lazy",
    ),
    "unknown-key": (f"{ONE}fallback: 1\n", f"5: unknown key: got 'fallback', {ALL_KEYS}"),
    "misspelt-key": (
        f"{HEAD}suported: [abs]\n",
        "3: unknown key: got 'suported', did you mean 'supported'?",
    ),
    "misspelt-backend": (
        "backnd: PrivateUse1\ncpp_namespace: torch_npu\nsupported: [abs]\n",
        "1: unknown key: got 'backnd', did you mean 'backend'?",
    ),
    "merge-key": (
        f"{ONE}<<: {{}}\n",
        f"5: unknown key: got a value of the type '!!merge', {ALL_KEYS}",
    ),
    "list-as-key": (f"{ONE}? [a]\n: b\n", f"5: unknown key: got a list, {ALL_KEYS}"),
    "number-as-key": (f"{ONE}1: 2\n", f"5: unknown key: got the number 1, {ALL_KEYS}"),
    "duplicate-key": (
        f"{ONE}supported:\n  - sin\n",
        "5: duplicate key 'supported', first on line 3; merge them",
    ),
    "unknown-operator": (
        f"{ONE}  - abz\n",
        "5: supported: torch X has no operator 'abz'; expected name and overload as in "
        "native_functions.yaml; did you mean 'abs'?",
    ),
    "nothing-like-it": (
        f"{ONE}  - quux\n",
        "5: supported: torch X has no operator 'quux'; expected name and overload as in "
        "native_functions.yaml",
    ),
    "qualified-operator": (
        f"{ONE}  - aten::mul.Tensor\n",
        "5: supported: torch X has no operator 'aten::mul.Tensor'; expected name and overload as "
        "in native_functions.yaml; write 'mul.Tensor'",
    ),
    "name-of-the-kernel": (
        f"{ONE}  - mul_out\n",
        "5: supported: torch X has no operator 'mul_out'; expected name and overload as in "
        "native_functions.yaml; did you mean 'mul.out'?",
    ),
    "no-overload": (
        f"{ONE}  - add\n",
        "5: supported: 'add' has no overload without a name; expected one of add.Tensor, add.out, "
        "add.Scalar, add.Scalar_out; did you mean 'add.Tensor'?",
    ),
    "unknown-overload": (
        f"{ONE}  - add.tensor\n",
        "5: supported: 'add' has no overload 'tensor'; expected one of add.Tensor, add.out, "
        "add.Scalar, add.Scalar_out; did you mean 'add.Tensor'?",
    ),
    "overload-of-an-operator-without": (
        f"{ONE}  - relu.Tensor\n",
        "5: supported: 'relu' has no overload 'Tensor'; expected one of relu, relu.out; did you "
        "mean 'relu.out'?",
    ),
    "stands-twice": (
        f"{ONE}  - sin\n  - abs\n",
        "6: supported: duplicate entry 'abs', first on line 4; remove one",
    ),
    "supported-and-full-codegen": (
        f"{ONE}full_codegen: [abs]\n",
        "5: full_codegen: duplicate entry 'abs', first under supported, on line 4; remove one",
    ),
    "supported-and-autograd": (
        f"{HEAD}autograd: [abs]\nsupported:\n  - abs\n",
        "5: supported: duplicate entry 'abs', first under autograd, on line 3; remove one",
    ),
    "variants-split": (
        f"{HEAD}supported:\n  - add.Tensor\nautograd:\n  - add.out\n",
        "6: autograd: 'add.out' is a variant of 'add.Tensor', which is listed under supported on "
        "line 4; expected add.Tensor, add.out, add_.Tensor all under autograd, or none of them",
    ),
    "variants-split-with-full-codegen": (
        f"{HEAD}full_codegen: [abs]\nautograd: [abs_]\n",
        "4: autograd: 'abs_' is a variant of 'abs', which is listed under full_codegen on line 3; "
        "expected abs, abs.out, abs_ all under autograd, or none of them",
    ),
    "number-as-list": (
        f"{HEAD}supported: 5\n",
        "3: supported: got the number 5, expected a list, each entry the name of an operator",
    ),
    "name-as-list": (
        f"{HEAD}supported: abs\n",
        "3: supported: got 'abs', expected a list, each entry the name of an operator",
    ),
    "mapping-as-list": (
        f"{HEAD}supported:\n  abs: true\n",
        "4: supported: got a mapping, expected a list, each entry the name of an operator",
    ),
    "mapping-as-entry": (
        f"{ONE}  - add.Tensor: add\n",
        "5: supported: got a mapping, expected the name of an operator, or a mapping with 'func'",
    ),
    "boolean-as-entry": (
        f"{ONE}  - on\n",
        "5: supported: got the boolean on, expected the name of an operator; put it in quotes if "
        "it is one",
    ),
    "number-as-entry": (
        f"{ONE}  - 1.5\n",
        "5: supported: got the number 1.5, expected the name of an operator; put it in quotes if "
        "it is one",
    ),
    "null-as-entry": (
        f"{ONE}  -\n",
        "5: supported: got nothing, expected the name of an operator",
    ),
    "empty-string-as-entry": (
        f"{ONE}  - ''\n",
        "5: supported: got '', expected the name of an operator",
    ),
    "python-tag": (
        f"{ONE}  - !!python/object/apply:os.system [ls]\n",
        "5: supported: got a value of the type '!!python/object/apply:os.system', expected the "
        "name of an operator",
    ),
    "own-tag": (
        f"{HEAD}supported: !include ops.yaml\n",
        "3: supported: got a value of the type '!include', expected a list, each entry the name "
        "of an operator",
    ),
    "list-tagged-as-string": (
        f"{ONE}  - !!str [abs]\n",
        "5: supported: got a value of the type '!!str', expected the name of an operator",
    ),
    "word-tagged-as-list": (
        f"{HEAD}supported: !!seq abs\n",
        "3: supported: got a value of the type '!!seq', expected a list, each entry the name of "
        "an operator",
    ),
    "word-tagged-as-boolean": (
        f"{ONE}device_guard: !!bool maybe\n",
        "5: device_guard: got the boolean maybe, expected true or false",
    ),
    "list-tagged-as-boolean": (
        f"{ONE}device_guard: !!bool [true]\n",
        "5: device_guard: got a value of the type '!!bool', expected true or false",
    ),
    "device-with-a-digit": (
        f"{ONE}device: acme2\n",
        "5: device: got 'acme2', expected a name of lower-case letters and _, such as acme",
    ),
    "device-is-a-keyword": (
        f"{ONE}device: lambda\n",
        "5: device: got 'lambda', expected a name of lower-case letters and _, such as acme",
    ),
    "device-is-empty": (
        f"{ONE}device: ''\n",
        "5: device: got '', expected a name of lower-case letters and _, such as acme",
    ),
    "device-is-a-list": (
        f"{ONE}device: [acme]\n",
        "5: device: got a list, expected a name of lower-case letters and _, such as acme",
    ),
    "device-of-torch": (
        f"{ONE}device: mtia\n",
        "5: device: torch itself has a device 'mtia'; expected another name",
    ),
    "device-of-another-key": (
        "backend: Vulkan\ncpp_namespace: torch_npu\nsupported: [abs]\ndevice: acme\n",
        "4: device: torch renames the device of PrivateUse1 only, not of Vulkan; remove 'device'",
    ),
    "recursive-alias": (
        f"{HEAD}supported: &all\n  - *all\n",
        "3: supported: got a list, expected the name of an operator",
    ),
    "symint-not-listed": (
        f"{ONE}symint: [view]\n",
        "5: symint: 'view' has no kernel; list it under supported too, or remove it here",
    ),
    "symint-unknown": (
        f"{ONE}symint: [abz]\n",
        "5: symint: torch X has no operator 'abz'; expected name and overload as in "
        "native_functions.yaml; did you mean 'abs'?",
    ),
    "symint-twice": (
        f"{HEAD}supported: [view]\nsymint:\n  - view\n  - view\n",
        "6: symint: duplicate entry 'view', first on line 5; remove one",
    ),
    "symint-without-sizes": (
        f"{ONE}symint: [abs]\n",
        "5: symint: 'abs' takes no SymInt: abs(Tensor self) -> Tensor; remove it here",
    ),
    "dispatch-key-like-three-others": (
        ONE.replace("PrivateUse1", "PrivateUse"),
        f"1: backend: 'PrivateUse' is not a dispatch key; {A_DEVICE}; did you mean 'PrivateUse1'?",
    ),
    "unknown-dispatch-key": (
        ONE.replace("PrivateUse1", "privateuse1"),
        f"1: backend: 'privateuse1' is not a dispatch key; {A_DEVICE}; did you mean 'PrivateUse1'?",
    ),
    "key-of-torch": (
        ONE.replace("PrivateUse1", "CUDA"),
        f"1: backend: torch has kernels of its own for 'CUDA'; {A_DEVICE}",
    ),
    "key-of-no-device": (
        ONE.replace("PrivateUse1", "Functionalize"),
        f"1: backend: 'Functionalize' is not the dispatch key of a device; {A_DEVICE}",
    ),
    "autograd-key": (
        ONE.replace("PrivateUse1", "AutogradPrivateUse1"),
        "1: backend: 'AutogradPrivateUse1' is the autograd key of 'PrivateUse1'; write "
        "'PrivateUse1', and list the operators under 'autograd'",
    ),
    "no-autograd-key": (
        f"{ONE.replace('PrivateUse1', 'FPGA')}autograd: [sin]\n",
        "1: backend: there is no dispatch key 'AutogradFPGA' to register what autograd lists on "
        "line 5; use another backend, such as PrivateUse1, or remove autograd",
    ),
    "backend-is-a-list": (
        ONE.replace("PrivateUse1", "[PrivateUse1]"),
        "1: backend: got a list, expected a dispatch key such as PrivateUse1",
    ),
    "code-as-namespace": (
        ONE.replace("torch_npu", '"a {}\\nint main() {}"'),
        "2: cpp_namespace: got 'a {}\\nint main() {}', expected a C++ namespace such as torch_npu "
        "or torch::lazy",
    ),
    "keyword-in-namespace": (
        ONE.replace("torch_npu", "torch::new"),
        "2: cpp_namespace: got 'torch::new', expected a C++ namespace such as torch_npu or "
        "torch::lazy",
    ),
    "global-namespace": (
        ONE.replace("torch_npu", "'::npu'"),
        "2: cpp_namespace: got '::npu', expected a C++ namespace such as torch_npu or torch::lazy",
    ),
    "letters-that-c++-refuses": (
        f"{ONE}class_name: Gerät\n",
        "5: class_name: got 'Gerät', expected the name of a C++ class such as NPUNativeFunctions",
    ),
    "qualified-class-name": (
        f"{ONE}class_name: ::Kernels\n",
        "5: class_name: got '::Kernels', expected the name of a C++ class such as "
        "NPUNativeFunctions",
    ),
    "boolean-as-class-name": (
        f"{ONE}class_name: no\n",
        "5: class_name: got the boolean no, expected the name of a C++ class such as "
        "NPUNativeFunctions",
    ),
    "code-as-header": (
        f"{ONE}extra_headers:\n  - 'a.h\" // \"'\n",
        "6: extra_headers: got 'a.h\" // \"', expected a path such as npu/kernels.h or <vector>",
    ),
    "line-as-header": (
        f"{ONE}extra_headers:\n  - '#include <vector>'\n",
        "6: extra_headers: got '#include <vector>', expected a path such as npu/kernels.h or "
        "<vector>",
    ),
    "word-as-headers": (
        f"{ONE}extra_headers: a.h\n",
        "5: extra_headers: got 'a.h', expected a list, each entry a path such as npu/kernels.h or "
        "<vector>",
    ),
    "word-as-flag": (
        f"{ONE}use_out_as_primary: 'true'\n",
        "5: use_out_as_primary: got 'true', expected true or false",
    ),
    "number-as-flag": (
        f"{ONE}device_guard: 1\n",
        "5: device_guard: got the number 1, expected true or false",
    ),
    "ir-gen": (
        f"{ONE}ir_gen: 3\n",
        "5: ir_gen: got the number 3, expected a list, each entry the name of an operator",
    ),
    "non-native": (
        f"{ONE}non_native: {{func: a}}\n",
        "5: non_native: got a mapping, expected a list of mappings",
    ),
    "non-native-entry": (
        f"{ONE}non_native:\n  - abs\n",
        "6: non_native: got 'abs', expected a mapping",
    ),
    "no-lists": (
        HEAD,
        "1: supported, full_codegen and autograd are all missing; expected a list of operators, "
        "under 'supported'",
    ),
}


@pytest.mark.parametrize(("text", "expected"), _WRONG.values(), ids=_WRONG.keys())
def test_an_error_of_the_file_is_reported(refusal: Refusal, text: str, expected: str) -> None:
    assert refusal(text) == f"npu.yaml:{expected}"


def test_all_errors_are_reported_at_once_in_the_order_of_the_file(refusal: Refusal) -> None:
    text = """\
autograd: [no, add.Tensor]
supported: [abz, add.out]
backend: CPU
symint: [add.out, mm]
device_guard: maybe
fallback: 1
"""
    assert refusal(text).splitlines() == [
        "npu.yaml:1: autograd: got the boolean no, expected the name of an operator; put it in "
        "quotes if it is one",
        "npu.yaml:1: autograd: 'add.Tensor' is a variant of 'add.out', which is listed under "
        "supported on line 2; expected add.Tensor, add.out, add_.Tensor all under autograd, or "
        "none of them",
        "npu.yaml:1: no 'cpp_namespace'; expected a C++ namespace such as torch_npu or "
        "torch::lazy. Add 'cpp_namespace: torch_npu'",
        "npu.yaml:2: supported: torch X has no operator 'abz'; expected name and overload as in "
        "native_functions.yaml; did you mean 'abs'?",
        f"npu.yaml:3: backend: torch has kernels of its own for 'CPU'; {A_DEVICE}",
        "npu.yaml:4: symint: 'add.out' takes no SymInt: add.out(Tensor self, Tensor other, *, "
        "Scalar alpha=1, Tensor(a!) out) -> Tensor(a!); remove it here",
        "npu.yaml:4: symint: 'mm' has no kernel; list it under supported too, or remove it here",
        "npu.yaml:5: device_guard: got 'maybe', expected true or false",
        f"npu.yaml:6: unknown key: got 'fallback', {ALL_KEYS}",
    ]


def test_a_bomb_of_aliases_gives_short_messages(refusal: Refusal) -> None:
    levels = [f"  - &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 12)]
    text = "\n".join([f"{HEAD}non_native:", "  - &l0 [x]", *levels, "supported: [*l11, *l11]"])
    findings = refusal(text).splitlines()
    assert set(findings[:2]) == {
        "npu.yaml:4: non_native: got a list, expected a mapping",
        "npu.yaml:5: non_native: got a list, expected a mapping",
    }
    assert len(findings) == 12 + 2


def test_what_is_shown_of_a_long_value_is_short(refusal: Refusal) -> None:
    message = refusal(f"{ONE}class_name: {'a-' * 300_000}\n")
    assert message == (
        f"npu.yaml:5: class_name: got '{'a-' * 40}...', expected the name of a C++ class such as "
        "NPUNativeFunctions"
    )


@pytest.mark.parametrize("nothing", ["", " ~", " []"])
def test_no_autograd_needs_no_key_for_it(read: Read, nothing: str) -> None:
    text = ONE.replace("PrivateUse1", "Vulkan")
    assert read(f"{text}autograd:{nothing}\n").autograd == ()


def test_autograd_under_every_key_without_it(functions: NativeFunctions, refusal: Refusal) -> None:
    keys = DispatchKeys(functions)
    without = [key for key in keys.free if not keys.has_autograd(key)]
    assert {"Vulkan", "SparsePrivateUse1"} < {*without}
    for key in without:
        assert refusal(f"{ONE.replace('PrivateUse1', key)}autograd: [sin]\n") == (
            f"npu.yaml:1: backend: there is no dispatch key 'Autograd{key}' to register what "
            "autograd lists on line 5; use another backend, such as PrivateUse1, or remove autograd"
        )


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (HEAD + "supported:\n" + "- abs{}\n" * 90, "did you mean 'abs'?"),
        (HEAD + "supported: []\n" + "sup_ported{}: a\n" * 90, "did you mean 'supported'?"),
        (HEAD + "supported:\n- abs\n" + "- abs # {}\n" * 90, "remove one"),
    ],
)
def test_the_first_errors_of_many_are_shown(
    refusal: Refusal, monkeypatch: pytest.MonkeyPatch, text: str, shown: str
) -> None:
    """A similarity search among all operators takes 6 ms: none for what is not shown."""
    searches = []
    real = difflib.get_close_matches

    def get_close_matches(*arguments: Any, **options: Any) -> list[Any]:
        searches.append(arguments)
        return real(*arguments, **options)

    monkeypatch.setattr(difflib, "get_close_matches", get_close_matches)
    *lines, last = refusal(text.format(*range(90))).splitlines()
    assert len(lines) == MOST_FINDINGS
    assert all(line.endswith(shown) for line in lines)
    assert last == f"npu.yaml: {90 - MOST_FINDINGS} more errors; correct these first"
    assert len(searches) <= MOST_FINDINGS


def test_what_torchgen_also_accepts(read: Read) -> None:
    """Tabs at the end of a line, an empty list, the class in a namespace."""
    file = read(f"{HEAD}class_name: A::B\nsupported:\t\n  - abs\t\n  - neg \t \n")
    assert [entry.name for entry in file.supported] == ["abs", "neg"]
    assert (file.cpp_namespace, file.class_name) == ("torch_npu::A", "B")
    for empty in ("", "[]", "~"):
        assert read(f"{HEAD}supported: {empty}\n").supported == ()


def _torchgen_reads(
    path: Path, functions: NativeFunctions
) -> tuple[dict[str, str], dict[str, str]] | None:
    """The kernels of torchgen's own reader under both dispatch keys; None for a refusal."""
    from torchgen.gen_backend_stubs import parse_backend_yaml

    try:
        parsed = parse_backend_yaml(str(path), functions.grouped, dict(functions.backend_indices))
    except Exception:  # an AssertionError of its checks, or any other error
        return None
    own, autograd = (
        {str(name): kernel.kernel for name, kernel in parsed.backend_indices[key].index.items()}
        if key
        else {}
        for key in (parsed.backend_key, parsed.autograd_key)
    )
    return own, autograd


def _kernels(file: BackendFile, functions: NativeFunctions) -> tuple[dict[str, str], ...]:
    from torchgen.api import dispatcher

    names = {str(each.func.name): dispatcher.name(each.func) for each in functions.functions}
    return tuple(
        {
            entry.name: names[entry.name] + ("_symint" if entry.name in file.symint else "")
            for entry in entries
        }
        for entries in (file.supported, file.autograd)
    )


def _lines(key: str, entries: list[str]) -> str:
    return "".join([f"{key}:\n", *(f"  - {entry}\n" for entry in entries)]) if entries else ""


# Beside anything that torchgen's reader refuses too; its emitters fail on `symint` without sizes.
_STRICTER = (
    "duplicate entry",
    "all missing",
    "has no kernel; list it under",
    "takes no SymInt",
)


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_torchgen_reads_the_same(
    data: st.DataObject, tmp_path: Path, functions: NativeFunctions
) -> None:
    """Of lists of any operators: what torchgen takes is taken, with the same kernels."""
    # Of all, torchgen takes a second for each file.
    some = [each for each in functions.functions if each.func.name.name.base.startswith("a")]
    functions = dataclasses.replace(functions, functions=tuple(some))
    names = [str(each.func.name) for each in some]
    # Few, so that variants of one operator meet.
    near = [name for name in names if name.partition(".")[0].strip("_") in ("abs", "add")]
    operators = st.lists(st.sampled_from(near) | st.sampled_from(names), max_size=6)
    draw = data.draw
    supported, full_codegen, autograd = draw(operators), draw(operators), draw(operators)
    text = "".join(
        (
            f"backend: {draw(st.sampled_from(['PrivateUse1', 'XLA', 'Lazy', 'CPU', 'FPGA', 'X']))}",
            "\ncpp_namespace: npu\n",
            _lines("supported", supported),
            _lines("full_codegen", full_codegen),
            _lines("autograd", autograd),
            _lines("symint", draw(st.lists(st.sampled_from([*supported, *autograd, "abs"])))),
        )
    )
    path = tmp_path / "backend.yaml"
    path.write_text(text)
    theirs = _torchgen_reads(path, functions)
    try:
        file = read_backend_file(path, functions, "torchgen")
    except GenerationError as error:
        findings = str(error).splitlines()
        backend_matters = bool(supported or full_codegen)
        if not any(strict in finding for strict in _STRICTER for finding in findings) and (
            backend_matters
        ):
            assert theirs is None, (text, findings)
    else:
        assert theirs == _kernels(file, functions), text


def test_a_file_of_the_shape_of_an_existing_backend(
    tmp_path: Path, functions: NativeFunctions
) -> None:
    """Hundreds of operators under all keys at once, with comments."""
    bases = {each.func.name.name.base: str(each.func.name) for each in functions.functions}
    names = list(bases.values())[::3]  # no two of them are variants of one operator
    supported, full_codegen, autograd = names[:250], names[250:350], names[350:360]
    listed = {*supported, *full_codegen, *autograd}
    sized = [name for name in names if name in listed and functions.by_name[name].func.has_symint()]
    text = "".join(
        (
            "backend: XLA\ncpp_namespace: torch_xla\n",
            _lines("full_codegen", full_codegen),
            _lines("ir_gen", supported[:10]),
            _lines("supported", supported[:100]),
            "  # Note: [functionalization and CompositeExplicitAutograd]\n  #- not.implemented\n",
            "".join(f"  - {name}\n" for name in supported[100:]),
            _lines("symint", sized),
            _lines("autograd", autograd),
            "\n# Without a schema of torch\nnon_native:\n"
            "  - func: scalar(Scalar value, ScalarType type) -> Tensor\n"
            "    opkind: at::prim::Constant\n    properties:\n      - ShapeCompute\n",
        )
    )
    path = tmp_path / "xla_native_functions.yaml"
    path.write_text(text)
    file = read_backend_file(path, functions)
    assert len(file.supported) == 350
    assert _torchgen_reads(path, functions) == _kernels(file, functions)
