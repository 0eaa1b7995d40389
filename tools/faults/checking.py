"""What must be true after every fault."""

from __future__ import annotations

import json
from pathlib import Path

from ci.gates.rules import exit_code
from ci.model.results import PlatformResult, RunResult
from ci.store.folder import RESULTS_FILE, default_url, read_results
from ci.store.store import Store
from ci.util.process import STORE_VARIABLE
from tools.faults.findings import GAP, as_text, is_expected, matches
from tools.faults.model import Fault, Left
from tools.faults.running import FaultRun

TRACEBACK = "Traceback (most recent call last)"
COUNTS = ("passed", "failed", "errors", "skipped")


def carry_out(run: FaultRun) -> dict[str, list[str]]:
    """Carry out a run with its faults; return, by platform, what is not as expected.

    Expectations that are not met are collected, so that one run shows all of them.
    """
    faults = list(run.platforms.values())
    wrong: list[str] = []  # of the whole run
    run.execute()
    left = Left.CONTAINER if run.containers() else Left.NOTHING
    wrong += [f"after the run remains {left}"] * (left is not faults[0].left)
    if left is Left.NOTHING:
        wrong += run.leftovers()
    if faults[0].then is not None:
        faults[0].then(run)
    while len(run.processes) < len(faults[0].exits):
        run.resume()
    wrong += run.leftovers()
    wrong += [f"a traceback in {name}" for name in _tracebacks(run)]
    if faults[0].product is None:
        results = run.files(f"*/{RESULTS_FILE}")
        wrong += [f"there is {path}, expected no results" for path in results]
        rows: dict[str, PlatformResult] = {}
        codes = faults[0].exits
    else:
        result = read_results(run.results / run.run_id / RESULTS_FILE)
        wrong += _store_differences(run, result)
        rows = {row.platform: row for row in result.platforms}
        worst = int(exit_code(result.platforms))
        codes = faults[0].exits if len(faults) == 1 else (worst,)
    found = tuple(process.returncode for process in run.processes)
    wrong += [f"exit codes {found}, expected {codes}"] * (found != codes)
    return {
        platform: [*wrong, *_differences(run, fault, rows.get(platform))]
        for platform, fault in run.platforms.items()
    }


def _differences(run: FaultRun, fault: Fault, row: PlatformResult | None) -> list[str]:
    wrong = [
        f"{text!r} is not shown:\n{run.shown}"
        for text in fault.shown
        if not matches(f"{GAP}{text}{GAP}", run.shown)
    ]
    if row is None or fault.product is None:
        return [*wrong, *(["there is no row"] if fault.product else [])]
    verdict = row.verdict
    verdicts = (verdict.product, verdict.harness)
    texts = [evidence.text for evidence in verdict.evidence]
    if verdicts != (fault.product, fault.harness):
        wrong.append(f"verdict {verdicts}, expected {(fault.product, fault.harness)}: {texts}")
    wrong += [
        f"evidence {found.code} is not expected: {found.text!r}"
        for found in verdict.evidence
        if not any(is_expected(found, each) for each in fault.evidence)
    ]
    wrong += [
        f"no evidence like {text!r}: {texts}"
        for text, each in zip(as_text(fault.evidence), fault.evidence, strict=True)
        if not any(is_expected(found, each) for found in verdict.evidence)
    ]
    own = int(exit_code([row]))
    if not fault.is_alone and (own,) != fault.exits:
        wrong.append(f"exit code {own} for this row alone, expected {fault.exits}")
    results = _results(row)
    wrong += [f"results {results!r}, expected {fault.results!r}"] * (results != fault.results)
    folder = run.results / run.run_id / row.platform
    wrong += [f"{name} is not kept" for name in fault.kept if not (folder / name).is_file()]
    return wrong


def _results(row: PlatformResult) -> str:
    """``1 passed, 2 failed``: the counts of a row that are not zero."""
    if row.pytest is None:
        return ""
    counts = {name: getattr(row.pytest, name) for name in COUNTS}
    return ", ".join(f"{count} {name}" for name, count in counts.items() if count)


def _store_differences(run: FaultRun, result: RunResult) -> list[str]:
    with Store(run.environment.get(STORE_VARIABLE) or default_url(run.results)) as store:
        stored = store.load_or_skip(run.run_id)
    if stored is None:
        return ["the store has no such run"]
    rows, expected = ([json.loads(each.to_json())["platforms"]] for each in (stored, result))
    return ["the store has other rows than results.json"] * (rows != expected)


def _tracebacks(run: FaultRun) -> list[str]:
    """Return outputs and logs with a traceback of this program.

    A log of a stage may have one of the code under test.
    """
    paths = [run.output_file(number) for number in range(len(run.processes))]
    paths += [path for path in run.files("*/*/*.log") if _is_ours(path)]
    paths += run.files("*/*.md")
    return [path.name for path in paths if TRACEBACK in _text(path)]


def _is_ours(log: Path) -> bool:
    return log.name in ("image.log", "agent.log") or "ci/agent/" in _text(log)


def _text(path: Path) -> str:
    with path.open(errors="replace") as file:  # such as a log of a gigabyte
        return file.read(1 << 24)
