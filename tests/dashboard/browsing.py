"""The example's dashboard, and a window of the browser that collects what goes wrong."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, BrowserType, Locator, Page

from ci import cli
from ci.model.results import RunResult
from tests.dashboard.example import make

# Debian's, of which the first takes 0.6 of the other's CPU-seconds, and that of GitHub's runners.
BROWSERS = ("chromium-headless-shell", "chromium", "google-chrome")
CHROMIUM = next(filter(None, map(shutil.which, BROWSERS)), None)
NO_CHROMIUM = f"no Chromium: install it, such as with `apt install {BROWSERS[0]}`"
ARGUMENTS = ("--no-sandbox", "--disable-dev-shm-usage")  # as root, in a container


@dataclass(frozen=True, kw_only=True)
class Example:
    """The written pages, and what they were made from."""

    site: Path
    results: Path
    runs: Sequence[RunResult]

    @property
    def newest(self) -> RunResult:
        return self.runs[-1]


def write_example(folder: Path) -> Example:
    """Make the example store and its dashboard in this folder."""
    site, results = folder / "site", folder / "results"
    runs = make(results)
    assert cli.main(["dashboard", "--output", str(site), "--results", str(results)]) == 0
    return Example(site=site, results=results, runs=runs)


def launch(chromium: BrowserType) -> Browser:
    """Start the browser of the system, so that Playwright does not download one."""
    return chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)


def unfold(parts: Locator, most: int = 0) -> None:
    """Open these `details`, or the last few; wait for the tables that the script then makes."""
    parts.evaluate_all(
        """(parts, most) => Promise.all(parts.slice(-most).filter(it => !it.open).map(
             it => new Promise(done => {
               it.addEventListener("toggle", done, { once: true });
               it.open = true;
             })))""",
        most,
    )


class Window:
    """A page of the dashboard, with everything that went wrong in it."""

    def __init__(self, page: Page, site: Path) -> None:
        self.page, self._site = page, site
        self.requests: list[str] = []
        self.errors: list[str] = []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", self._console)

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(message.text)

    def open(self, name: str) -> Page:
        """Open a page, and wait until its script has drawn it."""
        self.page.goto("about:blank")  # another part of one page is no other page
        self.page.goto(f"{self._site.as_uri()}/{name}")
        self.page.wait_for_selector("html[data-ready]", state="attached")
        self.page.evaluate(
            "() => new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r)))"
        )
        return self.page

    @property
    def strange_requests(self) -> list[str]:
        """The addresses outside of the dashboard's folder that were asked for."""
        own = ("about:", "data:", f"{self._site.as_uri()}/")
        return [url for url in self.requests if not url.startswith(own)]
