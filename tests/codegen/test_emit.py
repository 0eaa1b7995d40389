"""Keeping an output folder equal to what the generator says."""

from __future__ import annotations

from pathlib import Path

import pytest

from codegen.emit import MANIFEST_NAME, render_slot_header, synchronize


def test_only_changed_files_are_written(tmp_path: Path) -> None:
    first = synchronize({"a.h": "1", "sub/b.h": "2"}, tmp_path)
    assert set(first.written) == {"a.h", "sub/b.h", MANIFEST_NAME}
    before = (tmp_path / "a.h").stat().st_mtime_ns
    second = synchronize({"a.h": "1", "sub/b.h": "3"}, tmp_path)
    assert second.written == ("sub/b.h",)
    assert second.unchanged == ("a.h", MANIFEST_NAME)
    assert (tmp_path / "a.h").stat().st_mtime_ns == before
    assert (tmp_path / "sub" / "b.h").read_text() == "3"


def test_stale_files_are_removed_and_foreign_ones_stay(tmp_path: Path) -> None:
    synchronize({"a.h": "1", "b.h": "2"}, tmp_path)
    (tmp_path / "mine.h").write_text("hand-made")
    changes = synchronize({"a.h": "1"}, tmp_path)
    assert changes.removed == ("b.h",)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.h", MANIFEST_NAME, "mine.h"]


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    synchronize({"a.h": "1"}, tmp_path)
    changes = synchronize({"b.h": "2"}, tmp_path, dry_run=True)
    assert set(changes.written) == {"b.h", MANIFEST_NAME}
    assert changes.removed == ("a.h",)
    assert (tmp_path / "a.h").exists()
    assert not (tmp_path / "b.h").exists()


def test_a_manifest_can_not_name_files_outside(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    victim = tmp_path / "victim"
    victim.write_text("keep")
    (folder / MANIFEST_NAME).write_text('{"files": ["../victim"]}')
    assert synchronize({"a.h": "1"}, folder).removed == ()
    assert victim.exists()


@pytest.mark.parametrize(
    "manifest", [b"{", b"\xff", b"[3]", b'{"files": null}', b'{"files": [3]}', b'{"files": ["."]}']
)
def test_a_damaged_manifest_vouches_for_nothing(tmp_path: Path, manifest: bytes) -> None:
    (tmp_path / MANIFEST_NAME).write_bytes(manifest)
    (tmp_path / "old.h").write_text("x")
    assert synchronize({"a.h": "1"}, tmp_path).removed == ()


def test_the_slot_header_is_up_to_date(root: Path) -> None:
    committed = (root / "src" / "include" / "infini" / "ops" / "slot.h").read_text()
    assert committed == render_slot_header(), "run `python -m codegen slots`"
