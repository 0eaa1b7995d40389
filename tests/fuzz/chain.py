"""The whole way of a container's bytes: stream, archive, verdict, notes, store, every report."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp

from ci import cli
from ci.engines.archives import extract
from ci.engines.logs import ENGINE_FILES, EventReader, LiveLogs
from ci.model.execution import ExecutionFacts
from ci.model.plan import EngineKind, EnginePlan, NetworkPlan, ResultLimits, RunPlan
from ci.model.platforms import PLATFORMS
from ci.model.results import RunResult
from ci.plan.config import Config, DevicePolicy
from ci.plan.planning import PlanInputs, make_plan
from ci.protocol.events import Event
from ci.run.platform import judge_platform
from ci.run.records import Records
from ci.store.folder import RESULTS_FILE, default_url, read_results
from ci.store.store import Store
from ci.util.process import STORE_VARIABLE
from tests.fuzz import documents as doc

GOOD, HOSTILE = "20260101T000000Z-nogit-0001", "20260102T000000Z-nogit-0002"
START = datetime(2026, 1, 1, tzinfo=UTC)
CONFIG = {
    "project": "tiny",
    "platforms": {"cpu": {"memory_bytes": 2**30}},
    "stages": [
        {"name": "install", "command": "pip install ."},
        {"name": "pytest", "command": "python -m pytest", "kind": "pytest", "timeout_s": 60},
    ],
}
GOOD_RESULTS = doc.tar(
    {
        "r/pytest.jsonl": doc.lines(*doc.REPORTS[:4], doc.REPORTS[-2]),
        "r/pytest.log": doc.STAGE_LOG,
        "r/ninja_log": doc.NINJA_LOG,
    }
)
FORMS = ("table", "markdown", "json")
COMMANDS: tuple[tuple[str, ...], ...] = (
    *(("report", HOSTILE, "--format", form) for form in FORMS),
    ("report", HOSTILE, "--slowest"),
    *(("compare", GOOD, HOSTILE, "--format", form) for form in FORMS),
    ("compare", HOSTILE, GOOD),
    *(("history", "cpu", "--format", form) for form in FORMS),
    ("flaky", "cpu"),
)


class _NoDisplay:
    def event(self, event: Event) -> None:
        """Show nothing."""


def check_chain(data: bytes) -> None:
    """Judge, store and show a run of which ``data`` is the stream and the archive of results."""
    os.environ.pop(STORE_VARIABLE, None)  # it would name the caller's own store
    length = int.from_bytes(data[:4], "big")
    stream, archive = data[4 : 4 + length], data[8 + length :]
    with TemporaryDirectory(prefix="infini-fuzz-") as name:
        results = Path(name) / "results"
        shutil.copytree(_good_results(), results, symlinks=True)
        run = make_run(results, HOSTILE, stream, archive)
        assert read_results(results / HOSTILE / RESULTS_FILE) == run
        with Store(default_url(results)) as store:
            assert store.load(HOSTILE) == run
        for words in COMMANDS:
            check_command(results, words)
        shutil.rmtree(results)
        assert not list(Path(name).iterdir())


def check_command(results: Path, words: tuple[str, ...]) -> None:
    """Run ``python -m ci`` in this process; what it shows must obey no control sequence."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.main([*words, "--results", str(results)])
    # Exit code 2: such as a run without any test, for the slowest ones.
    assert code == 0 or (code == 2 and err.getvalue().startswith("error: ")), (words, code, err)
    assert (out.getvalue() + err.getvalue()).replace("\n", "").isprintable(), words


@cache
def _good_results() -> Path:
    """Results of a good run, with its store."""
    results = Path(mkdtemp(prefix="infini-fuzz-good-")) / "results"
    make_run(results, GOOD, doc.lines(*doc.EVENTS[:7], doc.EVENTS[-1]), GOOD_RESULTS)
    return results


def make_run(results: Path, run_id: str, stream: bytes, archive: bytes) -> RunResult:
    """Make the results of a run as the Docker engine does, from what its container gave."""
    plan = _plan(results, run_id)
    with Records(results / run_id, lambda: Store(default_url(results))) as records:
        records.open()
        outcome = judge_platform(plan, _execution(plan, stream, archive))
        start = START + timedelta(days=int(run_id[-1]))
        run = RunResult(
            run_id=run_id,
            project="tiny",
            commit=None,
            dirty=False,
            started_at=start,
            finished_at=start + timedelta(hours=1),
            engine="docker",
            platforms=(outcome.result,),
        )
        records.add("cpu", outcome.details)
        records.save(run)
    return run


def _execution(plan: RunPlan, stream: bytes, archive: bytes) -> ExecutionFacts:
    plan.results.mkdir(parents=True)
    logs = {stage.name: plan.results / f"{stage.name}.log" for stage in plan.stages}
    reader = EventReader(LiveLogs(_NoDisplay(), logs), plan.results)
    reader.feed(stream)
    left_out = extract(
        [archive], plan.results, strip=1, reserved=ENGINE_FILES, limits=plan.result_limits
    )
    reader.complete()
    return ExecutionFacts(
        engine="docker",
        exit_code=0,
        lost=reader.finished is None,
        unreadable_lines=reader.unreadable_lines,
        longest_line=reader.longest_line,
        notes=left_out,
    )


def _plan(results: Path, run_id: str) -> RunPlan:
    config = Config.model_validate(CONFIG, strict=False)
    inputs = PlanInputs(
        run_id=run_id,
        source=Path("/source"),
        results=results / run_id,
        context={"Dockerfile": b"FROM x", "requirements-cpu.txt": b"pytest"},
        requirements=Path("/requirements.txt"),
        base_image=None,
        network=NetworkPlan(environment={}),
        engine=EnginePlan(name="auto", kind=EngineKind.AUTO),
        devices=DevicePolicy(),
        # Small, so that an input in the middle of 100,000 does not fill the disk.
        result_limits=ResultLimits(total_bytes=1 << 24),
    )
    return make_plan(config, PLATFORMS["cpu"], inputs)
