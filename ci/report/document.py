"""One document model for all reports, rendered in a terminal, as Markdown or as JSON.

A document is a sequence of sections, and a section is a sequence of blocks. A terminal shows a
blank line between sections, Markdown between blocks. Texts are stored as tests and tools wrote
them; each renderer escapes them.
"""

from __future__ import annotations

import html
import json
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from rich import box
from rich import table as terminal
from rich.console import Console, JustifyMethod
from rich.text import Text

from ci.util.terminal import show
from ci.util.text import strip_controls

# Width in characters where the output is no terminal: the table of six platforms takes 187.
FILE_WIDTH = 200
SCREEN_WIDTH = 80  # of the narrowest terminal on which tables are meant to be read
LAST_WIDTH = 40  # of the last column of a table, if it may be shown below instead
COLUMN_GAP = 2  # rich puts a space before and after each cell
CODE_INDENT = "    "
# Markdown takes no underscore inside a word as markup; most test names have some.
_MARKUP = re.compile(r"[\\`*\[\]|~]|(?<![^\W_])_|_(?![^\W_])")
# What a forge turns into a link, or into a message to a person: addresses, @name, #1, !1, ~label.
# An empty comment after it prevents that, and is not shown.
_REFERENCE = re.compile(
    r"(?<!\w)[@~$%](?=\w)|@(?=[\w-]+\.)|[#!](?=\d)|(?<=\w):(?=//)|\bwww(?=\.)", re.IGNORECASE
)
_NOTHING = "<!-- -->"
_BLOCK = re.compile(r"^(\d*)([-+#=.)])")  # begins a list or a heading, where a line begins
_BACKTICKS = re.compile("`+")


@dataclass(frozen=True)
class Span:
    """Highlighted text: colored in a terminal, and bold or code on a page.

    A forge makes no links and no mentions of what is in code.
    """

    text: str
    color: str = ""
    strong: bool = False
    code: bool = False


Line = str | Span | tuple[str | Span, ...]


@dataclass(frozen=True)
class Heading:
    level: int
    text: str
    style: str = ""
    """The style in a terminal, which shows no heading levels."""


@dataclass(frozen=True)
class Items:
    """A list. A line that begins with spaces is a child of the line before it."""

    lines: Sequence[Line]
    indent: str = ""
    """The indent in a terminal, which shows no bullets."""


@dataclass(frozen=True)
class Table:
    """Rows of text. Headings are fixed texts, which may have code in backticks."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: Collection[str] = ()
    """The headings of right-aligned columns."""
    styles: Sequence[str] = ()
    """The styles of the rows in a terminal."""
    title: str = ""
    """The title in a terminal; on a page, a heading precedes the table."""
    below: str = ""
    """The heading of the last column, if a terminal without room for it shows it below."""


@dataclass(frozen=True)
class Fold:
    """Blocks that a page shows only when the reader unfolds them."""

    summary: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Code:
    """A command of one line, which a terminal never breaks: it is copied."""

    text: str


Block = Line | Heading | Items | Table | Fold | Code  # a line is a paragraph
Document = Iterable[Sequence[Block]]


class Report(ABC):
    """The output of a command, in several formats."""

    wrap: ClassVar[bool] = False
    """Whether lines are wrapped in a terminal. Unwrapped lines can be searched and copied."""

    @abstractmethod
    def document(self, *, page: bool) -> Document:
        """Build the text for a terminal, or for a page such as a pull request comment."""

    @abstractmethod
    def data(self) -> dict[str, Any]:
        """Collect all data for programs, as JSON shows it."""

    def show(self, form: str) -> None:
        """Print the report in the format of ``--format``."""
        if form == "json":
            show(self.json(), end="")
        elif form == "markdown":
            show(self.markdown(), end="")
        else:
            self.print(output())

    def json(self) -> str:
        return json.dumps(self.data(), indent=2) + "\n"

    def markdown(self) -> str:
        return markdown(self.document(page=True))

    def print(self, console: Console) -> None:
        print_document(self.document(page=False), console, wrap=self.wrap)


def select_attributes(thing: object, *names: str) -> dict[str, Any]:
    """Select attributes of an object for JSON."""
    return {name: getattr(thing, name) for name in names}


class _Output(Console):
    def on_broken_pipe(self) -> None:
        """Let the command line report it; rich itself would exit with 1."""
        raise  # rich calls this while it handles the error


def output() -> Console:
    """The console of the standard output; only a terminal limits its width."""
    return _Output(width=None if sys.stdout.isatty() else FILE_WIDTH)


def print_document(document: Document, console: Console, *, wrap: bool = False) -> None:
    for number, section in enumerate(document):
        if number:
            console.print()
        for block in section:
            whole = isinstance(block, Code) or not wrap
            for shown in _render(block, console.width):
                if isinstance(shown, Text) and not whole:
                    _print_wrapped(shown, console)
                else:
                    console.print(shown, soft_wrap=isinstance(shown, Text))


def _print_wrapped(text: Text, console: Console) -> None:
    """Print a text whose further lines are indented like its first."""
    indent = len(text.plain) - len(text.plain.lstrip(" "))
    for line in text[indent:].wrap(console, console.width - indent) or [text]:
        line.rstrip()
        console.print(Text(" " * indent) + line, soft_wrap=True)


def _render(block: Block, width: int) -> Iterator[Text | terminal.Table]:
    match block:
        case Heading(_, text, style):
            yield _text(Span(text, style))
        case Items(lines, indent):
            yield from (_text(line, indent) for line in lines)
        case Table(headings, rows, below=below) if below and not _has_room(block, width):
            others = [row[:-1] for row in rows]
            yield _render_table(replace(block, headings=headings[:-1], rows=others), width)
            yield Text("")
            cells = [f"{row[0]}: {row[-1]}" for row in rows if row[-1]]
            yield from map(_text, (below, *cells))
        case Table():
            yield _render_table(block, width)
        case Code(text):
            yield _text(text, CODE_INDENT)
        case Fold(summary, blocks):  # a terminal shows it unfolded
            yield _text(summary)
            for inner in blocks:
                yield from _render(inner, width)
        case _:
            yield _text(block)


def _has_room(table: Table, width: int) -> bool:
    """Whether the last column gets ``LAST_WIDTH`` beside the others, none of which is folded."""
    cells = [[len(strip_controls(cell)) for cell in row[:-1]] for row in table.rows]
    headings = [len(heading) for heading in table.headings[:-1]]
    widest: list[int] = [max(column) for column in zip(headings, *cells, strict=True)]
    return sum(widest) + COLUMN_GAP * len(table.headings) + LAST_WIDTH <= width


def _render_table(table: Table, width: int) -> terminal.Table:
    caption = _text(table.title) if table.title else None
    shown = terminal.Table(
        title=caption, title_justify="left", box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False
    )
    for heading in table.headings:
        justify: JustifyMethod = "right" if heading in table.numbers else "left"
        title = heading.replace("`", "")
        # Fold cells, but not the words of a heading: narrower than this, columns would be lost.
        least = max(map(len, title.split()), default=0) if width >= SCREEN_WIDTH else None
        shown.add_column(title, justify=justify, overflow="fold", min_width=least)
    for row, style in zip(table.rows, table.styles or [""] * len(table.rows), strict=True):
        shown.add_row(*(Text(strip_controls(cell), style) for cell in row))
    return shown


def _text(line: Line, indent: str = "") -> Text:
    """Plain text: rich must not interpret a test name or a message as markup."""
    return Text.assemble(indent, *((strip_controls(it.text), it.color) for it in spans_of(line)))


def spans_of(line: Line) -> Iterator[Span]:
    """Yield the parts of a line."""
    for part in line if isinstance(line, tuple) else (line,):
        yield part if isinstance(part, Span) else Span(part)


def markdown(document: Document) -> str:
    lines = (line for section in document for block in section for line in _markdown(block))
    return "\n".join(lines).rstrip() + "\n"


def _markdown(block: Block) -> Iterator[str]:
    """Yield the lines of a block, then a blank line."""
    match block:
        case Heading(level, text):
            yield f"{'#' * level} {escape(text)}"
        case Items(lines):
            for line in lines:
                nested = next(spans_of(line)).text.startswith(" ")
                yield f"{'  ' if nested else ''}* {_escape_line(line)}"
        case Table(headings, rows, numbers):
            yield f"| {' | '.join(headings)} |"
            yield "|" + "".join("---:|" if it in numbers else "---|" for it in headings)
            yield from (f"| {' | '.join(map(escape, row))} |" for row in rows)
        case Code(text):
            shown = strip_controls(text)
            fence = _fence(shown, 3)
            yield from (f"{fence}sh", shown, fence)
        case Fold(summary, blocks):
            yield f"<details><summary>{escape(summary)}</summary>\n"
            for inner in blocks:
                yield from _markdown(inner)
            yield "</details>"
        case _:
            yield _escape_line(block)
    yield ""


def _escape_line(line: Line) -> str:
    """Escape a line that begins a block, whatever it begins with."""
    return _BLOCK.sub(r"\1\\\2", escape(line))


def escape(line: Line) -> str:
    """Escape one line so that neither Markdown nor HTML changes it, in a table cell too."""
    text = ""
    for span in spans_of(line):
        shown = strip_controls(span.text)
        if span.code and (words := shown.split()):
            text += _code(" ".join(words))
            continue
        plain = html.escape(shown, quote=False)
        marked = _REFERENCE.sub(rf"\g<0>{_NOTHING}", _MARKUP.sub(r"\\\g<0>", plain))
        text += f"**{marked}**" if span.strong else marked
    return " ".join(text.split())


def _fence(text: str, least: int = 1) -> str:
    """More backticks than the text has in a row."""
    return "`" * max(least, 1 + max(map(len, _BACKTICKS.findall(text)), default=0))


def _code(text: str) -> str:
    fence = _fence(text)
    room = " " if "`" in (text[0], text[-1]) else ""
    return f"{fence}{room}{text}{room}{fence}"
