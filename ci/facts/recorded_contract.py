"""Make a contract from a run."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ci.errors import UsageError
from ci.facts.case import is_complete
from ci.facts.contract import Contract, ContractBase
from ci.facts.contract_text import check_suite, contract_text
from ci.facts.operators import mismatches
from ci.facts.result_files import ResultFiles
from ci.facts.suite import LACKS_INSTRUCTIONS, suite_name, suite_of
from ci.model.outcomes import Outcome, PytestLog, State, Suite
from ci.model.platforms import PLATFORMS
from ci.model.results import RunResult
from ci.model.verdicts import Product

RUN_AGAIN = "Run the platform again, and write the contract from a complete run."


def make_contract(
    run: RunResult,
    platform: str,
    results: Path,
    *,
    config: str | None,
    before: Contract | None = None,
    base: ContractBase | None = None,
) -> tuple[Contract, str]:
    """Return the contract of a run, and its text.

    The contract lists the differences from ``base``. Conditions for other processors in ``base``
    and in ``before``, the contract so far, are kept.

    Raises:
        UsageError: The run did not finish, its tests ran on another device or platform, or some
            of them failed.
    """
    result = run.platform(platform)
    folder = results / run.run_id / platform
    log = ResultFiles(folder=folder).log
    if log is None:
        raise UsageError(f"{folder} has no per-test log", remedy=RUN_AGAIN)
    simulated = result.simulated
    check_recordable(
        log,
        platform=platform,
        product=result.verdict.product,
        simulated=simulated,
        selected=result.selected,
        run=f"run {run.run_id}",
        config=config,
    )
    suite = _keep_conditions(log, [it.suite for it in (before, base and base.contract) if it])
    torch = result.facts("packages").get("torch")
    contract = Contract(
        platform=platform,
        suite=suite,
        simulated=simulated,
        torch=torch if isinstance(torch, str) else None,
        base=base,
    )
    return contract, contract_text(contract, config=config, date=run.started_at)


def check_recordable(
    log: PytestLog,
    *,
    platform: str,
    product: Product,
    simulated: bool,
    selected: object,
    run: str,
    config: str | None,
) -> None:
    """Raise ``UsageError`` if no contract can be made from a run.

    ``selected`` are the operators that the run was narrowed to; falsy: all. ``run`` and ``config``
    are for the message: the run's name, and its configuration if it is not the default one.
    """
    if selected:
        message = f"{run} has only selected operators: {selected}"
        option = f" --config {shlex.quote(config)}" if config else ""
        remedy = f"Run all operators first: python -m ci run {platform}{option} --select all"
        raise UsageError(message, remedy=remedy)
    # A session that ended early is incomplete even with exit status 0.
    if not product.is_final or not is_complete(log):
        raise UsageError(f"the tests of {platform} did not finish in {run}", remedy=RUN_AGAIN)
    device = PLATFORMS[platform].torch_device
    if wrong := mismatches(log, platform=platform, torch_device=device, simulated=simulated):
        raise UsageError(f"{run} was not on {platform}: {wrong[0]}", remedy=RUN_AGAIN)
    check_suite(suite_of(log.tests))


def _keep_conditions(log: PytestLog, known_suites: Sequence[Suite]) -> Suite:
    """Return the suite of a run with conditions, so that it holds on any processor.

    A test that skipped because instructions are missing is expected to pass with them. Conditions
    from other processors are kept, even if this run passes without them.
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
