"""Results for forges and CI systems: the formats of ``report``, and what a job shows by itself."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from ci.commands.reading import reading_store
from ci.errors import CiError, ExitCode
from ci.model.results import RunResult, exit_code
from ci.report.forms import PAGES, Form
from ci.util import process
from ci.util.terminal import ACTIONS_VARIABLE, complain, show_workflow_commands

if TYPE_CHECKING:  # they import NumPy and SQLAlchemy
    from ci.analysis.combined import CombinedResults
    from ci.report.summary import Summary
    from ci.store.store import Store

SUMMARY_VARIABLE = "GITHUB_STEP_SUMMARY"  # of Gitea and Forgejo, too
ANNOTATE_TIMEOUT_S = 60.0
STYLES = {ExitCode.PASSED: "success", ExitCode.PRODUCT_FAILURE: "error"}


def forge_text(
    results: Path, source: Path, store: Store, found: CombinedResults, form: Form
) -> str:
    """The text of results in a format for forges and CI systems."""
    from ci.report import ctrf, forge, junit

    if form in PAGES:
        return forge.page(_summarize(results, source, found), form)
    tests = {}
    for result in found.run.platforms:
        place = found.run_ids.get(result.platform, ""), result.platform
        outcomes, reruns = store.outcomes(*place), store.reruns(*place)
        tests[result.platform] = junit.PlatformTests(outcomes=outcomes, reruns=reruns)
    write = junit.junit if form is Form.JUNIT else ctrf.ctrf
    return write(found.run, tests)


def _summarize(results: Path, source: Path, found: CombinedResults) -> Summary:
    """Compare results with the branch that they will be merged into, or with those before."""
    from ci.analysis.comparison import Comparison, compare
    from ci.report.summary import Summary

    comparison: Comparison | str
    try:
        comparison = compare(partial(reading_store, results), source, None, found.reference)
    except CiError as error:
        comparison = str(error).partition("\n")[0]
    return Summary(results=found, comparison=comparison)


def publish_run(results: Path, source: Path, run: RunResult, environ: Mapping[str, str]) -> None:
    """Show the results of a run in the CI; outside of a CI, do nothing."""
    if is_shown(environ):
        from ci.analysis.combined import single_run

        publish(results, source, single_run(run), environ)


def is_shown(environ: Mapping[str, str]) -> bool:
    """Whether there is a place to show results."""
    return (
        bool(environ.get(SUMMARY_VARIABLE)) or ACTIONS_VARIABLE in environ or bool(_agent(environ))
    )


def _agent(environ: Mapping[str, str]) -> str | None:
    """The program of Buildkite that annotates the build of this job; ``None`` in other jobs."""
    path = environ.get("PATH")
    return shutil.which("buildkite-agent", path=path) if "BUILDKITE" in environ else None


def publish(
    results: Path, source: Path, found: CombinedResults, environ: Mapping[str, str]
) -> None:
    """Show results where the variables of a CI system say so. A fault is one complaint.

    A job summary is appended to, since a job may write several. An annotation of Buildkite
    replaces an earlier one of the same platforms.
    """
    from ci.report import forge

    try:
        summary = _summarize(results, source, found)
        if path := environ.get(SUMMARY_VARIABLE):
            with Path(path).open("a", encoding="utf-8") as file:
                file.write(f"{forge.page(summary, Form.GITHUB)}\n")
        if ACTIONS_VARIABLE in environ:
            show_workflow_commands([*forge.error_commands(found.run, partial(_has_file, source))])
        if agent := _agent(environ):
            style = STYLES.get(exit_code(found.run.platforms), "warning")
            names = [result.platform for result in found.run.platforms]
            context = "-".join(["infini-ci", found.run.project, *names])
            process.run(
                [agent, "annotate", "--style", style, "--context", context],
                stdin=forge.page(summary, Form.BUILDKITE),
                timeout_s=ANNOTATE_TIMEOUT_S,
            )
    except Exception as error:  # whatever it is: a run ends as its results say
        complain(f"warning: the CI does not show the results: {error}".partition("\n")[0])


def _has_file(source: Path, name: str) -> bool:
    """Whether a path in a test's name is a file of the source: a test can have any name."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        return False
    try:
        return (source / path).is_file()
    except OSError:  # the name is too long for a file
        return False
