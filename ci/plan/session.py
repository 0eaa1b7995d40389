"""A plan as a session: its stages up to the tests, then a shell or a single test. Pure."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ci.model.job import Column, StageKind, StagePlan
from ci.model.plan import CONTAINER_FOLDER, SESSION_LABEL, RunPlan

SHELL = "shell"  # name of the stage that a shell enters
LONGEST_S = 12 * 3600.0  # of a shell: a forgotten one ends, and with it the lease of its devices


def session_plan(plan: RunPlan, *, results: Path, test: str | None = None) -> RunPlan:
    """Return the plan that recreates the environment of ``plan``, for ``test`` or for a shell.

    It has the same image, user, limits, network and devices. No later caller adopts it: the label
    of its container lets ``gc`` remove it, even if it runs.
    """
    at = _position_of_tests(plan)
    container = plan.container
    labels = {**container.labels, SESSION_LABEL: "1"}
    return replace(
        plan,
        stages=(*plan.stages[:at], _last_stage(plan.stages[at], test)),
        artifacts=(),
        results=results,
        container=replace(container, labels=labels),
        contract=None,
        other_engines=(),
        retries=0,
    )


def kept_plan(plan: RunPlan, *, session: str) -> RunPlan:
    """Return the plan of a shell in what a failed run of ``plan`` left; ``session`` is its id.

    Passwords were for the stages of the run alone.
    """
    container = plan.container
    return replace(
        plan,
        run_id=session,
        stages=(_last_stage(plan.stages[_position_of_tests(plan)], None),),
        artifacts=(),
        network=replace(plan.network, credentials={}),
        # The results of the run are for its shell, too.
        container=replace(
            container, name=container.kept_name, results=f"{CONTAINER_FOLDER}/{session}"
        ),
    )


def _position_of_tests(plan: RunPlan) -> int:
    return next(n for n, stage in enumerate(plan.stages) if stage.kind is StageKind.PYTEST)


def _last_stage(tests: StagePlan, test: str | None) -> StagePlan:
    if test is not None:
        return replace(tests, only=(test,), reruns=0)
    return replace(
        tests,
        name=SHELL,
        kind=StageKind.COMMAND,
        command=(),
        column=Column.NONE,
        timeout_s=LONGEST_S,
        reruns=0,
        hold=True,
    )
