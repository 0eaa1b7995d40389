"""docs/troubleshooting.md is about messages that the program has, in its own words."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest

from ci.util.files import REPOSITORY

PAGE = (REPOSITORY / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
# One message each; what differs from case to case is an ellipsis.
ENTRIES = re.findall(r"^### (.*)$", PAGE, re.MULTILINE)
GAP = "\0"  # of a message in the sources, which fragments do not cross


@cache
def messages() -> str:
    """All texts in the sources of the program, with a gap for what is put into them."""
    files = [REPOSITORY / "noxfile.py", *sorted((REPOSITORY / "ci").rglob("*.py"))]
    return GAP.join(text for file in files for text in texts(ast.parse(file.read_text())))


def texts(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else GAP for part in node.values)
            yield "".join(map(str, parts))


def fragments(entry: str) -> list[str]:
    return [part for part in entry.strip("`").split("…") if part.strip()]


def test_it_has_a_useful_number_of_entries() -> None:
    assert len(ENTRIES) >= 20
    assert len(set(ENTRIES)) == len(ENTRIES)


@pytest.mark.parametrize("entry", ENTRIES)
def test_its_entries_are_messages_of_the_program(entry: str) -> None:
    assert re.fullmatch(r"`[^`]+`", entry), "a message in backticks"
    unknown = [part for part in fragments(entry) if part not in messages()]
    assert unknown == [], f"no message has {unknown}: change the entry as the message was changed"


@pytest.mark.parametrize("entry", ENTRIES)
def test_its_entries_have_a_cause_and_a_remedy(entry: str) -> None:
    text = PAGE.partition(f"### {entry}\n")[2].partition("\n#")[0]
    assert [text.count(word) for word in ("**Cause.** ", "**Remedy.** ")] == [1, 1]
