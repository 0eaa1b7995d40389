"""``python -m ci flaky``."""

from __future__ import annotations

import argparse

from ci.commands.options import add_format, add_platform, add_project, add_results
from ci.commands.reading import reading_store
from ci.errors import ExitCode


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add all options of the command."""
    parser.description = (
        "Show the tests of a platform that both passed and failed at one commit in one environment."
    )
    add_platform(parser, "the platform that ran them")
    add_project(parser)
    add_format(parser, "table", "markdown", "json")
    add_results(parser)


def execute(options: argparse.Namespace) -> int:
    """Show the flaky tests with their evidence."""
    from ci.analysis.flaky import find_flaky_tests
    from ci.analysis.platform_history import find_project
    from ci.report.flaky_and_slowest import FlakyReport

    with reading_store(options.results) as store:
        project = find_project(store, options.platform, options.project)
        found = find_flaky_tests(store, options.platform, project)
        FlakyReport(options.platform, found).show(options.format)
    return ExitCode.PASSED
