"""Which operators are generated: the meaning of selections, and the errors for wrong ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from codegen.errors import GenerationError
from codegen.inputs import PREDEFINED
from codegen.model import Choice, Schemas, SkipReason
from codegen.selection import (
    apply_selections,
    load_selection,
    parse_variable,
    select_hand_written,
)

FIRST_ALLOWLIST_NAMES = 559


def write(folder: Path, text: str) -> Path:
    path = folder / "ops.yaml"
    path.write_text(text)
    return path


def chosen(choice: Choice, schemas: Schemas) -> set[str]:
    return schemas.by_name.keys() - choice.omitted.keys()


def choose_from_file(folder: Path, text: str, schemas: Schemas, variable: str = "") -> Choice:
    return apply_selections(
        [load_selection(write(folder, text)), parse_variable(variable)], schemas
    )


def test_our_selection_is_everything(root: Path, schemas: Schemas) -> None:
    choice = apply_selections([load_selection(root / "codegen" / "torch_ops.yaml")], schemas)
    assert choice == Choice()


def test_the_first_allowlist_is_known_to_aten(root: Path, schemas: Schemas) -> None:
    choice = apply_selections([load_selection(root / "bench" / "first_allowlist.yaml")], schemas)
    assert choice.missing == ()
    assert choice.notes == ()
    assert len(chosen(choice, schemas)) == FIRST_ALLOWLIST_NAMES
    assert choice.omitted["set_"].reason is SkipReason.EXCLUDED


def test_names_patterns_and_exclusions(tmp_path: Path, schemas: Schemas) -> None:
    text = "operators:\n  - '*_backward'\n  - abs\n  - fft_*\nexcluded:\n  fft_h*: odd\n"
    choice = choose_from_file(tmp_path, text, schemas)
    names = chosen(choice, schemas)
    assert {"abs", "fft_fft", "gelu_backward"} <= names
    assert names.isdisjoint({"abs_", "fft_hfft", "exp"})
    assert choice.omitted["fft_hfft"].reason is SkipReason.EXCLUDED
    assert choice.omitted["fft_hfft"].explanation == f"excluded by {tmp_path}/ops.yaml:6: odd"
    assert choice.omitted["exp"].reason is SkipReason.NOT_SELECTED
    assert choice.omitted["exp"].explanation == f"not selected by {tmp_path}/ops.yaml"


def test_everything_with_exclusions(tmp_path: Path, schemas: Schemas) -> None:
    choice = choose_from_file(tmp_path, "operators: all\nexcluded: {abs: odd}\n", schemas)
    assert choice.omitted.keys() == {"abs"}


def test_an_operator_has_the_name_all(tmp_path: Path, schemas: Schemas) -> None:
    choice = choose_from_file(tmp_path, "operators:\n  - all\n", schemas)
    assert chosen(choice, schemas) == {"all"}
    assert chosen(apply_selections([parse_variable("all,abs")], schemas), schemas) == {"all", "abs"}


def test_what_a_file_lists_and_this_torch_lacks_is_noted(tmp_path: Path, schemas: Schemas) -> None:
    text = "operators:\n  - abs\n  - gelo\n  - zz*\nexcluded: {sofmax: odd}\n"
    choice = choose_from_file(tmp_path, text, schemas)
    version = schemas.torch_version
    assert chosen(choice, schemas) == {"abs"}
    assert choice.missing == ("gelo",)
    assert choice.notes == (
        f"{tmp_path}/ops.yaml:3: torch {version} has no out= or in-place operator named 'gelo'; "
        "did you mean 'gelu'?",
        f"{tmp_path}/ops.yaml:4: torch {version} has no out= or in-place operator that matches "
        "'zz*'",
        f"{tmp_path}/ops.yaml:5: torch {version} has no out= or in-place operator named 'sofmax'; "
        "did you mean 'softmax'?",
    )


@pytest.mark.parametrize("value", ["", "all"])
def test_a_variable_that_narrows_nothing(value: str, schemas: Schemas) -> None:
    assert apply_selections([parse_variable(value)], schemas) == Choice()


@pytest.mark.parametrize("value", ["abs,exp_,fft_*", "abs exp_ fft_*", "abs, exp_,\n fft_*,"])
def test_the_variable_narrows_the_file(value: str, tmp_path: Path, schemas: Schemas) -> None:
    text = "operators: all\nexcluded: {fft_fft: odd}\n"
    choice = choose_from_file(tmp_path, text, schemas, value)
    names = chosen(choice, schemas)
    assert {"abs", "exp_", "fft_ifft"} <= names
    assert names.isdisjoint({"abs_", "fft_fft"})
    assert choice.omitted["fft_fft"].reason is SkipReason.EXCLUDED
    assert choice.omitted["abs_"].explanation == "not selected by INFINI_OPS_TORCH_OPS"


def test_the_variable_can_name_a_file(tmp_path: Path, schemas: Schemas) -> None:
    narrow = tmp_path / "narrow.yml"
    narrow.write_text("operators:\n  - abs\n  - gelo\n")
    choice = choose_from_file(tmp_path, "operators: all\n", schemas, str(narrow))
    assert chosen(choice, schemas) == {"abs"}
    assert choice.missing == ("gelo",)
    with pytest.raises(GenerationError, match=r"^INFINI_OPS_TORCH_OPS: .*no\.yaml: No such file"):
        parse_variable(str(tmp_path / "no.yaml"))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("gelo", "named 'gelo'; did you mean 'gelu'?"),
        (
            "abs_inplace",
            "named 'abs_inplace'; the ATen name of 'abs_inplace' is 'abs_'; write that",
        ),
        ("internal_softmax", "; the ATen name of 'internal_softmax' is '_softmax'; write that"),
        ("absolute_inplac*", "; the ATen name of 'absolute_inplace' is 'absolute_'; write that"),
        ("add.out", "named 'add.out'; a name selects all its overloads; write 'add'"),
        ("zz*", "that matches 'zz*'"),
        ("fft_ffft*", "that matches 'fft_ffft*'; did you mean 'fft_"),
    ],
)
def test_a_typed_name_that_stands_for_nothing(value: str, message: str, schemas: Schemas) -> None:
    with pytest.raises(GenerationError, match=r"^INFINI_OPS_TORCH_OPS: torch .*") as caught:
        apply_selections([parse_variable(f"abs,{value}")], schemas)
    assert message in str(caught.value)


def test_a_typed_name_that_the_file_leaves_out(tmp_path: Path, schemas: Schemas) -> None:
    text = "operators:\n  - abs\n  - exp\nexcluded: {cos: odd}\n"
    expected = (
        f"INFINI_OPS_TORCH_OPS: 'cos' is excluded by {tmp_path}/ops.yaml:4: odd\n"
        f"INFINI_OPS_TORCH_OPS: 'sin' is not selected by {tmp_path}/ops.yaml"
    )
    with pytest.raises(GenerationError, match=f"^{re.escape(expected)}$"):
        choose_from_file(tmp_path, text, schemas, "abs,cos,sin")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("operators: [", "1: not YAML: while parsing a flow node, expected the node content"),
        ("- abs\n", "1: got a list, expected a mapping with operators and excluded"),
        (
            "operators:\n  - abs\noperator:\n  - exp\n",
            "3: unknown key: got 'operator', did you mean 'operators'?",
        ),
        (
            "operators:\n  - abs\noperators:\n  - exp\n",
            "3: duplicate key 'operators', first on line 1; merge them",
        ),
        (
            "operators: abs\n",
            "1: operators: got 'abs', expected 'all' or a list of ATen names and patterns",
        ),
        ("operators: {all: 1}\n", "1: operators: got a mapping, expected 'all' or a list"),
        ("operators:\n  - abs\n  - 3\n", "3: operators: got the number 3, expected a name; put"),
        ("operators:\n  - abs\n  - [exp]\n", "3: operators: got a list, expected a name"),
        ("operators:\n  - abs\n  - abs\n", "3: duplicate entry 'abs'"),
        ("operators:\n  - exp\n  - abs\n", "3: 'abs' is not in sorted order; move it before 'exp'"),
        (
            "operators:\n  - *_backward\n",
            "2: not YAML: found undefined alias '_backward'; put a pattern that begins",
        ),
        ("operators:\n  - *\n", "2: not YAML: "),
        ("operators:\n  - abs\nexcluded: {exp: }\n", "3: excluded: 'exp' needs a reason"),
        ("operators:\n  - abs\nexcluded: [exp]\n", "3: excluded: got a list, expected a mapping"),
        ("operators:\n  - abs\nexcluded:\n  abs: odd\n", "2: 'abs' is both listed and excluded"),
        (
            "operators: !!python/object:os.system [abs]\n",
            "1: operators: got a value of the type '!!python/object:os.system', expected 'all'",
        ),
        ("operators:\n  - abs\nexcluded: {exp: null}\n", "3: excluded: 'exp' needs a reason"),
        ("operators:\n  - abs\nexcluded: {exp: a, exp: b}\n", "3: excluded: duplicate entry 'exp'"),
        ("operators:\n  - abs\nexcluded: {[exp]: a}\n", "3: excluded: got a list, expected a name"),
        (
            "{[operators]: [abs]}\n",
            "1: unknown key: got a list, expected one of operators, excluded",
        ),
        ("excluded:\n  abs: odd\n", "1: expected 'operators: all', or at least one name"),
        ("operators:\nexcluded: {exp: a}\n", "1: expected 'operators: all', or at least one name"),
        ("operators: []\n", "1: expected 'operators: all', or at least one name"),
        ("operators: ~\n", "1: expected 'operators: all', or at least one name"),
    ],
)
def test_malformed_selections(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(GenerationError, match=re.escape(f"{path}:{message}")):
        load_selection(path)


def test_torchgens_form(tmp_path: Path, schemas: Schemas) -> None:
    text = (
        "build_features: []\noperators:\n  aten::mul.Tensor:\n    include_all_overloads: false\n"
        "  aten::add.out: {debug_info: [float32]}\n  aten::add.Scalar_out: {}\n  aten::abs_: {}\n"
        "  aten::item:\nkernel_metadata:\n  add_kernel: [float]\n"
    )
    choice = choose_from_file(tmp_path, text, schemas)
    assert chosen(choice, schemas) == {"abs_", "add", "mul"}
    assert choice.missing == ("item",)
    assert f"{tmp_path}/ops.yaml:8: torch " in choice.notes[0]
    everything = choose_from_file(tmp_path, "include_all_operators: true\n", schemas)
    assert everything == Choice()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "operators:\n  aten::add.out: {}\n  add: {}\n",
            "3: 'add' has no namespace; write 'aten::",
        ),
        ("include_all_operators: false\n", "1: operators: expected at least one aten::<name>"),
        ("build_features: []\noperators: [add]\n", "2: operators: expected at least one aten::<"),
        ("operators: {aten::add: {}}\nexcluded: {a: b}\n", "2: excluded: not a key of torchgen's"),
        ("operators: {aten::add: {}}\nexclude: {a: b}\n", "2: unknown key: got 'exclude', did you"),
    ],
)
def test_malformed_selections_of_torchgen(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(GenerationError, match=re.escape(f"{path}:{message}")):
        load_selection(path)


def test_all_findings_are_reported_at_once(tmp_path: Path) -> None:
    path = write(tmp_path, "operators:\n  - exp\n  - exp\n  - abs\nother: 1\n")
    with pytest.raises(GenerationError, match=r"(?s)duplicate entry.*move it before.*unknown key"):
        load_selection(path)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(GenerationError, match=r"ops\.yaml: No such file or directory; expected"):
        load_selection(tmp_path / "ops.yaml")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            b"operators: [caf\xe9]\n",
            r"1: got the byte 0xE9, expected UTF-8\. Save the file as UTF-8",
        ),
        (b"operators: [\x00]\n", r"1: not YAML: got the character U\+0000; remove it"),
    ],
)
def test_what_is_no_text(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "ops.yaml"
    path.write_bytes(content)
    with pytest.raises(GenerationError, match=rf"ops\.yaml:{message}$"):
        load_selection(path)


def test_deep_nesting(tmp_path: Path) -> None:
    path = write(tmp_path, "operators: " + "[" * 3000)
    with pytest.raises(
        GenerationError, match=r"ops\.yaml: got hundreds of nested lists .*; expected a sel"
    ):
        load_selection(path)


HAND_WRITTEN = ["add", "gemm", "mul", "rms_norm"]


@pytest.mark.parametrize(
    ("variable", "names"),
    [
        ("", HAND_WRITTEN),
        ("all", HAND_WRITTEN),
        ("abs,add,fft_*", ["add"]),
        ("*m*", ["gemm", "mul", "rms_norm"]),
        ("abs", []),
    ],
)
def test_operators_written_by_hand_are_selected_too(variable: str, names: list[str]) -> None:
    assert select_hand_written(variable, HAND_WRITTEN, alone=False) == names


def test_a_file_selects_operators_written_by_hand(tmp_path: Path) -> None:
    path = write(tmp_path, "operators:\n  - '*m*'\nexcluded: {gemm: odd}\n")
    assert select_hand_written(str(path), HAND_WRITTEN, alone=False) == ["mul", "rms_norm"]


def test_what_is_typed_without_torch_is_written_by_hand() -> None:
    assert select_hand_written("add", HAND_WRITTEN, alone=True) == ["add"]
    expected = (
        r"^INFINI_OPS_TORCH_OPS: 'rms_nom' is not a hand-written operator, and this build has no "
        r"torch; did you mean 'rms_norm'\?$"
    )
    with pytest.raises(GenerationError, match=expected):
        select_hand_written("add,rms_nom", HAND_WRITTEN, alone=True)


def test_the_variable_names_what_torch_has_not(schemas: Schemas) -> None:
    choice = apply_selections([parse_variable("gemm,abs")], schemas, HAND_WRITTEN)
    assert chosen(choice, schemas) == {"abs"}
    with pytest.raises(GenerationError, match="named 'rms_nom'; did you mean 'rms_norm'"):
        apply_selections([parse_variable("rms_nom")], schemas, ["rms_norm"])


def test_predefined_selections_are_known_to_this_torch(schemas: Schemas) -> None:
    paths = sorted(PREDEFINED.glob("*.yaml"))
    assert [path.stem for path in paths] == ["smoke"]
    for path in paths:
        choice = apply_selections([parse_variable(path.stem)], schemas)
        assert (choice.missing, choice.notes) == ((), ())
        assert chosen(choice, schemas) == load_selection(path).names(schemas.by_name)
    names = chosen(apply_selections([parse_variable("smoke,gelu_")], schemas), schemas)
    assert {"abs", "abs_", "fft_fft", "gelu_", "sum"} <= names
    smoke = select_hand_written("smoke", HAND_WRITTEN, alone=False)
    assert smoke == ["add"]
