"""A run that another system carries out: its record is opened here, and judged here at the end.

The system returns a folder of the run with a folder of files for each platform, as its agent wrote
them. What they mean follows from the plan, which is made again from the run's own request and
contracts: nothing in that folder names a configuration or a command. Without files a platform has
no result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ci.engines.logs import ENGINE_FILES
from ci.facts.platform_result import not_run_result
from ci.facts.result_files import ResultFiles
from ci.manifests.kubernetes import SYSTEM, job_notes
from ci.manifests.pods import pulled_image, read_pods
from ci.model.execution import ExecutionFacts
from ci.model.plan import RunPlan
from ci.model.results import PlatformResult, RunResult
from ci.model.verdicts import Harness
from ci.plan.project import load_here
from ci.plan.request import RunRequest, check_configuration, plan_request, read_request
from ci.run.platform import PlatformOutcome, judge_platform
from ci.run.records import Records
from ci.store.folder import RESULTS_FILE, read_results
from ci.store.importing import check_size, copy_files
from ci.util.files import remove_folder


@dataclass(kw_only=True)
class DelegatedRun:
    """The record of a run that Kubernetes carries out."""

    request: RunRequest
    plans: Sequence[RunPlan]
    records: Records
    notes: Mapping[str, Sequence[str]] = field(default_factory=dict)  # by platform

    def open(self) -> RunResult:
        """Write the run with a row for each platform, which did not run so far."""
        with self.records:
            self.records.open()
            self.records.write_contracts(self.plans)
            self.records.write_request(self.request)
            return self._save([self._pending(plan) for plan in self.plans])

    def collect(
        self, folder: Path, ends: Mapping[str, ExecutionFacts]
    ) -> tuple[RunResult, RunResult]:
        """Copy what ``folder`` has of the platforms, and judge it; return the run before and now.

        A platform keeps its row if that is final, or if ``folder`` has nothing of it. When all rows
        are final, no Job needs its inputs.
        """
        check_size(folder)
        with self.records:
            self.records.open()
            earlier = read_results(self.records.folder / RESULTS_FILE)
            known = {it.platform: it for it in earlier.platforms}
            rows = []
            for plan in self.plans:
                row = known.get(plan.platform) or self._pending(plan)
                is_there = (folder / plan.platform).is_dir() or plan.platform in ends
                if is_there and not _has_ended(row):
                    end = ends.get(plan.platform, ExecutionFacts(engine=SYSTEM))
                    outcome = self._judge(plan, folder, end)
                    self.records.add(plan.platform, outcome.details)
                    row = outcome.result
                rows.append(row)
            if all(map(_has_ended, rows)):
                remove_folder(self.records.folder / SYSTEM)
            return earlier, self._save(rows)

    def _judge(self, plan: RunPlan, folder: Path, end: ExecutionFacts) -> PlatformOutcome:
        remove_folder(plan.results)
        if (folder / plan.platform).is_dir():
            copy_files(folder / plan.platform, plan.results)
            for name in ENGINE_FILES:  # no engine wrote them
                (plan.results / name).unlink(missing_ok=True)
        files = ResultFiles(folder=plan.results, stages=plan.stages)
        if not files.record.events:
            reason = "; ".join(end.notes) or f"{SYSTEM} returned no events of its agent"
            return PlatformOutcome(result=not_run_result(plan, reason))
        finished = files.record.run_finished
        code = end.exit_code if finished is None else finished.exit_code
        image = end.image or pulled_image(plan.needed_image.tag)
        facts = replace(
            end,
            image=replace(image, reference=image.reference or plan.needed_image.tag),
            exit_code=code,
            lost=finished is None,
            notes=(*self.notes.get(plan.platform, ()), *end.notes),
        )
        return judge_platform(plan, facts, files)

    def _pending(self, plan: RunPlan) -> PlatformResult:
        return not_run_result(plan, f"{SYSTEM} carries it out; no results were imported yet")

    def _save(self, rows: Sequence[PlatformResult]) -> RunResult:
        result = self.request.result(SYSTEM, rows)
        self.records.save(result)
        return result


def _has_ended(row: PlatformResult) -> bool:
    """Whether a row is final. A test may have failed by the time that its files were copied."""
    return row.verdict.product.is_final and row.verdict.harness is not Harness.LOST


def judge_jobs(folder: Path, results: Path) -> tuple[RunResult, RunResult]:
    """Judge the files that the Jobs of a run wrote; return the run before and now.

    ``folder`` has the name of the run. Raises ``UsageError`` if the configuration has changed since
    the Jobs were printed.
    """
    request = check_configuration(read_request(results, folder.name, "import"), "import")
    project = load_here(request.config)
    plans = plan_request(project, request, results)
    records = Records.of_run(results, folder.name)
    missing = [*filter(None, [records.missing_contracts(plans)])]
    run = DelegatedRun(
        request=request,
        plans=plans,
        records=records,
        notes={plan.platform: [*job_notes(plan), *missing] for plan in plans},
    )
    return run.collect(folder, read_pods(folder, folder.name))
