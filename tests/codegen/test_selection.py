"""The allowlist: what is in ours, and what a wrong one is told."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from codegen.aten import Schemas
from codegen.errors import GenerationError
from codegen.selection import check_known, load_allowlist

FIRST_ALLOWLIST_SIZE = 525


def write(folder: Path, text: str) -> Path:
    path = folder / "ops.yaml"
    path.write_text(text)
    return path


def test_our_allowlist_is_large_enough_and_known_to_aten(root: Path, schemas: Schemas) -> None:
    allowlist = load_allowlist(root / "codegen" / "torch_ops.yaml")
    check_known(allowlist, schemas.by_name)
    assert len(allowlist.names) >= FIRST_ALLOWLIST_SIZE
    assert list(allowlist.names) == sorted(allowlist.names)
    assert allowlist.excluded.keys() <= schemas.by_name.keys()


def test_unknown_names_are_reported_together_with_the_nearest(
    tmp_path: Path, schemas: Schemas
) -> None:
    allowlist = load_allowlist(write(tmp_path, "operators:\n  - abs\n  - gelo\n  - sofmax\n"))
    expected = (
        f"{allowlist.path}:3: ATen has no out= or in-place operator 'gelo'; did you mean 'gelu'?\n"
        f"{allowlist.path}:4: ATen has no out= or in-place operator 'sofmax'; "
        "did you mean 'softmax'?"
    )
    with pytest.raises(GenerationError, match=f"^{re.escape(expected)}$"):
        check_known(allowlist, schemas.by_name)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("operators: [", "1: not YAML: expected the node content"),
        ("- abs\n", "1: expected a mapping with the keys operators, excluded"),
        ("operators:\n  - abs\noperator:\n  - exp\n", "3: unknown key 'operator'; did you mean"),
        ("operators:\n  - abs\noperators:\n  - exp\n", "3: key 'operators' stands twice"),
        ("operators: abs\n", "1: operators: expected a list of ATen base names"),
        ("operators:\n  - abs\n  - 3\n", "3: operators: got '3', expected a name"),
        ("operators:\n  - abs\n  - [exp]\n", "3: operators: got a sequence, expected a name"),
        ("operators:\n  - abs\n  - abs\n", "3: 'abs' stands twice"),
        ("operators:\n  - exp\n  - abs\n", "3: 'abs' belongs before 'exp'"),
        ("operators:\n  - abs\nexcluded: {exp: }\n", "3: excluded: 'exp' needs a reason"),
        ("operators:\n  - abs\nexcluded: [exp]\n", "3: excluded: expected a mapping"),
        ("operators:\n  - abs\nexcluded:\n  abs: odd\n", "2: 'abs' is both listed and excluded"),
        ("operators: !!python/object:os.system [abs]\n", "1: operators: expected a list"),
        ("operators:\n  - abs\nexcluded: {exp: null}\n", "3: excluded: 'exp' needs a reason"),
        ("operators:\n  - abs\nexcluded: {exp: a, exp: b}\n", "3: excluded: 'exp' stands twice"),
        ("operators:\n  - abs\nexcluded: {[exp]: a}\n", "3: excluded: got a sequence, expected"),
        ("{[operators]: [abs]}\n", "1: unknown key a sequence"),
        ("excluded:\n  abs: odd\n", "1: expected at least one name under 'operators'"),
    ],
)
def test_malformed_allowlists(tmp_path: Path, text: str, message: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(GenerationError, match=re.escape(f"{path}:{message}")):
        load_allowlist(path)


def test_all_findings_are_reported_at_once(tmp_path: Path) -> None:
    path = write(tmp_path, "operators:\n  - exp\n  - exp\n  - abs\nother: 1\n")
    with pytest.raises(GenerationError, match=r"(?s)unknown key.*twice.*belongs before"):
        load_allowlist(path)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(GenerationError, match=r"ops\.yaml: No such file or directory; expected"):
        load_allowlist(tmp_path / "ops.yaml")


@pytest.mark.parametrize("content", [b"operators: [caf\xe9]\n", b"operators: [\x00]\n"])
def test_what_is_no_text(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "ops.yaml"
    path.write_bytes(content)
    with pytest.raises(GenerationError, match=r"ops\.yaml: not YAML: "):
        load_allowlist(path)


def test_deep_nesting(tmp_path: Path) -> None:
    path = write(tmp_path, "operators: " + "[" * 3000)
    with pytest.raises(GenerationError, match=r"ops\.yaml(:1)?: not YAML: "):
        load_allowlist(path)


def test_an_excluded_name_that_aten_lacks(tmp_path: Path, schemas: Schemas) -> None:
    allowlist = load_allowlist(write(tmp_path, "operators:\n  - abs\nexcluded: {gelo: odd}\n"))
    with pytest.raises(GenerationError, match=r":3: ATen has no .* 'gelo'; did you mean 'gelu'\?"):
        check_known(allowlist, schemas.by_name)
