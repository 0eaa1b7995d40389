"""A plan as a session: its stages up to the tests, then a shell or tests again. Pure."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ci.model.plan import CONTAINER_FOLDER, SESSION_LABEL, RunPlan
from ci.protocol.job import Column, StagePlan
from ci.protocol.stage_kind import StageKind

SHELL = "shell"  # name of the stage that a shell enters
LONGEST_S = 12 * 3600.0  # of a shell: a forgotten one ends, and with it the lease of its devices


def shell_plan(plan: RunPlan, *, results: Path) -> RunPlan:
    """Return the plan that recreates the environment of ``plan`` for a shell."""
    return _session_plan(plan, _shell(plan), results)


def rerun_plan(plan: RunPlan, *, results: Path, test: str | None) -> RunPlan:
    """Return the plan that runs one test of ``plan`` again; ``None``: all of them."""
    tests = replace(plan.pytest_stage, only=(test,) if test else (), reruns=0)
    return _session_plan(plan, tests, results)


def kept_plan(plan: RunPlan, *, session: str) -> RunPlan:
    """Return the plan of a shell in what a failed run of ``plan`` left; ``session`` is its id.

    Passwords were for the stages of the run alone.
    """
    container = plan.container
    return replace(
        plan,
        run_id=session,
        stages=(_shell(plan),),
        artifacts=(),
        distributions=None,
        network=replace(plan.network, credentials={}),
        # The results of the run are for its shell, too.
        container=replace(
            container, name=container.kept_name, results=f"{CONTAINER_FOLDER}/{session}"
        ),
    )


def _shell(plan: RunPlan) -> StagePlan:
    return replace(
        plan.pytest_stage,
        name=SHELL,
        kind=StageKind.COMMAND,
        command=(),
        column=Column.NONE,
        timeout_s=LONGEST_S,
        reruns=0,
        hold=True,
    )


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
