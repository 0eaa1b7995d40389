"""The owners of files, by the rules of GitHub for CODEOWNERS."""

from __future__ import annotations

from pathlib import Path

import pytest

from ci.analysis.owners import LARGEST_FILE, owners_of, parse_owner_rules, read_owner_rules

RULES = """\
# The last line that matches counts.
*                 @all
*.js              @js-owner    # a comment
/build/logs/      @doctocat
docs/*            docs@example.com
apps/             @octocat
/scripts/*.sh     @s1 @s2
**/logs           @logs
/apps/github
src/**/cuda       @cuda
a\\ b.txt         @space
!negated          @ignored
[Section] @ignored
x[0-9].c          @ignored
"""


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("README.md", "@all"),
        ("deep/in/a.js", "@js-owner"),
        ("build/logs/a/b.txt", "@logs"),
        ("build/log", "@all"),
        ("docs/start.md", "docs@example.com"),
        ("docs/apps.md", "docs@example.com"),
        ("docs/build/start.md", "@all"),
        ("sub/docs/start.md", "@all"),
        ("apps/a.py", "@octocat"),
        ("sub/apps/a.py", "@octocat"),
        ("apps/github", ""),
        ("apps/github/b.py", ""),
        ("scripts/run.sh", "@s1 @s2"),
        ("scripts/sub/run.sh", "@all"),
        ("src/cuda/a.cu", "@cuda"),
        ("src/ops/add/cuda/a.cu", "@cuda"),
        ("a b.txt", "@space"),
        ("negated", "@all"),
        ("x1.c", "@all"),
    ],
)
def test_the_last_matching_line_names_the_owners(file: str, expected: str) -> None:
    assert " ".join(owners_of([file], parse_owner_rules(RULES))) == expected


def test_the_owners_of_most_files_come_first() -> None:
    rules = parse_owner_rules("a @a\nb @b @c\n")
    assert owners_of(["a/1", "b/1", "b/2", "other"], rules) == ("@b", "@c", "@a")
    assert owners_of([], rules) == ()


def test_the_first_place_counts(tmp_path: Path) -> None:
    assert read_owner_rules(tmp_path) == []
    for place in ("docs", ".github"):
        (tmp_path / place).mkdir()
        (tmp_path / place / "CODEOWNERS").write_bytes(f"* @{place[-4:]}\xff\n".encode("latin-1"))
    assert owners_of(["a"], read_owner_rules(tmp_path)) == ("@thub\ufffd",)
    (tmp_path / ".github" / "CODEOWNERS").unlink()
    assert owners_of(["a"], read_owner_rules(tmp_path)) == ("@docs\ufffd",)
    (tmp_path / "docs" / "CODEOWNERS").write_text("#" * (LARGEST_FILE + 1))
    assert read_owner_rules(tmp_path) == []
