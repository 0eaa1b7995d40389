"""The example store, its dashboard, and a browser. Tests of pages need Debian's chromium."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from example import make
from playwright.sync_api import Browser, Page, sync_playwright

from ci import cli
from ci.model.results import RunResult
from ci.util.process import STORE_VARIABLE

CHROMIUM = shutil.which("chromium")


@dataclass(frozen=True, kw_only=True)
class Example:
    """The written pages, and what they were made from."""

    site: Path
    results: Path
    runs: Sequence[RunResult]

    @property
    def newest(self) -> RunResult:
        return self.runs[-1]


@pytest.fixture(scope="session")
def example(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Example]:
    folder = tmp_path_factory.mktemp("dashboard")
    site, results = folder / "site", folder / "results"
    kept = os.environ.pop(STORE_VARIABLE, None)  # the caller's database
    runs = make(results)
    assert cli.main(["dashboard", "--output", str(site), "--results", str(results)]) == 0
    yield Example(site=site, results=results, runs=runs)
    if kept is not None:
        os.environ[STORE_VARIABLE] = kept


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("no chromium: install it, such as with `apt install chromium`")
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-dev-shm-usage"]  # as root, in a container
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield chromium
        chromium.close()


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


@pytest.fixture
def window(browser: Browser, example: Example) -> Iterator[Window]:
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    found = Window(context.new_page(), example.site)
    yield found
    context.close()
    assert found.errors == []
    assert found.strange_requests == []
