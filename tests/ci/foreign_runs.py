"""Folders of results as another machine leaves them."""

from __future__ import annotations

from pathlib import Path

from ci.model.results import PlatformResult, RunResult
from ci.model.verdicts import Harness, Product
from tests.ci.made_results import made_verdict
from tests.ci.operator_log import FINISH, lines

RUN_ID = "20260101T120000Z-0123abcd-00ff"


def small(run: RunResult, run_id: str = RUN_ID) -> RunResult:
    """Two platforms of a run: one passed, one lost."""
    passed, other = run.platforms[:2]
    lost = made_verdict(Product.INCOMPLETE, harness=Harness.LOST)
    other = other.model_copy(update={"verdict": lost, "pytest": None, "built": None})
    return run.model_copy(update={"run_id": run_id, "platforms": (passed, other)})


def resumed(run: RunResult, log_of: PlatformResult) -> RunResult:
    """The run at its end: the platform that was lost has passed."""
    platforms = (run.platforms[0], log_of)
    finished = run.finished_at.replace(hour=23)
    return run.model_copy(update={"platforms": platforms, "finished_at": finished})


def write_run(folder: Path, run: RunResult) -> Path:
    """A folder with the results and, of every platform that has counts, two tests."""
    for result in run.platforms:
        (folder / result.platform).mkdir(parents=True, exist_ok=True)
        (folder / result.platform / "install.log").write_text("built\n")
        if result.pytest is not None:
            log = [*lines("add.out"), *lines("abs.out", "skipped", "no sample: none"), FINISH]
            (folder / result.platform / "pytest.jsonl").write_text("\n".join(log))
    (folder / "results.json").write_text(run.to_json())
    return folder
