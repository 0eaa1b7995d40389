"""The cost of the dashboard of years of runs: writing it, its size, and opening its pages."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median

from bench.context import Context
from bench.generated_files import write_files
from bench.generated_history import GeneratedRun, Scale, history
from bench.rows import Measurement, MeasurementError
from ci.commands.dashboard import RUN_PAGES
from ci.model.outcomes import Outcome
from ci.store.folder import default_url
from ci.store.store import Store
from ci.util.process import STORE_VARIABLE

FEW_TESTS = 240  # of older runs: their pages have only counts, and 17,000 take 20 minutes to make
TIMES = 5  # each page is opened; the median counts


def measure(context: Context) -> Iterator[Measurement]:
    """Write the dashboard of a generated history, and open every page."""
    folder, site = context.scratch / "results", context.scratch / "site"
    folder.mkdir()
    save(folder, context.runs)
    command = [sys.executable, "-m", "ci", "dashboard", "--results", str(folder)]
    environment = os.environ | {STORE_VARIABLE: default_url(folder)}
    seconds = context.run([*command, "--output", str(site)], environment).seconds
    files = [path for path in site.rglob("*") if path.is_file()]
    note = f"{context.runs:,} runs, {len(files)} files"
    yield Measurement(key="dashboard-write", value=seconds, note=note)
    size = sum(path.stat().st_size for path in files) / 1e6
    largest = max(files, key=lambda path: path.stat().st_size)
    note = f"the largest file is {largest.name}, {largest.stat().st_size / 1e6:.1f} MB"
    yield Measurement(key="dashboard-size", value=size, note=note)
    times = {path.name: median(_open(path)) for path in _pages(site)}
    slowest = max(times, key=times.__getitem__)
    shown = {name: round(value, 3) for name, value in times.items()}
    note = f"{slowest}; the others from {min(times.values()):.2f} s"
    yield Measurement(key="dashboard-open", value=times[slowest], note=note, detail=shown)


def save(folder: Path, runs: int) -> None:
    """Save a history whose newest runs have full suites and files."""
    newest = min(runs, RUN_PAGES)
    full = history(Scale(runs=newest))
    with Store(default_url(folder)) as store:
        for place, (run, details) in enumerate(history(Scale(runs=runs, tests=FEW_TESTS))):
            if place >= runs - newest:
                run, details = _with_suites((run, details), next(full))
                write_files(folder, run, details)
            store.save(run, details)


def _with_suites(few: GeneratedRun, full: GeneratedRun) -> GeneratedRun:
    """The run with the tests of another one."""
    run, details = few
    results, kept = [], {}
    for result in run.platforms:
        tests = full[1][result.platform].tests
        counts = Counter(test.outcome for test in tests)
        counted = {it.value: counts[it] for it in (Outcome.PASSED, Outcome.FAILED, Outcome.SKIPPED)}
        pytest = result.pytest and result.pytest.model_copy(update=counted)
        results.append(result.model_copy(update={"pytest": pytest}))
        kept[result.platform] = replace(details[result.platform], tests=tests)
    return run.model_copy(update={"platforms": tuple(results)}), kept


def _pages(site: Path) -> list[Path]:
    """One page of each kind."""
    runs = sorted(site.glob("run-*.html"))[-1:]
    platforms = sorted(site.glob("platform-*.html"))[:1]
    names = ("index.html", "operators.html", "compare.html")
    return [*(site / name for name in names), *platforms, *runs]


def _open(page: Path) -> Iterator[float]:
    """Yield the seconds until a page is drawn, each in a new window without a cache."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        raise MeasurementError("no Chromium: install it, such as with `apt install chromium`")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        for _ in range(TIMES):
            window = chromium.new_page(viewport={"width": 1440, "height": 900})
            start = time.perf_counter()
            window.goto(page.as_uri())
            window.wait_for_selector("html[data-ready]", state="attached")
            # The second frame begins once the first one was drawn.
            window.evaluate(
                "() => new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r)))"
            )
            yield time.perf_counter() - start
            window.close()
        chromium.close()
