"""``python -m ci contract``: a finished run becomes what is expected from now on."""

from __future__ import annotations

from pathlib import Path

from ci.analysis.backend import mismatches
from ci.analysis.contract import Contract, contract_text
from ci.analysis.suite import suite_of
from ci.collect import read_log
from ci.errors import UsageError
from ci.platforms import PLATFORMS
from ci.results import PlatformResult, RunResult
from ci.verdict import complete

RUN_AGAIN = "Run the platform again, and write the contract from a run that is whole."


def written_contract(
    run: RunResult, platform: str, results: Path, *, config: str | None
) -> tuple[Contract, str]:
    """The contract that a run makes, and its text; the same run always makes the same.

    Raises:
        UsageError: the run is not fit for one: it did not get to its end, its tests ran
            elsewhere, or some of them failed.
    """
    result = run.platform(platform)
    folder = results / run.run_id / platform
    log = read_log(folder)
    if log is None:
        raise UsageError(f"{folder} has no per-test log", remedy=RUN_AGAIN)
    # What ended early but well is incomplete too.
    if not result.verdict.product.is_final or not complete(log):
        message = f"the tests of {platform} did not get to their end in run {run.run_id}"
        raise UsageError(message, remedy=RUN_AGAIN)
    device, simulated = PLATFORMS[platform].torch_device, result.simulated
    if wrong := mismatches(log, platform=platform, torch_device=device, simulated=simulated):
        raise UsageError(f"run {run.run_id} was not on {platform}: {wrong[0]}", remedy=RUN_AGAIN)
    contract = Contract(platform=platform, suite=suite_of(log.tests), simulated=simulated)
    version = _torch_version(result)
    text = contract_text(contract, config=config, torch_version=version, date=run.started_at)
    return contract, text


def _torch_version(result: PlatformResult) -> str | None:
    version = result.facts("packages").get("torch")
    return version if isinstance(version, str) else None
