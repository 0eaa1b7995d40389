"""``python -m ci contract``: a finished run becomes what is expected from now on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ci.analysis.backend import mismatches
from ci.analysis.contract import Contract, contract_text
from ci.analysis.suite import LACKS_INSTRUCTIONS, State, Suite, suite_name, suite_of
from ci.case import complete
from ci.collect import read_log
from ci.errors import UsageError
from ci.platforms import PLATFORMS
from ci.pytest_log import Outcome, PytestLog
from ci.results import PlatformResult, RunResult

RUN_AGAIN = "Run the platform again, and write the contract from a run that is whole."


def written_contract(
    run: RunResult,
    platform: str,
    results: Path,
    *,
    config: str | None,
    before: Contract | None = None,
    base: tuple[str, Contract] | None = None,
) -> tuple[Contract, str]:
    """The contract that a run makes, and its text.

    ``base`` is the contract to list the differences from, with the name that the file has for it.
    What it and ``before``, the contract so far, say of other processors is kept.

    Raises:
        UsageError: the run is not fit for one: it did not get to its end, its tests ran
            elsewhere, or some of them failed.
    """
    result = run.platform(platform)
    folder = results / run.run_id / platform
    log = read_log(folder)
    if log is None:
        raise UsageError(f"{folder} has no per-test log", remedy=RUN_AGAIN)
    if selected := result.facts("selection").get("operators"):
        message = f"run {run.run_id} is of selected operators only: {selected}"
        remedy = f"Write the contract from a run of all: python -m ci run {platform} --select all"
        raise UsageError(message, remedy=remedy)
    # What ended early but well is incomplete too.
    if not result.verdict.product.is_final or not complete(log):
        message = f"the tests of {platform} did not get to their end in run {run.run_id}"
        raise UsageError(message, remedy=RUN_AGAIN)
    device, simulated = PLATFORMS[platform].torch_device, result.simulated
    if wrong := mismatches(log, platform=platform, torch_device=device, simulated=simulated):
        raise UsageError(f"run {run.run_id} was not on {platform}: {wrong[0]}", remedy=RUN_AGAIN)
    contract = Contract(
        platform=platform,
        suite=_on_any_processor(log, [it.suite for it in (before, base and base[1]) if it]),
        simulated=simulated,
        base=base[0] if base else None,
    )
    text = contract_text(
        contract,
        base=base[1] if base else None,
        config=config,
        torch_version=_torch_version(result),
        date=run.started_at,
    )
    return contract, text


def _on_any_processor(log: PytestLog, known_suites: Sequence[Suite]) -> Suite:
    """The suite of a run, with what contracts say of processors that are not this one.

    A test that skipped because instructions are missing passes with them. Conditions from other
    processors are kept, also where this run passes without them.
    """
    suite = suite_of(log.tests)
    needs = {
        suite_name(test.node_id, suite.device): test.operator.needs
        for test in log.tests
        if test.operator is not None and test.operator.needs is not None
    }
    operators = dict(suite.operators)
    for name, state in suite.operators.items():
        states = (it.operators[name] for it in known_suites if name in it.operators)
        known = next((it.needs for it in states if it.needs), None)
        if state == LACKS_INSTRUCTIONS:
            holds = known and log.processor and not log.processor.has(known)
            wanted = known if holds else needs.get(name)
            operators[name] = State(Outcome.PASSED, needs=wanted) if wanted else state
        elif known and state.outcome is Outcome.PASSED:
            operators[name] = State(Outcome.PASSED, needs=known)
    return replace(suite, operators=operators)


def _torch_version(result: PlatformResult) -> str | None:
    version = result.facts("packages").get("torch")
    return version if isinstance(version, str) else None
