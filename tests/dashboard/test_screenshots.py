"""The screenshots of the pages: each is used, small, and can be taken again."""

from __future__ import annotations

import re

import pytest

from ci.report.dashboard.html import file_stem
from tests.dashboard.__main__ import IMAGES, LARGEST, SHOTS, take
from tests.dashboard.browsing import Example, Window

ROOT = IMAGES.parents[1]


def test_the_images_are_those_that_the_session_makes() -> None:
    found = {path.name: path.stat().st_size for path in IMAGES.iterdir()}
    assert sorted(found) == sorted(f"{name}.png" for name in SHOTS)
    assert {name: size for name, size in found.items() if size > LARGEST} == {}


def test_every_image_is_on_a_page() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    shown = set(re.findall(r"!\[[^\]]+\]\((?:docs/)?images/([\w-]+)\.png\)", text))
    assert shown == {*SHOTS}


@pytest.mark.complete
@pytest.mark.parametrize("name", SHOTS)
def test_what_a_screenshot_shows_still_exists(window: Window, example: Example, name: str) -> None:
    shot = SHOTS[name]
    page = take(window, shot, file_stem("run", example.newest.run_id))
    assert page.locator(shot.at or "h1").first.is_visible()
    assert page.evaluate("innerWidth") == shot.width
