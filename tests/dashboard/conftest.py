"""The example store, its dashboard, and a browser. Tests of pages need Debian's chromium."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

from ci.util.process import STORE_VARIABLE
from tests.dashboard.browsing import CHROMIUM, NO_CHROMIUM, Example, Window, launch, write_example


@pytest.fixture(scope="session")
def example(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Example]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(STORE_VARIABLE, raising=False)  # the caller's database
        yield write_example(tmp_path_factory.mktemp("dashboard"))


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip(NO_CHROMIUM)
    with sync_playwright() as playwright:
        chromium = launch(playwright.chromium)
        yield chromium
        chromium.close()


@pytest.fixture
def window(browser: Browser, example: Example) -> Iterator[Window]:
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    found = Window(context.new_page(), example.site)
    yield found
    context.close()
    assert found.errors == []
    assert found.strange_requests == []
