"""``docs/reference`` is what the program declares."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from ci.plan.values import RECORDS
from tests.docs import reference
from tests.docs.pages import pages
from tests.docs.site import loads

SOURCES = ("ci", "codegen", "docker", "src", "tests/ops")
MACROS = {"INFINI_OPS_REGISTER"}  # of C++, in messages of Python
SUFFIXES = {".cc", ".cmake", ".py", ".txt"}


def test_the_generated_pages_are_up_to_date() -> None:
    """Also those outside of the reference: one command writes all of them."""
    shown = {path: path.read_text(encoding="utf-8") for path in pages()}
    assert shown == pages(), f"run: {reference.COMMAND}"


def test_no_page_is_left_over() -> None:
    found = {path.name for path in reference.FOLDER.iterdir()}
    assert found == set(reference.pages()), f"run: {reference.COMMAND}"


@pytest.mark.parametrize("name", [it for it in reference.pages() if it.endswith(".md")])
def test_a_page_has_each_heading_once(name: str) -> None:
    """A link leads to the first one of a name."""
    text = reference.pages()[name]
    found = Counter(re.findall(r"^#+ .*$", text, re.MULTILINE))
    assert [heading for heading, count in found.items() if count > 1] == []


def test_every_record_of_a_platform_is_listed() -> None:
    passing = {"environment.tmp"}  # renamed as soon as it is written
    assert set(reference.PLATFORM_FILES) >= RECORDS - passing


def test_every_variable_is_listed() -> None:
    paths = [
        path
        for folder in SOURCES
        for path in (reference.ROOT / folder).rglob("*")
        if path.suffix in SUFFIXES
    ]
    used = {name for path in paths for name in variables_in(path)}
    listed = {
        name.partition("<")[0]
        for table in (
            reference.VARIABLES_READ,
            reference.VARIABLES_OF_BUILDS,
            reference.VARIABLES_OF_LIBRARY,
            reference.VARIABLES_SET,
        )
        for name in table
    }
    assert used - listed - set(reference.INTERNAL) == set()
    own = {name for name in listed if name.startswith("INFINI_")}
    assert own - used == set(), "listed, and used nowhere"


def variables_in(path: Path) -> set[str]:
    """Variables of the environment; macros of C++ and targets of CMake are none."""
    text = path.read_text(encoding="utf-8", errors="replace")
    form = {
        ".py": r"\b(INFINI_(?:CI|OPS)_[A-Z_]+)(?:\b|\{)",
        ".cc": r"getenv\(\"(INFINI_\w+)\"",
    }.get(path.suffix, r"\$ENV\{(INFINI_\w+)\}")
    return set(re.findall(form, text)) - MACROS


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('<script src="https://unpkg.com/a.js"></script>', ["https://unpkg.com/a.js"]),
        ('<link rel="stylesheet" href="//fonts.example/css">', ["//fonts.example/css"]),
        ("@import 'https://a.example/b.css';", ["https://a.example/b.css"]),
        ('<a href="https://pypi.org/">PyPI</a> <img src="logo.svg">', []),
    ],
)
def test_what_a_page_loads_from_elsewhere(text: str, found: list[str]) -> None:
    assert loads(text) == found
