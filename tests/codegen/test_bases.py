"""Reading the hand-written bases: those of the library, and other ways to write them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from codegen.errors import GenerationError
from codegen.model import Schemas, SkipReason
from codegen.native import read_bases
from codegen.translate import make_library

GEMM = (
    "gemm.out(Tensor a, Tensor b, Scalar alpha=1, Scalar beta=0, bool trans_a=False, "
    "bool trans_b=False, *, Tensor(a!) out) -> ()"
)
BASE = """\
class Scale : public OperatorBase<Scale> {
 public:
  static constexpr char kName[] = "scale";
  static constexpr char kOverloadName[] = "out";
  static constexpr Parameter kParameters[] = {
      {Parameter::Type::kTensor, "input"},  // of any shape
      Parameter(Parameter::Type::kTensor, "weights")
          .List()
          .OptionalElements(),
      Parameter(Parameter::Type::kInt, "dim").List(2).Optional().Default(std::nullopt),
      Parameter(Parameter::Type::kFloat, "factor").Default(-2.5),
      Parameter(Parameter::Type::kTensor, "out").Out(),
      Parameter(Parameter::Type::kTensor, "mask").Out(),
  };
};
"""


def read(folder: Path, text: str, name: str = "scale.h") -> str:
    (folder / name).write_text(text)
    (base,) = read_bases(folder).values()
    return str(base.overload.schema)


def test_the_librarys_own(root: Path) -> None:
    """tests/ops compares all of them with what the compiled library says."""
    bases = read_bases(root / "src" / "base")
    assert bases.keys() == {path.stem for path in (root / "src" / "base").iterdir()}
    assert str(bases["gemm"].overload.schema) == GEMM
    defaults = [parameter.default for parameter in bases["gemm"].overload.parameters]
    assert defaults == [None, None, 1, 0, False, False, None]


def test_every_field_of_a_row(tmp_path: Path) -> None:
    assert read(tmp_path, BASE) == (
        "scale.out(Tensor input, Tensor?[] weights, int[2]? dim=None, float factor=-2.5, *, "
        "Tensor(a!) out, Tensor(b!) mask) -> ()"
    )


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("class Scale :", "struct Scale :", 1, "expected one 'class <Name> : public Operator"),
        ('kName[] = "scale"', 'kName[] = "abs"', 3, "kName is 'abs', expected 'scale', the name"),
        ("class Scale", "class SCALE", 1, "class is 'SCALE', expected 'Scale', 'scale' in Pascal"),
        ("kOverloadName[]", "kOverload[]", 1, "expected one 'static constexpr char kOverloadName"),
        (
            '{Parameter::Type::kTensor, "input"}',
            "INPUT",
            6,
            "'INPUT,' is not a row of kParameters; ",
        ),
        ('kTensor, "input"', 'kTensr, "input"', 6, "unknown type 'kTensr'; did you mean 'Tensor"),
        (".List()\n", ".Lists()\n", 7, "can't read '.Lists()'; expected {Parameter::Type::"),
        (".List()\n          .Opt", ".Opt", 7, ".OptionalElements() without .List()"),
        ("Default(-2.5)", "Default(kTwo)", 11, "can't read the default of a kFloat; expected a "),
        ("Default(-2.5)", "Default(std::nullopt)", 11, "can't read the default of a kFloat"),
        ("Default(std::nullopt)", "Default(Mean)", 10, "can't read the default of a kInt"),
        ("Default(std::nullopt)", "Default(3)", 10, "can't read the default of a kInt"),
        (".List(2).Optional().Default(std::nullopt)", ".Default(Mean)", 10, "can't read the def"),
        ("Default(-2.5)", "Default(True)", 11, "can't read the default of a kFloat"),
        ('"factor"', '"input"', 11, "duplicate parameter 'input'"),
        ('"factor"', '"self"', 11, "invalid parameter name 'self'; use 'input'"),
    ],
)
def test_what_is_written_in_another_way(
    tmp_path: Path, old: str, new: str, line: int, message: str
) -> None:
    text = BASE.replace(old, new)
    assert text != BASE
    with pytest.raises(GenerationError, match=re.escape(f"scale.h:{line}: {message}")):
        read(tmp_path, text)


def test_an_input_behind_an_out(tmp_path: Path) -> None:
    text = BASE.replace('"mask").Out()', '"mask")')
    with pytest.raises(
        GenerationError, match=r"scale\.h:13: input 'mask' follows an out; move it before the outs"
    ):
        read(tmp_path, text)


def test_an_input_that_is_written_keeps_its_place(tmp_path: Path) -> None:
    in_place = 'Parameter(Parameter::Type::kTensor, "input").InPlace()'
    assert read(tmp_path, BASE.replace('{Parameter::Type::kTensor, "input"}', in_place)) == (
        "scale.out(Tensor(a!) input, Tensor?[] weights, int[2]? dim=None, float factor=-2.5, *, "
        "Tensor(b!) out, Tensor(c!) mask) -> ()"
    )


def test_nothing_that_is_written(tmp_path: Path) -> None:
    with pytest.raises(GenerationError, match=r"scale\.h:5: kParameters has no out"):
        read(tmp_path, BASE.replace(".Out()", ""))


def test_all_findings_are_reported_at_once(tmp_path: Path) -> None:
    (tmp_path / "abs.h").write_text("")
    with pytest.raises(GenerationError, match=r"abs\.h:1: expected one 'class .*\n.*double\.h:3: "):
        read(tmp_path, BASE, "double.h")


def test_a_base_that_says_what_torch_has_is_generated(root: Path, schemas: Schemas) -> None:
    bases = read_bases(root / "src" / "base")
    library = make_library(schemas, None, bases, bases)
    assert SkipReason.OTHER_BASE not in {skip.reason for skip in library.skipped}
    assert {"cast", "gemm", "swiglu"} <= {operator.name for operator in library.native}
    assert "add" not in {operator.name for operator in library.native}
    names = [operator.name for operator in library.all_operators]
    assert names == sorted(set(names))


def test_a_base_that_says_something_else_stays_without_torch(
    tmp_path: Path, schemas: Schemas
) -> None:
    """Arguments of the one would be taken for those of the other."""
    (tmp_path / "abs.h").write_text(BASE.replace("Scale", "Abs").replace("scale", "abs"))
    library = make_library(schemas, None, read_bases(tmp_path), {"abs"})
    assert [skip for skip in library.skipped if skip.reason is SkipReason.OTHER_BASE] == [
        skip for skip in library.skipped if skip.aten_name == "abs"
    ]
    assert "abs" not in {operator.name for operator in library.operators}
    assert [operator.name for operator in library.native] == ["abs"]
