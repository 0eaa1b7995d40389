"""docs/troubleshooting.md is about messages that the program has, in its own words."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest

from ci.util.invocation import REPOSITORY

PAGE = (REPOSITORY / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
# One message each; what differs from case to case is an ellipsis.
ENTRIES = re.findall(r"^### (.*)$", PAGE, re.MULTILINE)
GAP = "\0"  # in place of what a message inserts, which fragments do not cross


@cache
def messages() -> frozenset[str]:
    """All texts in the sources of the program, with a gap for what is inserted into them."""
    files = [REPOSITORY / "noxfile.py", *sorted((REPOSITORY / "ci").rglob("*.py"))]
    scripts = (REPOSITORY / "ci").rglob("*.sh.j2")
    return frozenset(
        [
            *(text for file in files for text in texts(ast.parse(file.read_text()))),
            *(text for script in scripts for text in printed_texts(script.read_text())),
        ]
    )


def texts(tree: ast.AST) -> Iterator[str]:
    """Each string in the code; an f-string and a format are one each, a docstring is not."""
    nodes = list(ast.walk(tree))
    parts = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
    docs = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            values = (part.value if isinstance(part, ast.Constant) else GAP for part in node.values)
            yield "".join(map(str, values))
        elif isinstance(node, ast.Constant) and id(node) not in parts | docs:
            yield str(node.value).replace("{}", GAP)


def printed_texts(script: str) -> Iterator[str]:
    """Each text that a shell script prints with ``echo``."""
    for text in re.findall(r'echo "([^"]*)"', script):
        yield re.sub(r"\$\w+", GAP, text)


def matches(entry: str, message: str) -> bool:
    """Whether a message begins like the entry, with all fragments and a gap at each ellipsis."""
    fragments = (re.escape(part) for part in entry.strip("`").split("…"))
    pattern = f".*{GAP}.*".join(fragments)
    return re.match(pattern, message.removeprefix("error: "), re.DOTALL) is not None


def test_it_has_a_useful_number_of_entries() -> None:
    assert len(ENTRIES) >= 20
    assert len(set(ENTRIES)) == len(ENTRIES)


@pytest.mark.parametrize("entry", ENTRIES)
def test_its_entries_are_messages_of_the_program(entry: str) -> None:
    assert re.fullmatch(r"`[^`]+`", entry), "a message in backticks"
    known = any(matches(entry, message) for message in messages())
    assert known, "no message is like this: change the entry as the message was changed"


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("`not on …: …`", f"not on {GAP}"),  # the rest is in another message
        ("`not on …: …`", f"{GAP} was not on {GAP}: {GAP}"),
        ("`run … had other …`", f"other runs had {GAP}: run {GAP} had {GAP}"),
        ("`stage … failed`", "stage install failed"),
        ("`stage … failed`", f"stage {GAP} was ended"),
    ],
)
def test_an_entry_is_not_pieced_together(entry: str, message: str) -> None:
    assert matches("`stage … failed`", f"stage {GAP} failed")
    assert not matches(entry, message)
    assert not any(matches("`not on …: …`", each) for each in messages())


@pytest.mark.parametrize("entry", ENTRIES)
def test_its_entries_have_a_cause_and_a_remedy(entry: str) -> None:
    text = PAGE.partition(f"### {entry}\n")[2].partition("\n#")[0]
    assert [text.count(word) for word in ("**Cause.** ", "**Remedy.** ")] == [1, 1]
