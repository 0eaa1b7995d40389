"""Results for forges and CI systems: the formats of ``report``, and what a job shows by itself."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from enum import StrEnum
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from ci.commands.reading import reading_store
from ci.errors import CiError, ExitCode
from ci.model.results import RunResult, exit_code
from ci.util import process
from ci.util.terminal import ACTIONS_VARIABLE, complain, show_workflow_commands
from ci.util.text import first_line

if TYPE_CHECKING:  # they import NumPy and SQLAlchemy
    from ci.analysis.combined import CombinedResults
    from ci.report.forge import Summary
    from ci.store.store import Store


class Form(StrEnum):
    """A format of ``report`` that a forge or a CI system reads."""

    GITHUB = "github"
    GITLAB = "gitlab"
    GITEA = "gitea"
    BUILDKITE = "buildkite"
    JUNIT = "junit"
    CTRF = "ctrf"


MARKED = (Form.GITHUB, Form.GITLAB, Form.GITEA)  # an annotation of Buildkite has a context instead
PAGES = (*MARKED, Form.BUILDKITE)  # of Markdown
SUMMARY_VARIABLE = "GITHUB_STEP_SUMMARY"  # of Gitea and Forgejo, too
ANNOTATE_TIMEOUT_S = 60.0
STYLES = {ExitCode.PASSED: "success", ExitCode.PRODUCT_FAILURE: "error"}


def forge_text(
    results: Path, source: Path, store: Store, found: CombinedResults, form: Form
) -> str:
    """The text of results in a format for forges and CI systems."""
    from ci.report import exchange, forge

    if form in PAGES:
        return forge.page(_summarize(results, source, found), marked=form in MARKED)
    tests = {}
    for result in found.run.platforms:
        place = found.run_ids.get(result.platform, ""), result.platform
        outcomes, reruns = store.outcomes(*place), store.reruns(*place)
        tests[result.platform] = exchange.PlatformTests(outcomes=outcomes, reruns=reruns)
    write = exchange.junit if form is Form.JUNIT else exchange.ctrf
    return write(found.run, tests)


def _summarize(results: Path, source: Path, found: CombinedResults) -> Summary:
    """Compare results with the branch that they will be merged into, or with those before."""
    from ci.analysis.comparison import Comparison, compare
    from ci.report.forge import Summary

    comparison: Comparison | str
    try:
        comparison = compare(partial(reading_store, results), source, None, found.reference)
    except CiError as error:
        comparison = first_line(str(error))
    return Summary(results=found, comparison=comparison)


def publish_run(results: Path, source: Path, run: RunResult, environ: Mapping[str, str]) -> None:
    """Show the results of a run, as ``publish`` does."""
    from ci.analysis.combined import single_run

    publish(results, source, single_run(run), environ)


def publish(
    results: Path, source: Path, found: CombinedResults, environ: Mapping[str, str]
) -> None:
    """Show results where the variables of a CI system say so. A fault is one complaint.

    A job summary is appended to, since a job may write several. An annotation of Buildkite
    replaces an earlier one of the same platforms.
    """
    summary_file, search = environ.get(SUMMARY_VARIABLE), environ.get("PATH")
    agent = shutil.which("buildkite-agent", path=search) if "BUILDKITE" in environ else None
    if not (summary_file or agent or ACTIONS_VARIABLE in environ):
        return
    from ci.report import forge

    try:
        summary = _summarize(results, source, found)
        if summary_file:
            with Path(summary_file).open("a", encoding="utf-8") as file:
                file.write(f"{forge.page(summary)}\n")
        if ACTIONS_VARIABLE in environ:
            show_workflow_commands([*forge.error_commands(found.run, partial(_has_file, source))])
        if agent:
            style = STYLES.get(exit_code(found.run.platforms), "warning")
            names = [result.platform for result in found.run.platforms]
            context = "-".join(["infini-ci", found.run.project, *names])
            process.run(
                [agent, "annotate", "--style", style, "--context", context],
                stdin=forge.page(summary, marked=False),
                timeout_s=ANNOTATE_TIMEOUT_S,
            )
    except Exception as error:  # whatever it is: a run ends as its results say
        complain(f"warning: the CI does not show the results: {first_line(str(error))}")


def _has_file(source: Path, name: str) -> bool:
    """Whether a path in a test's name is a file of the source: a test can have any name."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        return False
    try:
        return (source / path).is_file()
    except OSError:  # the name is too long for a file
        return False
