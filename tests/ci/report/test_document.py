"""One document, rendered in a terminal and as Markdown; each escapes what it has to."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from ci.report.document import (
    Code,
    Document,
    Fold,
    Heading,
    Items,
    Span,
    Table,
    escape,
    markdown,
    print_document,
)

TABLE = Table(("`a`", "n"), [("x|y", "1"), ("[b]", "20")], numbers=("n",), styles=("", "red"))
DOCUMENT: Document = [
    [Heading(2, "A *title*"), ("It ", Span("passed", "green", strong=True), ".")],
    [Items(["one", "  of it", Span("two", "red")], indent="> "), TABLE],
    [Fold("more <here>", [Items([]), "the end"])],
]


def printed(document: Document, *, width: int = 80, color: bool = False, wrap: bool = False) -> str:
    file = StringIO()
    console = Console(file=file, width=width, color_system="standard" if color else None)
    print_document(document, console, wrap=wrap)
    return file.getvalue()


def test_a_terminal_has_a_blank_line_between_sections() -> None:
    lines = [line.rstrip() for line in printed(DOCUMENT).splitlines()]
    assert lines[:6] == ["A *title*", "It passed.", "", "> one", ">   of it", "> two"]
    assert lines[6:] == [
        "a      n",
        "────────",
        "x|y    1",
        "[b]   20",
        "",
        "more <here>",
        "the end",
    ]


def test_a_page_has_a_blank_line_between_blocks() -> None:
    assert markdown(DOCUMENT) == (
        "## A \\*title\\*\n\nIt **passed**.\n\n"
        "* one\n  * of it\n* two\n\n"
        "| `a` | n |\n|---|---:|\n| x\\|y | 1 |\n| \\[b\\] | 20 |\n\n"
        "<details><summary>more &lt;here&gt;</summary>\n\n\nthe end\n\n</details>\n"
    )


def test_colors_are_for_terminals() -> None:
    shown = printed(DOCUMENT, color=True)
    assert "It \x1b[32mpassed\x1b[0m." in shown
    assert "> \x1b[31mtwo\x1b[0m" in shown
    assert "\x1b" not in markdown(DOCUMENT)


def test_lines_are_wrapped_on_request_only() -> None:
    text = "word " * 10
    assert printed([[text.strip()]], width=20).count("\n") == 1
    assert printed([[text.strip()]], width=20, wrap=True).count("\n") == 3


def test_no_renderer_obeys_what_a_text_holds() -> None:
    hostile = "[red]a[/red] \x1b[31m<b>_c_ d_e\x07"
    assert printed([[hostile]]) == "[red]a[/red] <b>_c_ d_e\N{REPLACEMENT CHARACTER}\n"
    assert escape(("  ", hostile, "\n", Span("`x`", strong=True))) == (
        "\\[red\\]a\\[/red\\] &lt;b&gt;\\_c\\_ d_e\N{REPLACEMENT CHARACTER} **\\`x\\`**"
    )


def test_code_is_fenced_on_a_page_and_never_broken_in_a_terminal() -> None:
    text = "run `a` ```b``` " + "word " * 10 + "\x1b[31mend"
    shown = "run `a` ```b``` " + "word " * 10 + "end"
    assert printed([[Code(text)]], width=20, wrap=True) == f"    {shown}\n"
    assert markdown([[Code(text)]]) == f"````sh\n{shown}\n````\n"


def test_a_column_without_room_is_shown_below() -> None:
    table = Table(("a", "Notes"), [("x", "long " * 8), ("y", "")], below="Notes")
    assert printed([[table]], width=48).count("Notes") == 1
    assert printed([[table]], width=44).splitlines()[-2:] == ["Notes", "x: " + "long " * 8]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("a|b", "`a|b`"),
        ("a`b", "``a`b``"),
        ("`a``", "``` `a`` ```"),
        ("a\n b", "`a b`"),
        ("<b>@all", "`<b>@all`"),
        ("", ""),
    ],
)
def test_code_is_between_enough_backticks(text: str, code: str) -> None:
    assert escape(Span(text, code=True)) == code


@pytest.mark.parametrize(
    "text",
    ["@all", "@a/b", "a@b.example", "#1", "a/b#1", "!1", "~label", "https://a", "WWW.a", "$1"],
)
def test_a_forge_makes_no_reference_of_a_text(text: str) -> None:
    escaped = escape(text)
    assert "<!-- -->" in escaped
    assert escaped.replace("<!-- -->", "").replace("\\", "") == text


@pytest.mark.parametrize(
    "text", ["a image@sha256:0", "97 % hits", "a: b", "C# 1", "a != 1", "x.www"]
)
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert escape(text) == text


@pytest.mark.parametrize(
    ("text", "line"),
    [("- a", "\\- a"), ("# a", "\\# a"), ("1. a", "1\\. a"), ("+a", "\\+a"), ("1 a", "1 a")],
)
def test_a_line_begins_no_other_block(text: str, line: str) -> None:
    assert markdown([[text, Items([text])]]) == f"{line}\n\n* {line}\n"


def test_a_child_may_be_highlighted() -> None:
    assert markdown([[Items(["a", ("  ", Span("b", code=True))])]]) == "* a\n  * `b`\n"
