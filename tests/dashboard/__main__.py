"""Makes the screenshots of the dashboard in ``docs/images``: ``python -m tests.dashboard``."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from playwright.sync_api import Page, sync_playwright

from ci.report.dashboard.html import file_stem
from ci.util.invocation import naming_commands_for_others
from tests.dashboard.browsing import CHROMIUM, NO_CHROMIUM, Window, launch, write_example
from tests.dashboard.example import FAILING

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"
REGRESSIONS = "index.html#kind=regression"  # of everything, the grid would be below the picture
LARGEST = 150_000  # bytes of an image: pages of the documentation load it


@dataclass(frozen=True, kw_only=True)
class Shot:
    """A screenshot: the page, with ``RUN`` for the newest one, and the size of the window."""

    page: str
    width: int = 1440
    height: int = 900
    scheme: Literal["light", "dark"] = "light"
    at: str = ""
    """The element that is scrolled to the top."""


SHOTS: Mapping[str, Shot] = {
    "dashboard-overview": Shot(page=REGRESSIONS, width=1280, height=680),
    "dashboard-overview-dark": Shot(page=REGRESSIONS, scheme="dark", width=1280, height=680),
    "dashboard-overview-narrow": Shot(page="index.html", at="#grid-title", width=360, height=540),
    "dashboard-platform": Shot(page="platform-cpu.html"),
    "dashboard-run": Shot(page=f"RUN.html#platform={FAILING}", at="#timeline-title", height=620),
    "dashboard-failures": Shot(page="RUN.html", at=f"#{FAILING}", height=560),
    "dashboard-operators": Shot(page="operators.html#differing=1", at="h1", width=1100, height=860),
    "dashboard-compare": Shot(page="compare.html", width=1100, height=720),
}


def take(window: Window, shot: Shot, run: str) -> Page:
    """Open the page of a screenshot."""
    page = window.page
    page.set_viewport_size({"width": shot.width, "height": shot.height})
    page.emulate_media(color_scheme=shot.scheme)
    window.open(shot.page.replace("RUN", run))
    page.wait_for_timeout(200)  # rows that follow the first screen
    if shot.at:
        page.locator(shot.at).evaluate("it => it.scrollIntoView()")
    else:
        page.evaluate("scrollTo(0, 0)")
    return page


def main() -> int:
    """Write all screenshots; return 1 if one is too large."""
    if CHROMIUM is None:
        print(NO_CHROMIUM, file=sys.stderr)
        return 3
    IMAGES.mkdir(exist_ok=True)
    code = 0
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        with naming_commands_for_others():  # without the folder, whose name differs each time
            example = write_example(Path(folder))
        browser = launch(playwright.chromium)
        window = Window(browser.new_page(), example.site)
        for name, shot in SHOTS.items():
            path = IMAGES / f"{name}.png"
            page = take(window, shot, file_stem("run", example.newest.run_id))
            page.screenshot(path=path)
            size = path.stat().st_size
            print(f"wrote {path.name}: {size:,} bytes")
            if size > LARGEST:
                print(f"{path.name}: got {size:,} bytes, expected {LARGEST:,}", file=sys.stderr)
                code = 1
        browser.close()
    return code


if __name__ == "__main__":
    sys.exit(main())
