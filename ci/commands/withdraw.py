"""``python -m ci withdraw``."""

from __future__ import annotations

import argparse

from ci.commands.accepting import add_accepted_file, write
from ci.commands.options import add_platform, add_project
from ci.commands.reading import reading_store
from ci.errors import ExitCode


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add all options of the command."""
    parser.description = (
        "Remove the acceptances of rises that began with a run or commit from the project's file"
        " ci-accepted.yaml: they are reported as regressions again."
    )
    add_platform(parser, "the platform with the rises")
    parser.add_argument("run", metavar="RUN", help="the first run or commit with them")
    add_project(parser)
    add_accepted_file(parser)


def execute(options: argparse.Namespace) -> int:
    """Remove the acceptances that begin with the run."""
    from ci.analysis.acceptances import withdrawn
    from ci.analysis.platform_history import find_project, project_acceptances

    with reading_store(options.results) as store:
        project = find_project(store, options.platform, options.project)
        known = project_acceptances(store, options.source, project)
        commits = {run.run_id: run.commit for run in store.heads(project=project) if not run.dirty}
        removed = withdrawn(known, options.platform, options.run, commits.get(options.run))
        kept = [it for it in known if it not in removed]
        write(store, project, kept, "withdrawn", removed, options)
    return ExitCode.PASSED
