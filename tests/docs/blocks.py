"""Commands of the pages: the fences marked ``sh``, with the comment in the line before.

Every block runs as it is, or a comment says why not:

* ``<!-- not run: needs the vendor's hardware -->``
* ``<!-- complete: builds the library -->`` takes minutes: runs with ``-m complete`` only
* ``<!-- exit code: 4 -->`` is how its last command ends
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

COMMENT = re.compile(r"\s*<!-- (not run|complete|exit code): (.+?) -->")
PROMPT = "$ "  # begins what is shown with its output, which is no sh block


@dataclass(frozen=True, kw_only=True)
class Block:
    """One block of commands."""

    page: str
    line: int
    """Of its first command."""
    commands: str
    not_run: str | None = None
    """Why it does not run."""
    complete: str | None = None
    """Why it takes minutes."""
    exit_code: int = 0

    @property
    def name(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(page: Path, root: Path) -> Iterator[Block]:
    """Every sh block of a page, in order; those in lists are indented."""
    lines = page.read_text(encoding="utf-8").splitlines()
    start: int | None = None
    comments: dict[str, str] = {}
    for index, line in enumerate(lines):
        if start is None and line.strip() == "```sh":
            start, comments = index + 1, dict(_comments(lines[:index]))
        elif start is not None and line.strip() == "```":
            indent = len(line) - len(line.lstrip())
            yield Block(
                page=str(page.relative_to(root)),
                line=start + 1,
                commands="".join(f"{each[indent:]}\n" for each in lines[start:index]),
                not_run=comments.get("not run"),
                complete=comments.get("complete"),
                exit_code=int(comments.get("exit code", 0)),
            )
            start = None


def _comments(lines: list[str]) -> Iterator[tuple[str, str]]:
    for line in reversed(lines):
        match = COMMENT.fullmatch(line)
        if match is None:
            return
        yield match[1], match[2]
