"""What all reports in a terminal share."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Sequence
from itertools import repeat

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ci.util.text import printable

FILE_WIDTH = 200  # characters of a line that is not printed on a terminal


def output() -> Console:
    """The standard output; without a terminal there is no width to fit into."""
    return Console(width=None if sys.stdout.isatty() else FILE_WIDTH)


def say(console: Console, *lines: str, style: str = "") -> None:
    """As they are: neither markup nor folded, so that they can be searched and copied."""
    for line in lines:
        console.print(plain(line, style), soft_wrap=True)


def plain(text: str, style: str = "") -> Text:
    """As it is: what a test's name or a message holds is no markup."""
    return Text(printable(text), style=style)


def text_table(
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    numbers: Collection[str] = (),
    styles: Iterable[str] = (),
    title: str | None = None,
) -> Table:
    """``numbers`` names the columns that stand on the right; ``styles`` are of the rows."""
    table = Table(
        title=title and plain(title), title_justify="left", box=box.SIMPLE_HEAD, show_edge=False
    )
    for heading in headings:
        name, is_number = heading.replace("`", ""), heading in numbers
        table.add_column(name, justify="right" if is_number else "left", overflow="fold")
    for row, style in zip(rows, styles or repeat(""), strict=False):
        table.add_row(*(plain(cell, style) for cell in row))
    return table
