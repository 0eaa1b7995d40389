"""Results for forges and CI systems: the formats of ``report``, and what a job shows by itself."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from ci.commands.reading import reading_store
from ci.errors import CiError, ExitCode
from ci.gates.rules import exit_code
from ci.model.results import RunResult
from ci.model.verdicts import Product
from ci.store.folder import newest_decision
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
    CRCR = "crcr"


MARKED = (Form.GITHUB, Form.GITLAB, Form.GITEA)  # an annotation of Buildkite has a context instead
PAGES = (*MARKED, Form.BUILDKITE)  # of Markdown
SUMMARY_VARIABLE = "GITHUB_STEP_SUMMARY"  # of Gitea and Forgejo, too
ANNOTATE_TIMEOUT_S = 60.0
STYLES = {ExitCode.PASSED: "success", ExitCode.PRODUCT_FAILURE: "error"}


@dataclass(frozen=True, kw_only=True)
class Publication:
    """Results to be shown by a forge or a CI system."""

    results: Path
    """The folder of all runs."""
    source: Path
    """The sources, in whose git repository the base is looked up."""
    found: CombinedResults

    @cached_property
    def _summary(self) -> Summary:
        """With a comparison with the branch that they will be merged into, or with those before."""
        from ci.analysis.comparison import Comparison, compare
        from ci.report.forge import Summary

        comparison: Comparison | str
        read = partial(reading_store, self.results)
        try:
            comparison = compare(
                read, self.source, None, self.found.reference, results=self.results
            )
        except CiError as error:
            comparison = first_line(str(error))
        run_ids = {run.run_id for run in self.found.origins if run}
        decision = newest_decision(self.results, self.found.run.project, run_ids)
        return Summary(results=self.found, comparison=comparison, decision=decision)

    def text(self, store: Store, form: Form) -> str:
        """Return them in a format for forges and CI systems."""
        from ci.report import exchange, forge

        if form in PAGES:
            return forge.page(self._summary, marked=form in MARKED)
        if form is Form.CRCR:
            return self._relayed(store)
        tests = []
        for result, run in self.found.rows:
            place = run.run_id if run else "", result.platform
            outcomes, reruns = store.outcomes(*place), store.reruns(*place)
            tests.append(exchange.PlatformTests(outcomes=outcomes, reruns=reruns))
        write = exchange.junit if form is Form.JUNIT else exchange.ctrf
        return write(self.found.run, tests)

    def _relayed(self, store: Store) -> str:
        """Return them for PyTorch's CI relay, with what other runs say of the failures."""
        from ci.analysis.flaky import find_flaky_tests
        from ci.analysis.triage import TriageFacts, find_passed_run
        from ci.report.crcr import RelayRow, crcr

        rows = []
        for result, run in self.found.rows:
            place = run.run_id if run else "", result.platform
            outcomes = store.outcomes(*place)
            failures = outcomes.failures
            facts = TriageFacts(
                result=result,
                failures=failures,
                commit=run.commit if run and not run.dirty else None,
                flaky=find_flaky_tests(store, result.platform, run.project, tests=failures.keys())
                if run and failures
                else (),
                passed=find_passed_run(store, run, result)
                if run and result.verdict.product is Product.FAILED
                else None,
            )
            rows.append(RelayRow(facts=facts, outcomes=outcomes, reruns=store.reruns(*place)))
        return crcr(self.found.run, rows)

    def show(self, environ: Mapping[str, str]) -> None:
        """Show them where the variables of a CI system say so. A fault is one complaint.

        A job summary is appended to, since a job may write several. An annotation of Buildkite
        replaces an earlier one of the same platforms.
        """
        summary_file, search = environ.get(SUMMARY_VARIABLE), environ.get("PATH")
        agent = shutil.which("buildkite-agent", path=search) if "BUILDKITE" in environ else None
        if not (summary_file or agent or ACTIONS_VARIABLE in environ):
            return
        from ci.report import forge

        try:
            if summary_file:
                with Path(summary_file).open("a", encoding="utf-8") as file:
                    file.write(f"{forge.page(self._summary)}\n")
            if ACTIONS_VARIABLE in environ:
                show_workflow_commands(
                    [*forge.error_commands(self.found.run, partial(_has_file, self.source))]
                )
            if agent:
                style = STYLES.get(exit_code(self.found.run.platforms), "warning")
                # A run of selected operators does not replace that of the whole suite.
                names = dict.fromkeys(
                    f"{it.platform}-selected" if it.selected else it.platform
                    for it in self.found.run.platforms
                )
                context = "-".join(["infini-ci", self.found.run.project, *names])
                process.run(
                    [agent, "annotate", "--style", style, "--context", context],
                    stdin=forge.page(self._summary, marked=False),
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


def publish_run(results: Path, source: Path, run: RunResult, environ: Mapping[str, str]) -> None:
    """Show the results of a run where the variables of a CI system say so."""
    from ci.analysis.combined import single_run

    Publication(results=results, source=source, found=single_run(run)).show(environ)
