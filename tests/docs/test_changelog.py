"""The changelog: files in ``changes`` that a release moves to it, with settings for towncrier."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.reference import ROOT

TEMPLATE = "template.md"
LINK = re.compile(r"\[[^\]]+\]\(([^)#\s]+)")
RELEASED = """
## [1.0.0] - 2027-02-03

### Added

* The first of two.
* The second of two.
* A line that is longer than a hundred and twenty characters, as an editor without a margin writes it, goes on in a
  [second one](README.md).

### Security

* A fix.

## [0.9.0] - 2027-01-02

### Changed

* What was there.
"""  # noqa: E501


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    command = ["git", *who, *arguments]
    finished = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)
    return finished.stdout


def build(folder: Path, version: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "towncrier", "build", "--version", version, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """This project's settings in a repository of its own, without a change."""
    folder = tmp_path / "clone"
    (folder / "changes").mkdir(parents=True)
    for name in ("CHANGELOG.md", "pyproject.toml", f"changes/{TEMPLATE}"):
        shutil.copy(ROOT / name, folder / name)
    git(folder, "init", "--quiet")
    commit(folder)
    return folder


def commit(folder: Path, **files: str) -> None:
    for name, text in files.items():
        (folder / "changes" / f"{name.replace('_', '.')}.md").write_text(text, encoding="utf-8")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "Change")


def test_a_release_moves_the_files_to_the_changelog(clone: Path) -> None:
    before = (clone / "CHANGELOG.md").read_text(encoding="utf-8")
    commit(clone, old_changed="What was there.")
    assert build(clone, "0.9.0", "--yes", "--date", "2027-01-02").returncode == 0
    [long] = re.findall(r"A line .*\n  .*", RELEASED)
    two = "* The first of two.\n* The second\n  of two.\n"
    commit(clone, a_added=" ".join(long.split()), b_added=two, c_security="A fix.\n")
    draft = build(clone, "1.0.0", "--draft", "--date", "2027-02-03").stdout
    assert build(clone, "1.0.0", "--yes", "--date", "2027-02-03").returncode == 0
    after = (clone / "CHANGELOG.md").read_text(encoding="utf-8")
    header, marker, older = before.partition("<!-- towncrier release notes start -->\n")
    assert after == header + marker + RELEASED + older
    assert draft.strip() in RELEASED
    assert sorted(git(clone, "status", "--porcelain").splitlines()) == [
        "D  changes/a.added.md",
        "D  changes/b.added.md",
        "D  changes/c.security.md",
        "M  CHANGELOG.md",
    ]
    again = build(clone, "1.0.1", "--draft", "--date", "2027-02-04").stdout
    assert again.strip() == "## [1.0.1] - 2027-02-04"


def test_a_file_of_an_unknown_kind_is_refused(clone: Path) -> None:
    commit(clone, a_feature="A text.")
    refused = build(clone, "1.0.0", "--draft")
    assert refused.returncode == 1
    assert "Invalid news fragment name: a.feature.md" in refused.stderr


def test_each_file_has_a_text_whose_links_lead_somewhere() -> None:
    texts = {it.name: it.read_text(encoding="utf-8") for it in (ROOT / "changes").iterdir()}
    del texts[TEMPLATE]
    empty = [name for name, text in texts.items() if not text.strip("* \n")]
    assert empty == [], "expected the text of an entry in each file in `changes`"
    targets = {(name, it) for name, text in texts.items() for it in LINK.findall(text)}
    lost = [(name, it) for name, it in targets if "://" not in it and not (ROOT / it).exists()]
    assert lost == [], "expected links that are relative to CHANGELOG.md"
