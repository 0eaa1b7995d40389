"""``python -m ci dashboard``."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from ci.commands.options import add_format, add_repository, add_results, whole_number
from ci.commands.reading import reading_store
from ci.errors import ExitCode
from ci.util.terminal import show
from ci.util.text import counted

RUN_PAGES = 10  # of 2,000 runs of seven platforms: the folder stays below 20 MB


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add all options of the command."""
    parser.description = (
        "Write the store as a folder of pages that a browser opens from a file: what needs"
        " attention, each platform's trends, timelines of the newest runs, the operators on all"
        " platforms, and comparisons. The pages need no server and request nothing from anywhere."
    )
    parser.add_argument(
        "--output",
        type=Path,
        metavar="DIR",
        required=True,
        help="folder to write, empty or with an earlier dashboard, which is replaced",
    )
    parser.add_argument("--project", metavar="NAME", help="project (default: of the newest run)")
    parser.add_argument(
        "--branch",
        metavar="NAME",
        help="the branch whose line of commits the pages follow (default: the main branch)",
    )
    parser.add_argument(
        "--runs",
        type=whole_number(0),
        default=RUN_PAGES,
        metavar="N",
        help="newest runs with a page of their own, the timelines included. Older runs are in the"
        f" trends and comparisons (default: {RUN_PAGES})",
    )
    add_repository(parser, "with its file ci-accepted.yaml")
    add_results(parser)
    add_format(parser, "table", "json")


def execute(options: argparse.Namespace) -> int:
    """Write the pages, and print the one to open."""
    # Imported here: NumPy, the change-point library and the models take 0.5 s, and neither --help
    # nor a wrong command line needs them.
    from ci.analysis.platform_history import find_project
    from ci.report.dashboard.collection import collect
    from ci.report.dashboard.site import check_folder, write_site

    with reading_store(options.results) as store:
        project = find_project(store, None, options.project)
        check_folder(options.output)
        found = collect(store, options.source, project, options.branch, options.results)
        site = write_site(
            store,
            found,
            options.output,
            source=options.source,
            results=options.results,
            run_pages=options.runs,
        )
    index = options.output / "index.html"
    if options.format == "json":
        show(json.dumps({"index": str(index), "pages": site.pages, "bytes": site.size}, indent=2))
    else:
        show(f"{index}: {counted(site.pages, 'page')}, {site.size / 1e6:.1f} MB")
    return ExitCode.PASSED
