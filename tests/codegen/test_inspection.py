"""``python -m codegen inspect``: what a person sees, and what a program reads."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from codegen.cli import main
from codegen.errors import GenerationError
from codegen.inputs import SELECTION_VARIABLE
from codegen.inspection import inspect, render_json, render_text
from codegen.model import Choice, Schemas
from codegen.selection import apply_selections, parse_variable


def as_json(schemas: Schemas, pattern: str, choice: Choice | None = None) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(render_json(inspect(schemas, choice or Choice(), pattern)))
    return fields


def keys(value: object) -> set[str]:
    """All keys in a JSON value, at any depth."""
    if isinstance(value, list):
        return {key for element in value for key in keys(element)}
    if isinstance(value, dict):
        return value.keys() | {key for element in value.values() for key in keys(element)}
    return set()


def test_text(schemas: Schemas) -> None:
    text = render_text(inspect(schemas, Choice(), "index_put_"))
    assert re.sub("torch .*?:", "torch VERSION:", text) == (
        "index_put_inplace, ATen's index_put_\n"
        "  index_put_  [generated]\n"
        "    index_put_(Tensor(a!) self, Tensor?[] indices, Tensor values, "
        "bool accumulate=False) -> Tensor(a!)\n"
        "      input       Tensor     out\n"
        "      indices     Tensor?[]\n"
        "      values      Tensor\n"
        "      accumulate  Bool       = False\n"
        "      tags        inplace pt2_compliant_tag\n"
        "\n"
        "torch VERSION: 1 operator, 1 overload, 1 generated\n"
    )


def test_text_fits_into_a_terminal(schemas: Schemas) -> None:
    wide = render_text(inspect(schemas, Choice(), "topk"))
    narrow = render_text(inspect(schemas, Choice(), "topk"), 60)
    assert max(map(len, narrow.splitlines())) <= 60
    assert narrow.split() == wide.split()


def test_text_says_why_not(schemas: Schemas) -> None:
    text = render_text(inspect(schemas, Choice(), "set_inplace"))
    assert "  set_.source_Storage  [not generated: takes a storage]\n" in text
    assert "      source  Storage (takes a storage)\n" in text
    assert text.endswith("1 operator, 5 overloads, 3 generated; 2: takes a storage\n")
    choice = apply_selections([parse_variable("exp")], schemas)
    text = render_text(inspect(schemas, choice, "abs"))
    assert "[not generated: not selected by INFINI_OPS_TORCH_OPS]" in text


def test_json_of_everything_lists_all_overloads(schemas: Schemas) -> None:
    fields = as_json(schemas, "*")
    texts = [each["schema"] for operator in fields["operators"] for each in operator["overloads"]]
    declared = [str(each.schema) for group in schemas.by_name.values() for each in group]
    assert sorted(texts) == sorted(declared)


def test_json_is_described_in_the_help(
    schemas: Schemas, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["inspect", "--help"])
    described = capsys.readouterr().out
    for key in keys(as_json(schemas, "set_")):
        assert re.search(rf"\b{key}\b", described), f"inspect --help lacks {key}"


def test_json_of_an_argument(schemas: Schemas) -> None:
    fields = as_json(schemas, "mean")
    assert fields["schema_version"] == 1
    assert fields["torch_version"] == schemas.torch_version
    mean = next(each for each in fields["operators"][0]["overloads"] if each["generated"])
    by_name = {argument["name"]: argument for argument in mean["arguments"]}
    assert by_name["dtype"] == {
        "name": "dtype",
        "aten_name": "dtype",
        "type": "ScalarType?",
        "kind": "DataType",
        "list_size": None,
        "is_optional": True,
        "has_optional_elements": False,
        "is_out": False,
        "keyword_only": True,
        "default": "None",
    }


@pytest.mark.parametrize("pattern", ["_softmax", "internal_softmax", "internal_softma?"])
def test_both_names_and_patterns_match(pattern: str, schemas: Schemas) -> None:
    assert [each["name"] for each in as_json(schemas, pattern)["operators"]] == ["internal_softmax"]


def test_nothing_matches(schemas: Schemas) -> None:
    message = r"has no out= or in-place operator that matches 'sofmax'; did you mean 'softmax'\?$"
    with pytest.raises(GenerationError, match=message):
        inspect(schemas, Choice(), "sofmax")


def test_an_overload_by_itself(schemas: Schemas) -> None:
    with pytest.raises(GenerationError, match=r"'add\.out'; .* all its overloads; write 'add'$"):
        inspect(schemas, Choice(), "add.out")


def test_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torchgen", reason="torch is not installed")
    assert main(["inspect", "abs"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("abs\n")
    assert main(["inspect", "abz"]) == 2
    assert "did you mean 'abs" in capsys.readouterr().err

    out = tmp_path / "out"
    assert main(["inspect", "abs", "--json", "--output-dir", str(out), "--dry-run"]) == 0
    assert capsys.readouterr().out == f"would write {out}/inspect.json\n"
    assert not out.exists()
    assert main(["inspect", "abs", "--json", "--output-dir", str(out)]) == 0
    assert main(["inspect", "abs", "--output-dir", str(out)]) == 0
    assert capsys.readouterr().out == ""
    assert (out / "inspect.txt").read_text() == text
    monkeypatch.setenv(SELECTION_VARIABLE, "exp")
    assert main(["inspect", "abs", "--json", "--output-dir", str(out)]) == 0
    [operator] = json.loads((out / "inspect.json").read_text())["operators"]
    assert operator["overloads"][0]["reason"] == "not selected"


def test_a_reader_that_has_seen_enough(root: Path) -> None:
    pytest.importorskip("torchgen", reason="torch is not installed")
    with subprocess.Popen(
        [sys.executable, "-m", "codegen", "inspect"],
        cwd=root,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() != ""
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait() == 0
