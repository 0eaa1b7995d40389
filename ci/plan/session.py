"""A plan as a session: its stages up to the tests, then a shell or tests again. Pure."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ci.model.job import Column, StageKind, StagePlan
from ci.model.plan import SESSION_LABEL, RunPlan

SHELL = "shell"  # name of the stage that a shell enters
LONGEST_S = 12 * 3600.0  # of a shell: a forgotten one ends, and with it the lease of its devices


def shell_plan(plan: RunPlan, *, results: Path) -> RunPlan:
    """Return the plan that recreates the environment of ``plan`` for a shell."""
    shell = replace(
        plan.pytest_stage,
        name=SHELL,
        kind=StageKind.COMMAND,
        command=(),
        column=Column.NONE,
        timeout_s=LONGEST_S,
        reruns=0,
        hold=True,
    )
    return _session_plan(plan, shell, results)


def rerun_plan(plan: RunPlan, *, results: Path, test: str | None) -> RunPlan:
    """Return the plan that runs one test of ``plan`` again; ``None``: all of them."""
    tests = replace(plan.pytest_stage, only=(test,) if test else (), reruns=0)
    return _session_plan(plan, tests, results)


def _session_plan(plan: RunPlan, last: StagePlan, results: Path) -> RunPlan:
    """Return a plan that recreates the environment of ``plan``, and ends with the stage ``last``.

    It has the same image, user, limits, network and devices. No later caller adopts it: the label
    of its container lets ``gc`` remove it even if it runs, once its caller was killed.
    """
    container = plan.container
    labels = {**container.labels, SESSION_LABEL: "1"}
    return replace(
        plan,
        stages=(*plan.stages[: plan.stages.index(plan.pytest_stage)], last),
        artifacts=(),
        results=results,
        container=replace(container, labels=labels),
        contract=None,
        other_engines=(),
        retries=0,
    )
