"""Keeping an output folder equal to the generated files."""

from __future__ import annotations

from pathlib import Path

import pytest

from codegen.output import MANIFEST_NAME, check_up_to_date, digest_of, synchronize


def test_only_changed_files_are_written(tmp_path: Path) -> None:
    first = synchronize({"a.h": "1", "sub/b.h": "2"}, tmp_path)
    assert set(first.written) == {"a.h", "sub/b.h"}
    before = (tmp_path / "a.h").stat().st_mtime_ns
    second = synchronize({"a.h": "1", "sub/b.h": "3"}, tmp_path)
    assert second.written == ("sub/b.h",)
    assert second.unchanged == ("a.h",)
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
    assert changes.written == ("b.h",)
    assert changes.removed == ("a.h",)
    assert (tmp_path / "a.h").exists()
    assert not (tmp_path / "b.h").exists()


def test_a_manifest_can_not_name_files_outside(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    victim = tmp_path / "victim"
    victim.write_text("keep")
    for outside in ("../victim", str(victim)):
        synchronize({"a.h": "1"}, folder)
        manifest = (folder / MANIFEST_NAME).read_text()
        (folder / MANIFEST_NAME).write_text(manifest.replace("a.h", outside))
        assert synchronize({"a.h": "1"}, folder).removed == ()
        assert victim.exists()


MANIFEST = '{"inputs": "", "summary": "", "notes": %s, "files": %s}'


@pytest.mark.parametrize(
    "manifest",
    [
        *("{", "\udcff", "[3]", "{}", MANIFEST % ("null", "{}"), MANIFEST % ("[]", "null")),
        *(MANIFEST % ("[]", '["old.h"]'), MANIFEST % ("[]", '{"../old.h": ""}')),
    ],
)
def test_a_damaged_manifest_removes_no_file(tmp_path: Path, manifest: str) -> None:
    (tmp_path / MANIFEST_NAME).write_text(manifest, errors="surrogateescape")
    (tmp_path / "old.h").write_text("x")
    assert synchronize({"a.h": "1"}, tmp_path).removed == ()


def test_an_untouched_folder_is_up_to_date(tmp_path: Path) -> None:
    synchronize({"a.h": "1", "b.h": "2"}, tmp_path, inputs="x", summary="two", notes=("n",))
    outcome = check_up_to_date(tmp_path, "x")
    assert outcome is not None
    assert (outcome.summary, outcome.notes) == ("two", ("n",))
    assert (outcome.written, outcome.unchanged, outcome.removed) == ((), ("a.h", "b.h"), ())
    assert check_up_to_date(tmp_path, "y") is None
    (tmp_path / "a.h").write_text("edited")
    assert check_up_to_date(tmp_path, "x") is None
    (tmp_path / "a.h").unlink()
    assert check_up_to_date(tmp_path, "x") is None


def test_a_run_that_is_cut_off_is_repeated_and_leaves_nothing_behind(tmp_path: Path) -> None:
    synchronize({"a.h": "1"}, tmp_path, inputs="x")
    (tmp_path / "c.h").mkdir()  # blocks the path of the last new file
    with pytest.raises(IsADirectoryError, match=r"c\.h"):
        synchronize({"b.h": "2", "c.h": "3"}, tmp_path, inputs="y")
    assert (tmp_path / "b.h").exists()
    assert check_up_to_date(tmp_path, "y") is None
    assert synchronize({"a.h": "1"}, tmp_path, inputs="x").removed == ("b.h",)


def test_the_bounds_of_the_inputs_count() -> None:
    assert digest_of([b"ab", b"c"]) != digest_of([b"a", b"bc"])
    assert digest_of([b"ab", b""]) != digest_of([b"ab"])
