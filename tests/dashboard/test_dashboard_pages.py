"""The pages in a real browser: what they show, their filters and links, and hostile texts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

from ci.report.dashboard.html import file_stem
from ci.store.folder import default_url, lock_run
from ci.store.store import Store
from tests.cases import narrowed
from tests.ci.stored_history import Project
from tests.ci.written_site import begin, write
from tests.dashboard.browsing import Example, Window, unfold
from tests.dashboard.example import (
    ASSERTION,
    FAILING,
    FAILING_SINCE,
    FLEET,
    HOSTILE,
    MACHINES,
    SMALLER,
    TIMED_OUT,
)

WIDTHS = (360, 768, 1440)
SCHEMES = ("light", "dark")


def pages_of(example: Example) -> list[str]:
    """One page of each kind; of the runs, the newest."""
    run = file_stem("run", example.newest.run_id)
    names = [
        "index",
        "runs",
        "regressions",
        "search",
        "operators",
        "compare",
        f"platform-{FAILING}",
        "platform-cpu",
        run,
    ]
    return [f"{name}.html" for name in names]


# All pages


def serious_faults(page: Page, **options: object) -> list[str]:
    """What axe finds, with the first element that has the fault."""
    # Without `preload` it would read the style sheet, which the page's policy forbids.
    options = {"preload": False, "resultTypes": ["violations"], **options}
    violations = Axe().run(page, options=options).response["violations"]
    bad = [it for it in violations if it["impact"] in ("serious", "critical")]
    return [f"{it['id']}: {it['nodes'][0]['html']}" for it in bad]


@pytest.mark.parametrize("scheme", narrowed(SCHEMES, kept=1))
def test_no_page_has_a_serious_fault_of_accessibility(
    browser: Browser, example: Example, scheme: Literal["light", "dark"]
) -> None:
    context = browser.new_context(color_scheme=scheme, viewport={"width": 1440, "height": 900})
    window = Window(context.new_page(), example.site)
    options = {} if scheme == "light" else {"runOnly": ["color-contrast"]}
    found = {name: serious_faults(window.open(name), **options) for name in pages_of(example)}
    context.close()
    assert {name: faults for name, faults in found.items() if faults} == {}


def test_unfolded_parts_have_no_serious_fault_of_accessibility(
    window: Window, example: Example
) -> None:
    # The contrast of many cells takes half a minute, and folded parts have no colors of their own.
    options = {"rules": {"color-contrast": {"enabled": False}}}
    found = {}
    for name in pages_of(example):
        page = window.open(name)
        unfold(page.locator("details"), most=6)
        found[name] = serious_faults(page, **options)
    assert {name: faults for name, faults in found.items() if faults} == {}


@pytest.mark.parametrize("width", narrowed(WIDTHS, kept=1))
def test_no_page_scrolls_sideways(window: Window, example: Example, width: int) -> None:
    window.page.set_viewport_size({"width": width, "height": 800})
    found = {}
    for name in pages_of(example):
        page = window.open(name)
        unfold(page.locator("details"))
        found[name] = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert {name: over for name, over in found.items() if over > 0} == {}


def test_every_link_leads_to_a_page_of_the_folder(example: Example) -> None:
    pages = sorted(example.site.glob("*.html"))
    targets = {
        (page.name, target)
        for page in pages
        for target in re.findall(r'(?:href|src)="([^"#]+)', page.read_text(encoding="utf-8"))
        if target != "data:,"
    }
    missing = [it for it in sorted(targets) if not (example.site / it[1]).is_file()]
    assert len(targets) > 100
    assert missing == []


def test_a_page_follows_the_keyboard_from_its_first_link(window: Window) -> None:
    page = window.open("index.html")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")  # skip to content
    page.wait_for_function("() => document.activeElement.id === 'main'")


def test_hostile_names_of_tests_are_text(window: Window, example: Example) -> None:
    stem = file_stem("run", example.newest.run_id)
    page = window.open(f"{stem}.html#platform={FAILING}&find=test_markup")
    unfold(page.locator("details"))
    page.get_by_label("Timeline of").press("ArrowRight")
    names = page.locator(f"#{FAILING} .failures .test").all_inner_texts()
    assert [name for name in names if name.startswith(HOSTILE[0])] == [HOSTILE[0]]
    assert [name for name in names if name.startswith(HOSTILE[2])] == [HOSTILE[2]]
    assert "owned" not in page.title()
    assert page.locator("main script, main img").count() == 0
    # Characters that turn the direction of text, or that no one sees, are shown as replaced.
    text = page.content() + (example.site / "data" / f"{stem}.js").read_text(encoding="utf-8")
    assert [
        it for it in "\N{RIGHT-TO-LEFT OVERRIDE}\N{ZERO WIDTH SPACE}\x1b\u2028" if it in text
    ] == []
    assert "</script><img" not in (example.site / "data" / f"{stem}.js").read_text()


# Overview


def test_the_overview_lists_what_needs_attention_first(window: Window, example: Example) -> None:
    page = window.open("index.html")
    items = page.locator(".attention > li")
    kinds = items.evaluate_all("all => all.map(it => it.dataset.kind)")
    assert kinds[:2] == ["failing", "failing"]
    assert {"regression", "smaller suite", "contract"} <= set(kinds)
    failing = items.filter(has_text="since commit").first.inner_text()
    first = next(run for run in example.runs if run.platform(FAILING).failures)
    assert f"since commit {first.commit[:12] if first.commit else ''}" in failing
    page.get_by_label("Show").select_option("smaller suite")
    shown = page.locator(".attention > li:visible")
    assert shown.count() == 1
    assert f"{SMALLER}: 20 tests vanished" in shown.inner_text()
    assert "kind=smaller+suite" in page.url
    # A link to the filtered view shows it again.
    page.reload()
    assert page.locator(".attention > li:visible").count() == 1
    page.locator("#attention-platform").select_option("cpu")
    assert page.locator("#attention-count").inner_text() == "0 shown"


def test_the_grid_shows_the_newest_results(window: Window, example: Example) -> None:
    page = window.open("index.html")
    rows = page.locator(".grid tbody tr")
    assert rows.count() == len(example.newest.platforms)
    for row, result in zip(rows.all(), example.newest.platforms, strict=True):
        last = row.locator("td.cell").last
        assert result.verdict.product in (last.get_attribute("class") or "")
        assert result.label in row.inner_text()
        assert (
            last.inner_text().strip()
            == {"passed": "✓", "failed": "✗", "incomplete": "?"}[result.verdict.product]
        )
    timed_out = page.locator(".grid td.incomplete a")
    assert timed_out.count() == 1
    timed_out.click()
    page.wait_for_url(f"**/{file_stem('run', example.newest.run_id)}.html#{TIMED_OUT}")
    page.wait_for_selector("html[data-ready]", state="attached")
    assert page.locator("#timeline-platform").input_value() == TIMED_OUT


def test_a_narrow_screen_shows_the_newest_cells_first(window: Window, example: Example) -> None:
    window.page.set_viewport_size({"width": 360, "height": 800})
    page = window.open("index.html")
    for row in page.locator(".grid tbody tr").all():
        cells = row.locator("td.cell:visible")
        assert cells.count() == 9
        box = cells.last.bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= 360
    assert page.locator(".grid .spark:visible").count() == 0
    last = page.locator(".grid .commit:visible").last
    assert last.inner_text() == (example.newest.commit or "")[:8]
    assert page.get_by_text("older ones are in the table below").is_visible()


def test_a_platform_says_what_alarms_without_a_choice(window: Window) -> None:
    page = window.open("index.html")
    links = page.locator('li[data-kind="regression"] a[href*="measure="]')
    pages = {it.get_attribute("href") or "" for it in links.all()}
    assert len(pages) > 1
    for name, _, measure in (it.partition("#measure=") for it in pages):
        shown = window.open(name).locator(f'[data-plot="{measure}"] text.sign.open')
        assert shown.count() > 0, f"{name}: {measure}"


# Platforms


@pytest.fixture
def plain(browser: Browser, plain_site: Path) -> Iterator[Window]:
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    found = Window(context.new_page(), plain_site)
    yield found
    context.close()
    assert found.errors == []


@pytest.mark.parametrize("width", WIDTHS)
def test_labels_of_axes_are_whole_and_differ(plain: Window, width: int) -> None:
    plain.page.set_viewport_size({"width": width, "height": 900})
    page = plain.open("platform-cpu.html#measure=all")
    figures = page.locator("figure").all()
    assert len(figures) > 5
    for figure in figures:
        for kind in ("text[text-anchor=end]", "text.tick"):
            labels = figure.locator(kind)
            texts = labels.evaluate_all("all => all.map((it) => it.textContent)")
            assert len(texts) == len(set(texts)) > 0, figure.get_attribute("data-plot")
            edges = labels.evaluate_all("all => all.map((it) => it.getBBox().x)")
            assert min(edges) >= 0, texts
    days = page.locator('[data-plot="counts"] text.tick').all_text_contents()
    assert days[0] == "2026-01-01"
    assert re.fullmatch(r"1\d:\d\d", days[1])


def test_labels_of_a_timeline_are_whole(plain: Window, plain_site: Path) -> None:
    [*_, newest] = sorted(plain_site.glob("run-*.html"))
    page = plain.open(newest.name)
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        page.evaluate("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
        ends = page.locator("#timeline svg.plot text").evaluate_all(
            "all => all.map((it) => it.getBBox().x + it.getBBox().width)"
        )
        shown = page.locator("#timeline svg.plot").evaluate("it => it.viewBox.baseVal.width")
        assert max(ends) <= shown


def test_no_more_than_all_tests_are_executed(plain: Window) -> None:
    page = plain.open("platform-cpu.html")
    labels = page.locator('[data-plot="executed"] text[text-anchor=end]').all_text_contents()
    assert labels[-1] == "100 %"
    assert max(float(it.removesuffix(" %")) for it in labels) == 100


def test_a_regression_that_is_not_shown_is_linked(plain: Window) -> None:
    page = plain.open("platform-cpu.html")
    assert page.locator('[data-plot="install.wall_s"] text.sign.open').count() == 0
    page.locator("#elsewhere").get_by_role("link", name="install").click()
    page.wait_for_selector('[data-plot="install.wall_s"] text.sign.open')
    assert page.locator("#cache").input_value() == "cold"
    assert page.locator("#elsewhere").inner_text() == ""


def plotted(page: Page, name: str) -> list[tuple[float, float]]:
    """The points of a plot as values: pixels, by the scale that the plot was drawn with."""
    found = page.locator(f'[data-plot="{name}"] svg.plot').evaluate(
        """svg => ({
             low: +svg.dataset.low, high: +svg.dataset.high,
             path: svg.querySelector(".points").getAttribute("d"),
           })"""
    )
    top, bottom = 20, 200 - 22
    span = found["high"] - found["low"]
    points = re.findall(r"M([\d.]+),([\d.]+)", found["path"])
    return [
        (float(x), found["low"] + (bottom - float(y)) / (bottom - top) * span) for x, y in points
    ]


def test_a_plot_and_its_table_show_the_numbers_of_the_store(
    window: Window, example: Example
) -> None:
    with Store(default_url(example.results)) as store:
        rows = store.measured("cpu", store.heads()[::-1])
    on_line = {run.run_id for run in example.runs if run.lineage.target is None}
    keys = [row for row in rows if row.run_id in on_line]
    page = window.open("platform-cpu.html#cache=both&measure=install.wall_s")
    expected = [row.values["install.wall_s"] for row in keys]
    figure = page.locator('[data-plot="install.wall_s"]')
    warm = plotted(page, "install.wall_s")
    cold = figure.locator(".cold").get_attribute("d") or ""
    assert len(warm) + cold.count("M") == len(expected) > 40
    assert cold.count("M") > 0
    tolerance = (max(expected) - min(expected)) / 1000
    for _, value in warm:
        assert min(abs(value - it) for it in expected) < tolerance
    figure.locator("summary").click()
    figure.locator("tbody tr").first.wait_for()  # the script makes the table after the click
    cells = figure.locator("tbody tr td:nth-child(2)").all_inner_texts()
    assert cells == [f"{it:,.0f} s" if it >= 9.95 else f"{it:.1f} s" for it in reversed(expected)]


def test_machines_are_told_apart_by_shape(window: Window) -> None:
    page = window.open(f"platform-{FLEET}.html")
    assert serious_faults(page) == []
    figure = page.locator('[data-plot="install.wall_s"]')
    legend = figure.locator(".key .machines").all_inner_texts()
    assert [re.sub(r" \(.*", "", text) for text in legend] == [
        f"M{n}: {name}, 64 cores, 512 GiB" for n, name in enumerate(MACHINES, start=1)
    ]
    unfold(figure.locator("details"))
    assert figure.locator("thead th").all_inner_texts()[1:4] == ["M1", "M2", "M3"]
    rows = figure.locator("tbody tr").all_inner_texts()
    drawn = {}
    for n in range(3):
        path = figure.locator(f"svg.plot path.m{n}:not(.hollow)").get_attribute("d") or ""
        drawn[n] = path.count("M")
        assert drawn[n] == sum(row.split("\t")[1 + n] != "-" for row in rows) > 2
    shapes = [it.get_attribute("d") for it in figure.locator(".key path").all()]
    assert len({*shapes}) == 3
    page.get_by_label("Machine").select_option("2")
    assert figure.locator("path.machine").count() == 0
    assert len(plotted(page, "install.wall_s")) == drawn[1]
    assert "machine=2" in page.url


def test_a_regression_is_marked_with_its_words(window: Window) -> None:
    page = window.open("platform-cpu.html")
    mark = page.locator('[data-plot="install.wall_s"] text.sign.open title').first
    text = mark.text_content() or ""
    assert text.startswith("open regression: install +")
    assert "to accept it:" in page.locator(".words").inner_text()


def test_a_regression_leads_to_its_plot(window: Window) -> None:
    page = window.open("regressions.html")
    page.locator(".rises a").first.click()
    page.wait_for_url("**/platform-*.html#measure=*")
    page.wait_for_selector("html[data-ready]", state="attached")
    # The words of the mark are below the plot, as if the reader had moved to it.
    page.wait_for_function(
        "() => document.querySelector('figure output').textContent.includes('open regression')"
    )
    assert page.locator("#cost figure").count() == 1


def test_plots_are_zoomed_and_read_with_the_keyboard(window: Window, example: Example) -> None:
    page = window.open("platform-cpu.html")
    plot = page.locator('[data-plot="install.wall_s"] svg.plot')
    whole = len(plotted(page, "install.wall_s"))
    plot.focus()
    plot.press("End")
    output = page.locator('[data-plot="install.wall_s"] output')
    assert example.newest.run_id in output.inner_text()
    plot.press("ArrowLeft")
    assert example.newest.run_id not in output.inner_text()
    plot.press("+")
    page.wait_for_function("() => location.hash.includes('from=')")
    page.wait_for_function(
        f"() => document.querySelector('[data-plot=\"install.wall_s\"] .points')"
        f".getAttribute('d').split('M').length <= {whole}"
    )
    address = page.url
    zoomed = plotted(page, "install.wall_s")
    assert len(zoomed) < whole
    window.open(address.rpartition("/")[2])
    assert len(plotted(window.page, "install.wall_s")) == len(zoomed)
    window.page.get_by_role("button", name="Reset zoom").click()
    window.page.wait_for_function("() => !location.hash.includes('from=')")


def test_dragging_zooms_all_plots(window: Window) -> None:
    page = window.open("platform-cpu.html")
    plot = page.locator('[data-plot="install.wall_s"] svg.plot')
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 0.4 * box["width"], box["y"] + 90)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.7 * box["width"], box["y"] + 90, steps=4)
    page.mouse.up()
    page.wait_for_function("() => location.hash.includes('from=')")
    plot.dblclick()
    page.wait_for_function("() => !location.hash.includes('from=')")


def test_measures_caches_and_ranges_are_chosen(window: Window) -> None:
    page = window.open("platform-cpu.html")
    assert page.locator("#cost figure").count() == 6  # five, and one that alarms
    page.get_by_label("Measure").select_option("all")
    assert page.locator("#cost figure").count() > 10
    page.get_by_label("Measure").select_option("compile.wall_s")
    assert page.locator("#cost figure").count() == 1
    page.get_by_label("Cache").select_option("cold")
    # Plots are drawn in the next frame of the browser.
    page.wait_for_selector("#cost .cold:not([d=''])", state="attached")
    assert page.locator("#cost .points").get_attribute("d") == ""
    page.locator("#range").select_option("30")
    page.wait_for_function("() => location.hash.includes('from=')")


def test_skips_are_counted_by_reason(window: Window, example: Example) -> None:
    page = window.open("platform-iluvatar.html")
    figure = page.locator('[data-plot="skips"]')
    unfold(figure.locator("details"))
    headings = figure.locator("thead th").all_inner_texts()
    first = figure.locator("tbody tr").first.locator("td").all_inner_texts()
    with Store(default_url(example.results)) as store:
        tests = store.tests(example.newest.run_id, "iluvatar")
    skipped = [it.skip_reason for it in tests if it.skip_reason == "not in this torch"]
    assert first[headings.index("not in this torch") - 1] == f"{len(skipped)} tests"


# Runs


def test_a_failure_has_its_excerpt_and_its_command(window: Window, example: Example) -> None:
    page = window.open(f"{file_stem('run', example.newest.run_id)}.html")
    failures = example.newest.platform(FAILING).failures
    items = page.locator(f"#{FAILING} .failures > li")
    assert items.count() == len(failures) > 5
    first = items.first
    assert first.locator(".test").inner_text() == failures[0].test
    assert first.locator(".excerpt").inner_text() == ASSERTION
    words = f"ci rerun {example.newest.run_id} {FAILING} "
    assert words in first.locator(".command code").inner_text()
    shells = page.locator(".platform > .command code").all_inner_texts()
    ends = [f"ci shell {example.newest.run_id} {name}" for name in (FAILING, TIMED_OUT)]
    assert [text.partition("-m ")[2].partition(" --results")[0] for text in shells] == ends
    assert "Mismatched elements: 7 / 24" in (first.locator("details pre").text_content() or "")


def test_the_timeline_has_the_stages_units_and_tests(window: Window, example: Example) -> None:
    page = window.open(f"{file_stem('run', example.newest.run_id)}.html")
    lanes = page.locator("#timeline text.value").all_text_contents()
    assert lanes == ["stages", "build 1", "build 2", *(f"tests gw{n}" for n in range(4))]
    unfold(page.locator("#timeline details"))
    rows = page.locator("#timeline tbody tr").all_inner_texts()
    took = {it.name: it.seconds or 0 for it in example.newest.platform("cpu").stages}
    [pytest_row] = [row for row in rows if row.startswith("pytest\t")]
    assert f"{took['pytest']:.1f} s" in pytest_row
    svg = page.locator("#timeline svg.plot")
    drawn = svg.locator("rect.span").count()
    svg.focus()
    svg.press("ArrowRight")
    svg.press("ArrowDown")
    assert page.locator("#timeline output").inner_text().startswith("build 1: ")
    for _ in range(4):
        svg.press("+")
    page.wait_for_function(
        f"() => document.querySelectorAll('#timeline rect.span').length < {drawn}"
    )
    assert "from=" in page.url
    page.get_by_role("button", name="Reset zoom").click()
    page.wait_for_function(
        f"() => document.querySelectorAll('#timeline rect.span').length >= {drawn}"
    )


def test_spans_are_found_by_name_on_the_chosen_platform(window: Window, example: Example) -> None:
    page = window.open(f"{file_stem('run', example.newest.run_id)}.html")
    page.locator("#timeline-platform").select_option(FAILING)
    assert f"platform={FAILING}" in page.url
    page.locator("#timeline text.cross").first.wait_for(state="attached")
    page.get_by_label("Find").fill("torch_backend_07")
    page.wait_for_function("() => document.querySelectorAll('#timeline rect.span.dim').length > 10")
    assert page.locator("#timeline svg.plot rect.span:not(.dim)").count() == 1


def test_the_timeline_is_saved_as_a_chrome_trace(window: Window, example: Example) -> None:
    page = window.open(f"{file_stem('run', example.newest.run_id)}.html")
    with page.expect_download() as download:
        page.get_by_role("button", name="Save as Chrome trace").click()
    trace = json.loads(Path(download.value.path()).read_text(encoding="utf-8"))
    events = trace["traceEvents"]
    stages = [it for it in events if it["ph"] == "X" and it["cat"] == "stage" and it["pid"] == 1]
    took = {it.name: it.seconds for it in example.newest.platform("cpu").stages}
    assert {it["name"]: it["dur"] / 1e6 for it in stages} == pytest.approx(
        {name: took[name] for name in ("generate", "install", "pytest")}, abs=0.001
    )
    processes = [it["args"]["name"] for it in events if it["name"] == "process_name"]
    assert processes == [it.platform for it in example.newest.platforms]
    window.requests = [url for url in window.requests if not url.startswith("blob:")]


# Operators


def test_the_heat_map_has_every_overload(window: Window, example: Example) -> None:
    window.page.set_viewport_size({"width": 1440, "height": 400})
    page = window.open("operators.html")
    with Store(default_url(example.results)) as store:
        names = store.outcomes(example.newest.run_id, "cpu").names
    overloads = {name.partition("[")[2].partition("-")[0] for name in names}
    rows = page.locator("#heat tbody tr")
    assert rows.count() < len(overloads)  # the others follow when the reader comes near
    assert page.locator("#count").inner_text() == f"{len(overloads)} of {len(overloads)} overloads"
    rows.last.scroll_into_view_if_needed()
    page.wait_for_function(
        f"() => document.querySelectorAll('#heat tbody tr').length === {len(overloads)}"
    )
    assert set(page.locator("#heat tbody th").all_inner_texts()) == overloads
    skipped = page.locator("#heat td.s4").first
    assert skipped.get_attribute("title") == "skipped: dtype unsupported"
    assert "skipped: dtype unsupported" in (skipped.text_content() or "")
    page.locator("#status").select_option("failed")
    failed = page.locator("#heat tbody tr")
    failures = {
        (it.test or "").partition("[")[2].partition("-")[0]
        for it in example.newest.platform(FAILING).failures
        if "test_markup" not in (it.test or "")
    }
    assert set(failed.locator("th").all_inner_texts()) == failures
    page.locator("#on").select_option("cpu")
    assert failed.count() == 0
    assert page.locator("#count").inner_text().startswith("0 of ")


def test_an_operator_is_shown_with_its_slots_and_dtypes(window: Window, example: Example) -> None:
    page = window.open("operators.html")
    page.locator("#status").select_option("fell back")
    page.get_by_label("only where platforms differ").check()
    name = page.locator("#heat tbody th").first.inner_text()
    page.get_by_label("Search").fill(name)
    page.locator("#heat tbody button").first.click()
    detail = page.locator("#detail")
    rows = detail.locator("tbody tr").all_inner_texts()
    with Store(default_url(example.results)) as store:
        tests = store.tests(example.newest.run_id, "cpu")
    own = [it for it in tests if f"[{name}-" in it.node_id]
    assert len(rows) == len(own) > 8
    assert "skipped: no kernel on this device" in rows[0]
    assert len({row.split("\t")[1] for row in rows}) == 2  # slots
    window.open(page.url.rpartition("/")[2])
    assert window.page.locator("#detail h3").inner_text() == name
    window.page.get_by_role("button", name="Close").click()
    assert window.page.locator("#detail").is_hidden()


# Tests


def test_a_test_is_found_by_its_name_with_its_outcome_on_each_platform(
    window: Window, example: Example
) -> None:
    page = window.open("search.html")
    failed = next(
        it.test for it in example.newest.platform(FAILING).failures if "[" in str(it.test)
    )
    assert failed is not None
    assert "-musa-slot" in failed
    page.get_by_label("Search").fill(failed)  # as pytest prints it, with the device
    found = page.locator("#found > li")
    assert found.count() == 1
    groups = found.locator("p").inner_text()
    assert re.search(r"failed\s+Moore", groups)
    assert re.search(r"passed\s+CPU", groups)
    found.locator("button").click()
    detail = page.locator("#detail")
    assert detail.locator("h2").inner_text() == failed.replace("-musa-slot", "-slot")
    rows = detail.locator("tbody tr")
    assert rows.count() == 20
    run = file_stem("run", example.newest.run_id)
    assert rows.first.locator("a").get_attribute("href") == f"{run}.html"
    column = detail.locator("thead th").all_inner_texts().index("Moore")
    states = [row.split("\t")[column].split()[-1] for row in rows.all_inner_texts()]
    assert states[0] == "failed"
    assert "failed" not in states[len(example.runs) - FAILING_SINCE :]
    # The address shows the same history again.
    window.open(page.url.rpartition("/")[2])
    assert window.page.locator("#detail tbody tr").count() == 20


def test_tests_are_found_by_outcome_and_platform(window: Window, example: Example) -> None:
    page = window.open("search.html")
    page.get_by_label("Outcome").select_option("failed")
    failed = example.newest.platform(FAILING).pytest
    assert failed is not None
    assert page.locator("#found > li").count() == failed.failed
    page.locator("#on").select_option("cpu")
    assert page.locator("#count").inner_text().startswith("0 of ")
    page.get_by_label("Outcome").select_option("")
    assert page.locator("#found > li").count() == 100
    assert "the first 100 are shown" in page.locator("#count").inner_text()


def test_hostile_names_in_the_search_are_text(window: Window) -> None:
    page = window.open("search.html#search=test_markup")
    names = page.locator("#found button").all_inner_texts()
    assert len(names) == len(HOSTILE)
    assert {*HOSTILE[:3]} <= {*names}
    for button in page.locator("#found button").all():
        button.click()
    assert page.locator("main script, main img").count() == 0
    assert "owned" not in page.title()


# A run that is going on


def test_the_page_of_a_running_run_refreshes_itself_until_it_is_old(
    browser: Browser, tmp_path: Path
) -> None:
    project = Project(folder=tmp_path)
    folder, run_id = begin(project)
    with lock_run(folder):
        _, site = write(project)
    window = Window(browser.new_page(viewport={"width": 360, "height": 800}), site)
    window.page.clock.install()
    page = window.open(f"{file_stem('run', run_id)}.html")
    assert serious_faults(page) == []
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    assert "no result yet moore" in page.locator("#going-on").inner_text()
    page.evaluate("window.isOld = true")
    page.get_by_label("pause the refresh").check()
    page.clock.run_for(600_000)
    assert page.evaluate("window.isOld")
    page.get_by_label("pause the refresh").uncheck()
    with page.expect_navigation():
        page.clock.run_for(61_000)
    assert page.evaluate("window.isOld") is None
    page.clock.run_for(3_600_000)
    page.wait_for_function("() => document.getElementById('stale').textContent")
    assert "older than an hour" in page.locator("#stale").inner_text()
    assert page.locator(".badge.running").first.inner_text() == "unknown"
    page.context.close()
    assert window.errors == []


# Compare


def test_judged_comparisons_say_what_compare_says(window: Window, example: Example) -> None:
    page = window.open("compare.html")
    groups = page.locator("#prepared-title ~ h3").all_inner_texts()
    assert groups == ["Branches and their base", "The newest runs", "Platforms of the newest run"]
    newest = page.locator("details.comparison").filter(has_text=example.newest.run_id)
    newest.first.locator("summary").first.click()
    assert "20 tests vanished" in newest.first.inner_text()
    page.reload()  # the address has the unfolded one
    assert page.locator("details.comparison[open]").count() == 1
    assert page.locator("details.comparison").filter(has_text="CPU → NVIDIA").count() == 1


def test_figures_are_those_of_the_last_choice(window: Window, example: Example) -> None:
    # The data of the choice before arrives later than those of the last one.
    window.page.add_init_script(
        """const append = Element.prototype.append;
        Element.prototype.append = function (...parts) {
          const isLate = parts.some((it) => it.src && it.src.includes("platform-nvidia"));
          if (isLate) window.deliver = () => append.call(this, ...parts);
          else append.call(this, ...parts);
        };"""
    )
    page = window.open(f"compare.html#base={example.runs[0].run_id}&head={example.newest.run_id}")
    page.wait_for_selector("#figures table")
    page.locator("#head-platform").select_option("nvidia")
    page.locator("#head-platform").select_option("cpu")
    page.evaluate("window.deliver()")
    page.wait_for_function("() => dashboard.get('platform-nvidia') !== undefined")
    page.evaluate("() => new Promise((done) => requestAnimationFrame(done))")
    assert page.locator("text=Times are not comparable").count() == 0


def test_any_two_runs_are_put_side_by_side(window: Window, example: Example) -> None:
    page = window.open("compare.html")
    first, last = example.runs[0], example.newest
    page.get_by_label("Base run").fill(first.run_id)
    page.get_by_label("Head run").fill(last.run_id)
    page.wait_for_selector("#figures table")
    [install] = [
        it for it in page.locator("#figures tr").all_inner_texts() if it.startswith("install\t")
    ]
    seconds = [it.stages[3].seconds or 0 for it in (first.platform("cpu"), last.platform("cpu"))]
    assert install.split("\t")[1:3] == [f"{it:,.0f} s" for it in seconds]
    page.locator("#head-platform").select_option("nvidia")
    page.wait_for_selector("text=Times are not comparable")
    address = page.url.rpartition("/")[2]
    window.open(address)
    window.page.wait_for_selector("text=Times are not comparable")
    window.page.get_by_label("Base run").fill("nothing")
    window.page.wait_for_selector("text=No run is named nothing.")
