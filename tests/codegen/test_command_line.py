"""``python -m codegen`` as a person types it."""

from __future__ import annotations

from pathlib import Path

import pytest

from codegen.cli import main


def test_torch_writes_and_then_finds_nothing_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torchgen", reason="torch is not installed")
    allowlist = tmp_path / "ops.yaml"
    allowlist.write_text("operators:\n  - abs\n  - add\n")
    command = ["torch", "--output-dir", str(tmp_path / "out"), "--allowlist", str(allowlist)]

    assert main([*command, "--dry-run"]) == 0
    assert "would write base/abs.h" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()

    assert main(command) == 0
    assert "2 operators, 3 overloads, 0 skipped; 5 files written" in capsys.readouterr().out
    assert (tmp_path / "out" / "base" / "abs.h").exists()
    assert not (tmp_path / "out" / "base" / "add.h").exists()  # src/base has one

    assert main(command) == 0
    assert "0 files written, 5 unchanged, 0 removed" in capsys.readouterr().out


def test_bad_input_is_a_message_and_exit_code_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torchgen", reason="torch is not installed")
    allowlist = tmp_path / "ops.yaml"
    allowlist.write_text("operators:\n  - abz\n")
    assert main(["torch", "--output-dir", str(tmp_path), "--allowlist", str(allowlist)]) == 2
    assert capsys.readouterr().err == (
        f"codegen: error: {allowlist}:2: ATen has no out= or in-place operator 'abz'; "
        "did you mean 'abs'?\n"
    )


def test_an_output_folder_that_is_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert main(["slots", "--output-dir", str(tmp_path / "file")]) == 2
    assert capsys.readouterr().err.startswith(f"codegen: error: {tmp_path}/file")


def test_a_folder_without_torch(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["torch", "--output-dir", str(tmp_path / "out"), "--torch-root", str(tmp_path)]
    assert main(command) == 2
    assert capsys.readouterr().err == (
        f"codegen: error: no torch in {tmp_path}; expected torch to be installed. "
        "Install it there, or pass --torch-root SITE_PACKAGES\n"
    )


def test_a_base_folder_that_is_not_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["torch", "--output-dir", str(tmp_path), "--base-dir", str(tmp_path / "no")]) == 2
    assert capsys.readouterr().err == f"codegen: error: --base-dir: {tmp_path}/no is not a folder\n"


def test_slots_can_be_shown_without_writing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["slots", "--output-dir", str(tmp_path), "--dry-run"]) == 0
    assert capsys.readouterr().out == f"would write {tmp_path}/slot.h\n"
    assert main(["slots", "--output-dir", str(tmp_path)]) == 0
    assert "kTorch = 8" in (tmp_path / "slot.h").read_text()
    assert main(["slots", "--output-dir", str(tmp_path), "--dry-run"]) == 0
    assert capsys.readouterr().out == ""
