"""Write the pages of the dashboard into a folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ci.errors import UsageError
from ci.gates.regression import IN_WORDS
from ci.report.dashboard.collection import Collection
from ci.report.dashboard.compare import judged_comparisons
from ci.report.dashboard.html import TEMPLATES, file_stem, render, script
from ci.report.dashboard.operators import operators_page
from ci.report.dashboard.overview import attention, columns, grid, result_text, span
from ci.report.dashboard.platform import SKIP_RUNS, platform_page
from ci.report.dashboard.regressions import regressions_page
from ci.report.dashboard.run import run_page
from ci.report.dashboard.runs import listed_runs
from ci.report.dashboard.search import SHOWN_RUNS, search_page
from ci.store.folder import newest_decision
from ci.util.files import write_atomically
from ci.util.text import SHORT

if TYPE_CHECKING:
    from ci.store.store import Store

ASSETS = ("dashboard.css", "dashboard.js", "search.js")
MARKER = ".dashboard"  # in a folder that this module wrote: only such a folder is replaced
DATA = "data"
REFRESH_S = 60  # of the pages that show a running run


@dataclass(frozen=True, kw_only=True)
class Site:
    """What was written."""

    pages: int
    size: int
    """Bytes of all files."""


def check_folder(folder: Path) -> None:
    """Raise ``UsageError`` if there are other files than those of a dashboard: they stay."""
    found = "a file" if folder.exists() and not folder.is_dir() else None
    if folder.is_dir() and any(folder.iterdir()) and not (folder / MARKER).is_file():
        found = "a folder with other files"
    if found:
        message = f"--output: {folder}: got {found}, expected an empty folder or"
        raise UsageError(f"{message} an earlier dashboard", remedy="Name another folder.")


def write_site(
    store: Store, found: Collection, folder: Path, *, source: Path, results: Path, run_pages: int
) -> Site:
    """Write all pages; ``run_pages`` is the number of newest runs that get a page of their own."""
    check_folder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MARKER).touch()
    assets = ((name, (TEMPLATES / name).read_text(encoding="utf-8")) for name in ASSETS)
    written = set()
    for name, text in chain(assets, _files(store, found, source, results, run_pages)):
        write_atomically(folder / name, text)
        written.add(folder / name)
    # Last: a browser that refreshes a page meanwhile finds the one before.
    for path in {*folder.glob("*.html"), *folder.glob(f"{DATA}/*")} - written:
        path.unlink()
    pages = sum(path.suffix == ".html" for path in written)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return Site(pages=pages, size=size)


def _files(
    store: Store, found: Collection, source: Path, results: Path, run_pages: int
) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of every file that has data."""
    newest = found.runs[-run_pages:][::-1] if run_pages else ()
    shown = [run for it in newest if (run := store.load_or_skip(it.run_id))]
    with_page = {run.run_id for run in shown}
    operators = operators_page(store, found)
    now = datetime.now(UTC)
    common: dict[str, Any] = {
        "project": found.project,
        "branch": found.branch,
        "made": f"{now:%Y-%m-%d %H:%M} UTC",
        "platforms": [(name, found.label(name)) for name in found.platforms],
        "newest": shown[0].run_id if shown else None,
        "with_page": with_page,
        "runs": len(found.runs),
        "commits": found.commits,
        "has_operators": bool(operators.overloads),
    }
    listed = listed_runs(found, with_page)
    common["running"] = [it for it in listed if it.is_running]
    refreshed = {"refreshed": True, "made_at": now.isoformat(), "refresh_s": REFRESH_S}
    yield _data("runs", _runs_data(found, with_page))
    rows = grid(found)
    first = {"attention": attention(store, found), "grid": rows}
    first["decision"] = newest_decision(results, found.project)
    first |= {"columns": columns(rows), "span": span(rows), "text_of": result_text}
    yield "index.html", render("overview.html.j2", **common, **first, **refreshed)
    yield "runs.html", render("runs.html.j2", **common, listed=listed, **refreshed)
    rises = regressions_page(found)
    yield "regressions.html", render("regressions.html.j2", **common, page=rises, in_words=IN_WORDS)
    for name in found.platforms:
        page = platform_page(store, found, name)
        stem = file_stem("platform", name)
        yield _data(stem, page.data)
        yield f"{stem}.html", render("platform.html.j2", **common, page=page, skip_runs=SKIP_RUNS)
    for run in shown:
        is_running = run.run_id in found.running
        of_run = run_page(store, run, results, is_running=is_running)
        stem = file_stem("run", run.run_id)
        yield _data(stem, of_run.data)
        yield (
            f"{stem}.html",
            render("run.html.j2", **common, page=of_run, **(refreshed if is_running else {})),
        )
    tests = search_page(store, found)
    yield _data("search", tests.data)
    yield "search.html", render("search.html.j2", **common, page=tests, shown_runs=SHOWN_RUNS)
    if operators.overloads:
        yield _data("operators", operators.data)
        yield "operators.html", render("operators.html.j2", **common, page=operators)
    comparisons = judged_comparisons(store, found, source)
    yield "compare.html", render("compare.html.j2", **common, comparisons=comparisons)


def _data(name: str, value: object) -> tuple[str, str]:
    return f"{DATA}/{name}.js", script(name, value)


def _runs_data(found: Collection, with_page: set[str]) -> Mapping[str, Any]:
    """All runs in columns, oldest first, with the files of their platforms and pages."""
    runs = found.runs
    branches = [*dict.fromkeys(run.branch for run in runs)]
    return {
        "id": [run.run_id for run in runs],
        "commit": [run.commit and run.commit[:SHORT] for run in runs],
        "about": {
            run.commit[:SHORT]: about
            for run in runs
            if run.commit and (about := found.commits.of(run.tested).about)
        },
        "dirty": [place for place, run in enumerate(runs) if run.dirty],
        "started": [f"{run.started_at:%Y-%m-%d %H:%M}" for run in runs],
        "branches": branches,
        "branch": [branches.index(run.branch) for run in runs],
        "platforms": [
            {"name": name, "label": found.label(name), "data": file_stem("platform", name)}
            for name in found.platforms
        ],
        "pages": {it: f"{file_stem('run', it)}.html" for it in sorted(with_page)},
    }
