"""The wheel that ships, on real engines: built, kept, installed, tested; or made elsewhere."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

from ci.facts.platform_result import judged_result
from ci.facts.result_files import ResultFiles
from ci.model.plan import DistributionPlan, GivenDistribution
from ci.model.results import PlatformResult
from ci.model.verdicts import Product
from ci.plan.given import stages_with
from ci.protocol.stage_kind import StageKind
from tests.e2e.benches import Bench
from tests.e2e.plans import REQUIREMENTS, stage

PIP = ("python", "-m", "pip")
STAGES = (
    stage("wheel", *PIP, "wheel", ".", "--no-deps", "--no-build-isolation", "-w", "dist"),
    stage("install", *PIP, "install", "{wheel}"),
    stage("pytest", "python", "-m", "pytest", "tests", "-k", "answer", kind=StageKind.PYTEST),
)
WHEEL = "tiny-1-py3-none-any.whl"
MADE = DistributionPlan(folder="dist")


def run(bench: Bench, distributions: DistributionPlan) -> PlatformResult:
    given = distributions.given
    plan = bench.plan(
        *(stages_with(given, STAGES, "dist") if given else STAGES), requirements=REQUIREMENTS
    )
    plan = replace(plan, distributions=distributions)
    return judged_result(
        plan, bench.run(plan), ResultFiles(folder=plan.results, stages=plan.stages)
    )


def test_the_wheel_that_was_tested_is_kept_and_tested_again(bench: Bench) -> None:
    """A second run gets the wheel of the first; its sources have another package."""
    result = run(bench, MADE)
    assert result.verdict.product is Product.PASSED
    [wheel] = result.distributions
    kept = bench.folder / wheel.path if wheel.path else Path()
    assert (wheel.name, wheel.installed, wheel.given) == (WHEEL, True, False)
    assert hashlib.sha256(kept.read_bytes()).hexdigest() == wheel.sha256
    assert result.artifacts[f"dist/{WHEEL}"] == f"results/dist/{WHEEL}"

    elsewhere = bench.folder / WHEEL
    kept.rename(elsewhere)
    again = Bench(bench.engine, bench.folder / "again", bench.python)
    (again.folder / "project" / "src" / "tiny" / "__init__.py").write_text("ANSWER = 41\n")
    given = GivenDistribution(path=elsewhere, sha256=wheel.sha256, size_bytes=wheel.size_bytes)
    result = run(again, DistributionPlan(folder="dist", given=given))
    assert result.verdict.product is Product.PASSED
    [wheel] = result.distributions
    assert (wheel.name, wheel.installed, wheel.given) == (WHEEL, True, True)
    assert [it.name for it in result.stages if it.in_total] == ["install", "pytest"]
    assert "1 module removed from the sources" in str(result.notes)
