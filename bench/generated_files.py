"""Write the files of a generated run as its agent, Ninja and pytest would have left them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from ci.facts.build import NINJA_LOG
from ci.model.details import Details, Unit
from ci.model.outcomes import Outcome, TestOutcome
from ci.model.results import PlatformResult, RunResult
from ci.protocol.agent_files import ENGINE_EVENTS, PYTEST_LOG
from ci.protocol.events import StageFinished, StageStarted

COMPILERS = 2  # side by side
WORKERS = 4
_BEGIN = 0.1  # of the install stage, after which Ninja runs
_OUTCOMES = {Outcome.SKIPPED: "skipped", Outcome.FAILED: "failed"}


def write_files(results: Path, run: RunResult, details: dict[str, Details]) -> None:
    """Write the files of all platforms of a run into the folder of results."""
    for result in run.platforms:
        folder = results / run.run_id / result.platform
        folder.mkdir(parents=True)
        begin = run.started_at.timestamp()
        begins: dict[str, float] = {}
        events = []
        now = begin
        for stage in result.stages:
            if stage.seconds is None or stage.name in ("image", "sync"):  # the engine's own
                continue
            begins[stage.name] = now
            started = StageStarted(stage.name, command=("true",))
            events.append(started.to_json(time=now, monotonic=now) + "\n")
            now += stage.seconds
            ended = StageFinished(stage.name, seconds=stage.seconds, exit_code=stage.exit_code or 0)
            events.append(ended.to_json(time=now, monotonic=now) + "\n")
        (folder / ENGINE_EVENTS).write_text("".join(events), encoding="utf-8")
        _write_build(folder, result, details[result.platform], begins.get("install", begin))
        tests, pytest_s = details[result.platform].tests, result.pytest_s or 0
        lines = _reports(tests, begins.get("pytest", begin), pytest_s)
        (folder / PYTEST_LOG).write_text("".join(lines), encoding="utf-8")


def _write_build(folder: Path, result: PlatformResult, details: Details, begin: float) -> None:
    install = next((it.seconds for it in result.stages if it.name == "install"), None)
    if details.build is None or install is None:
        return
    units: Sequence[Unit] = details.build.units
    started, free, rows = begin + _BEGIN * install, [0] * COMPILERS, []
    for number, unit in enumerate(units):
        lane = free.index(min(free))
        start, free[lane] = free[lane], free[lane] + round(1000 * unit.seconds)
        moment = round((started + start / 1000) * 1e9)
        rows.append((free[lane], f"{start}\t{free[lane]}\t{moment}\t{unit.output}\t{number:x}\n"))
    text = "# ninja log v7\n" + "".join(line for _, line in sorted(rows))
    (folder / NINJA_LOG).write_text(text, encoding="utf-8")


def _reports(tests: Sequence[TestOutcome], begin: float, seconds: float) -> Iterator[str]:
    """Yield one report for each test; the tests share the seconds of the stage."""
    scale = 0.9 * seconds * WORKERS / (sum(it.seconds for it in tests) or 1)
    free = [begin] * WORKERS
    for test in tests:
        worker = free.index(min(free))
        start, took = free[worker], test.seconds * scale
        free[worker] += took
        report = {
            "$report_type": "TestReport",
            "nodeid": test.node_id,
            "when": "call",
            "outcome": _OUTCOMES.get(test.outcome, "passed"),
            "duration": took,
            "start": start,
            "stop": start + took,
            "worker_id": f"gw{worker}",
        }
        yield json.dumps(report) + "\n"
