"""A platform is tried again after an infrastructure fault, and never runs twice at once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from ci.engines import Engine
from ci.errors import ConfigError, InfrastructureError
from ci.facts.sentences import on_stages
from ci.model import plan as plans
from ci.model.plan import EnginePlan
from ci.model.results import PlatformResult
from ci.model.verdicts import Product
from ci.plan.load import load_site
from ci.run import attempts, platform
from tests.ci.local_engine import LocalEngine, facts
from tests.ci.workplace import Workplace, new_workplace
from tests.findings import finding

SITE = """\
engines:
  lab-a: {context: a}
  lab-b: {context: b}
platforms:
  cpu: {engine: lab-a, %s}
"""
DIED = InfrastructureError("the run on lab-a failed: connection refused")
Connect = Callable[[EnginePlan], Engine]


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workplace:
    monkeypatch.setattr(attempts, "ASK_AGAIN_S", 0.05)
    return new_workplace(tmp_path)


class Lab:
    """Two engines; ``lab-a`` answers unless the file ``dead`` exists."""

    def __init__(self, work: Workplace, settings: str = "other_engines: [lab-b]") -> None:
        work.write("ci.site.yaml", SITE % settings)
        self.work = work
        self.dead = work.folder / "dead"
        self.engines = {
            name: LocalEngine(record=work.folder / name, name=name) for name in ("lab-a", "lab-b")
        }

    def connect(self, plan: EnginePlan) -> Engine:
        if plan.name == "lab-a" and self.dead.exists():
            raise InfrastructureError("no Docker Engine answers at a")
        return self.engines[plan.name]

    def run(self) -> PlatformResult:
        result, _ = self.work.run(connect=self.connect)
        return result.platforms[0]

    def calls(self, name: str) -> list[str]:
        return self.engines[name].calls

    def dies(self, error: Exception = DIED) -> None:
        """Let the first engine die after it has started a container."""

        class Dying(LocalEngine):
            def execute(inner, *_: object) -> None:  # type: ignore[override] # noqa: N805
                self.dead.touch()
                raise error

        self.engines["lab-a"] = Dying(record=self.work.folder / "lab-a", name="lab-a")


ATTEMPT_FAILED = on_stages.attempt_failed.code


def texts(row: PlatformResult) -> list[str]:
    return [evidence.text for evidence in row.verdict.evidence]


def test_engine_that_does_not_answer_is_replaced_at_once(work: Workplace) -> None:
    lab = Lab(work)
    lab.dead.touch()
    row = lab.run()
    assert row.verdict.product is Product.PASSED
    failed = on_stages.attempt_failed(1, "lab-a", "no Docker Engine answers at a")
    assert failed in row.verdict.evidence
    assert on_stages.earlier_attempts(1) in row.findings
    assert lab.calls("lab-b") == ["prepare cpu", "execute cpu"]


def test_container_of_a_dead_engine_is_waited_for(
    work: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plans.RunPlan, "longest_s", 0.3)
    lab = Lab(work)
    lab.dies()
    row = lab.run()
    assert row.verdict.product is Product.PASSED
    [failed] = [it.parameters for it in row.verdict.evidence if it.code == ATTEMPT_FAILED]
    assert (failed["attempt"], failed["engine"]) == (1, "lab-a")
    assert str(failed["reason"]).startswith("not_run, infrastructure: ")
    assert "engine lab-a does not answer, and container " in work.output()
    assert " may still run on it. Engine lab-b is used when it has reached" in work.output()
    assert lab.calls("lab-a") == ["prepare cpu"]
    assert lab.calls("lab-b") == ["resume cpu", "prepare cpu", "execute cpu"]


def test_engine_that_dies_before_the_stages_is_replaced_at_once(
    work: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plans.RunPlan, "longest_s", 0.3)
    lab = Lab(work)

    def changes(*_: object) -> None:
        if not lab.dead.exists():
            lab.dead.touch()
            raise InfrastructureError("a file of the sources cannot be read")

    monkeypatch.setattr(platform, "source_changes", changes)
    assert lab.run().verdict.product is Product.PASSED
    assert "may still run" not in work.output()


def test_container_is_adopted_if_its_engine_answers_again(work: Workplace) -> None:
    lab = Lab(work)
    lab.dies()

    def revive(plan: EnginePlan) -> Engine:
        if lab.dead.exists() and lab.calls("lab-a").count("asked") < 3:
            lab.engines["lab-a"]._called("asked")
            raise InfrastructureError("no Docker Engine answers at a")
        lab.dead.unlink(missing_ok=True)
        return lab.engines[plan.name]

    lab.engines["lab-a"].adopted = facts(None, exit_code=0)
    result, _ = work.run(connect=revive)
    assert "resume cpu" in lab.calls("lab-a")
    assert lab.calls("lab-b") == []
    assert result.platforms[0].findings[-1] == on_stages.earlier_attempts(1)


def test_attempts_are_bounded_and_each_is_recorded(work: Workplace) -> None:
    lab = Lab(work, "retries: 2")
    lab.engines["lab-a"].prepare_error = InfrastructureError("no space left")
    row = lab.run()
    assert row.verdict.product is Product.NOT_RUN
    reason = "not_run, infrastructure: no space left"
    assert row.verdict.evidence == (
        on_stages.platform_failed("no space left"),
        on_stages.attempt_failed(1, "lab-a", reason),
        on_stages.attempt_failed(2, "lab-a", reason),
    )
    assert lab.calls("lab-a") == ["prepare cpu", *2 * ["resume cpu", "prepare cpu"]]


def test_nothing_is_tried_again_by_default(work: Workplace) -> None:
    work.engine.prepare_error = InfrastructureError("no space left")
    assert texts(work.only()) == ["no space left"]
    assert work.engine.calls == ["prepare cpu"]


@pytest.mark.parametrize("fault", ["a test fails", "the configuration is wrong"])
def test_what_is_no_fault_of_the_infrastructure_is_not_tried_again(
    work: Workplace, fault: str
) -> None:
    lab = Lab(work, "retries: 2")
    if fault == "a test fails":
        work.write("tests/test_a.py", "def test_a(): assert False\n")
    else:
        lab.engines["lab-a"].prepare_error = ConfigError("no base image")
    row = lab.run()
    assert not finding(on_stages.attempt_failed).is_in(row.verdict.evidence)
    assert lab.calls("lab-a").count("prepare cpu") == 1


def test_interrupt_while_it_waits_keeps_the_last_outcome(work: Workplace) -> None:
    lab = Lab(work)
    lab.dies()
    asked = lab.connect

    def interrupt(plan: EnginePlan) -> Engine:
        if lab.dead.exists():
            os.kill(os.getppid(), signal.SIGINT)
        return asked(plan)

    result, run = work.run(connect=interrupt)
    assert run.interrupted
    evidence = result.platforms[0].verdict.evidence
    assert finding(on_stages.attempt_failed, attempt=1, engine="lab-a").is_in(evidence)
    assert lab.calls("lab-b") == []


def test_unknown_other_engine_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ci.site.yaml").write_text(SITE % "other_engines: [lab-c]")
    with pytest.raises(ConfigError, match=r'platforms\.cpu\.other_engines\.0: got "lab-c"'):
        load_site(tmp_path / "ci.site.yaml")
