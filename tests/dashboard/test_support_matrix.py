"""The support matrix in a browser, on a desktop and on a phone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from ci import cli
from ci.util.invocation import REPOSITORY


@pytest.fixture(scope="module")
def matrix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("matrix")
    contracts = ("tests/ops/contracts/cpu.yaml", "tests/simulated/contracts/ascend.yaml")
    files = [it for name in contracts for it in ("--contract", str(REPOSITORY / name))]
    options = ["--format", "support-matrix", "--output", str(folder)]
    assert cli.main(["export", *options, *files]) == 0
    return folder / "support-matrix.html"


@pytest.fixture(params=[(1440, 900), (390, 844)], ids=["desktop", "phone"])
def page(request: pytest.FixtureRequest, browser: Browser, matrix: Path) -> Iterator[Page]:
    width, height = request.param
    page = browser.new_page(viewport={"width": width, "height": height})
    errors: list[str] = []
    page.on("console", lambda message: errors.append(message.text))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(matrix.as_uri())
    yield page
    page.close()
    assert errors == []


def test_it_is_searched_and_fits(page: Page) -> None:
    row = page.locator("#matrix tbody tr", has=page.get_by_text("native_layer_norm", exact=True))
    assert "floating" in row.locator("td").last.inner_text()
    page.fill("#search", "layer_norm float")
    shown = page.locator("#matrix tbody tr:visible")
    assert 0 < shown.count() < 20
    assert page.inner_text("#count").startswith(f"{shown.count()} of 1,")
    fits = "document.documentElement.scrollWidth <= window.innerWidth"
    assert page.evaluate(fits)
    box = row.locator("td").last.bounding_box()
    assert box is not None
    assert box["x"] + box["width"] <= page.evaluate("window.innerWidth")


def test_on_a_phone_each_cell_names_its_platform(page: Page) -> None:
    cell = page.locator("#matrix tbody td").first
    before = cell.evaluate("it => getComputedStyle(it, '::before').content")
    is_phone = page.viewport_size is not None and page.viewport_size["width"] < 700
    assert before == ('"CPU: "' if is_phone else "none")
