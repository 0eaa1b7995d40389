"""``python -m ci blame``."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

from ci.analysis.blame import CellRun, Quadrants, blame_tests
from ci.analysis.repository import Repository
from ci.commands.options import add_platform, add_runs_of_commits, config_file, whole_number
from ci.errors import ExitCode, UsageError
from ci.model.trust import Trust
from ci.plan.ci_variables import read_ci_job
from ci.plan.environment import EnvironmentChoice, read_choice
from ci.plan.planning import RunOptions
from ci.plan.project import chosen_platforms, load_project
from ci.plan.request import selected_operators
from ci.plan.source import state
from ci.report.blame_report import BlameReport
from ci.run.cells import BLAME, BlameCell, CellReader, software_changes
from ci.run.commit_runs import temporary_checkout
from ci.store.folder import make_folder, open_store
from ci.util.terminal import complain
from ci.util.text import commit_name

RERUNS = 1  # of each failed test, in the same run
MOST_RERUNS = 100


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add all options of the command."""
    parser.description = (
        "Find out whose fault the failures of a platform are: of a new torch (or another part of"
        " the environment), of the new library, or of both together. Runs the whole suite of the"
        " new library in the new environment and, if it fails, of both libraries in both"
        " environments, in a folder outside of the sources. Stored runs of the same commits and"
        " environments are used. If it is interrupted, the same command continues. Exits with 0 if"
        " nothing fails, with 1 if failures are blamed, and with 3 if all of them follow the"
        " machine or cannot be decided."
    )
    add_platform(parser, "the platform to run")
    for age, about in (("old", "without"), ("new", "with")):
        parser.add_argument(
            f"--{age}-env",
            metavar="ENV",
            required=True,
            help=f"the environment {about} the change: a requirements file in place of the"
            " platform's, one requirement such as torch==2.13.0 in place of that in the platform's,"
            " or a base image",
        )
    parser.add_argument(
        "--old",
        metavar="REV",
        help="a commit of the library without the change (default: the first parent of --new)",
    )
    parser.add_argument(
        "--new",
        metavar="REV",
        default="HEAD",
        help="a commit of the library with the change (default: HEAD)",
    )
    parser.add_argument(
        "--reruns",
        type=whole_number(0, MOST_RERUNS),
        default=RERUNS,
        metavar="N",
        help=f"repeat failed tests so often in each run: what then passes is not reproducible"
        f" (default: {RERUNS})",
    )
    add_runs_of_commits(parser)


def execute(options: argparse.Namespace) -> int:
    """Run the cells, and report whose fault each failure is."""
    environments = _environments(options)
    config = config_file(options)
    project = load_project(config, os.environ)
    chosen_platforms(project.config, [options.platform])
    source = (options.source or project.source).resolve()
    commits = _commits(source, options.old, options.new)
    make_folder(options.results)
    run_options = RunOptions(
        engine=options.engine or "auto",
        trust=read_ci_job(os.environ).trust or Trust.BRANCH,
        reruns=options.reruns,
        selected=selected_operators(project, options.select, source),
    )
    if state(source).dirty:
        complain(f"{BLAME}: the uncommitted changes of {source} are in none of its commits")
    name = f"{BLAME}-{options.platform}-{commits[0][:8]}-{commits[1][:8]}"
    with temporary_checkout(source, config, name) as checkout:
        reader = CellReader(
            checkout=checkout,
            project=project.config.project,
            platform=options.platform,
            results=options.results,
            options=run_options,
        )
        cells = _read_cells(reader, commits, environments)
    report = BlameReport(
        platform=options.platform,
        commits=commits,
        environments=(environments[0].text, environments[1].text),
        tests=blame_tests(cells),
        cells=cells,
        changes=_changes(cells, options),
    )
    report.show(options.format)
    return exit_code(report)


def exit_code(report: BlameReport) -> ExitCode:
    """A failure that follows the machine, or that no cell decides, is not the product's."""
    if not report.tests:
        return ExitCode.PASSED
    is_product = any(it.fault.is_product for it in report.tests)
    return ExitCode.PRODUCT_FAILURE if is_product else ExitCode.INFRASTRUCTURE


def _environments(options: argparse.Namespace) -> tuple[EnvironmentChoice, EnvironmentChoice]:
    old, new = read_choice(options.old_env, "--old-env"), read_choice(options.new_env, "--new-env")
    if old == new:
        message = f"--old-env and --new-env: got {new.text} twice, expected two environments"
        raise UsageError(message, remedy="To find a commit, use `bisect`.")
    return old, new


def _commits(source: Path, old: str | None, new: str) -> tuple[str, str]:
    """Return the commits of the old and of the new library."""
    repository = Repository(source)
    found = []
    for option, name in (("--old", old or f"{new}^"), ("--new", new)):
        commits = repository.commits(name)
        if not commits:
            message = f"{option}: {source}: {repository.git_error or f'no commit {name!r}'}"
            remedy = "Name a commit, a branch or a tag of a git repository."
            raise UsageError(message, remedy=remedy)
        found.append(commits[0])
    if found[0] == found[1]:
        message = f"--old and --new: got {commit_name(found[0])} twice, expected two commits"
        raise UsageError(message, remedy="Name an older commit: --old REV")
    return found[0], found[1]


def _read_cells(
    reader: CellReader,
    commits: tuple[str, str],
    environments: tuple[EnvironmentChoice, EnvironmentChoice],
) -> Quadrants[Sequence[CellRun]]:
    """Read the cell with both changes, and the others if anything fails there."""
    (old, new), (before, since) = commits, environments
    found = reader.runs_of(BlameCell(name="both new", commit=new, environment=since))
    if not any(run.failed for run in found):
        return Quadrants(old=(), new_library=(), new_environment=(), new=found)
    complain(f"{BLAME}: tests failed with both new: three more cells are run to find the cause")
    return Quadrants(
        new=found,
        new_library=reader.runs_of(BlameCell(name="new library", commit=new, environment=before)),
        new_environment=reader.runs_of(
            BlameCell(name="new environment", commit=old, environment=since)
        ),
        old=reader.runs_of(BlameCell(name="both old", commit=old, environment=before)),
    )


def _changes(cells: Quadrants[Sequence[CellRun]], options: argparse.Namespace) -> Sequence[str]:
    if not cells.new_library:
        return ()
    with open_store(options.results) as store:
        before, since = cells.new_library[0].run_id, cells.new[0].run_id
        return software_changes(store, before, since, options.platform)
