"""The steps of a kit, their outcomes and its exit code. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from ci.errors import ExitCode, UsageError
from ci.upkeep.kit.document import KitDocument
from ci.util.text import near_match

ENV, DOCTOR, SMOKE, FULL, CONTRACT = "env", "doctor", "smoke", "full", "contract"


@dataclass(frozen=True, kw_only=True)
class KitStep:
    """One step: a command of this program.

    ``words`` follow ``python -m ci``; the paths are added where the step is carried out. ``runs``:
    it makes a run.
    """

    name: str
    about: str
    words: tuple[str, ...]
    runs: bool = False


class KitStepOutcome(BaseModel):
    """How a step ended; ``seconds`` are of wall time."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    step: str
    exit_code: int
    seconds: float
    run_id: str | None = None
    note: str = ""

    @property
    def result(self) -> str:
        """The outcome in words."""
        if self.exit_code == ExitCode.PASSED:
            return "passed"
        return "failed" if self.exit_code == ExitCode.PRODUCT_FAILURE else "no result"


def steps_of(kit: KitDocument) -> tuple[KitStep, ...]:
    """Return the steps in their order."""
    platform = kit.platform
    run = ("run", platform, "--engine", "host")
    found = [
        KitStep(name=ENV, about="what the machine is, and the plan", words=(*run, "--dry-run")),
        KitStep(
            name=DOCTOR,
            about="checks what a run needs",
            words=("doctor", platform, "--engine", "host"),
        ),
    ]
    if kit.smoke:
        words = (*run, "--select", kit.smoke)
        found.append(KitStep(name=SMOKE, about="a small selection", words=words, runs=True))
    found.append(KitStep(name=FULL, about="the whole run", words=run, runs=True))
    if kit.contract:
        about = "writes what passes and what skips, as a contract"
        found.append(KitStep(name=CONTRACT, about=about, words=("contract", platform)))
    for stage in kit.measurements:
        about = f"builds, and measures the stage {stage}"
        found.append(KitStep(name=stage, about=about, words=(*run, "--until", stage), runs=True))
    return tuple(found)


def choose_steps(steps: Sequence[KitStep], asked: Sequence[str]) -> tuple[KitStep, ...]:
    """Return the named steps in their usual order, by default all."""
    known = [it.name for it in steps]
    for name in asked:
        if name not in known:
            message = f"run-kit: unknown step '{name}', expected one of {', '.join(known)}"
            raise UsageError(f"{message}{near_match(name, known)}")
    return tuple(it for it in steps if it.name in asked or not asked)


def kit_exit_code(outcomes: Iterable[KitStepOutcome]) -> ExitCode:
    """Return the exit code of some steps: a failure of the product comes first."""
    codes = {it.exit_code for it in outcomes}
    for code in (ExitCode.INTERRUPTED, ExitCode.PRODUCT_FAILURE):
        if code in codes:
            return code
    return ExitCode.PASSED if codes <= {ExitCode.PASSED} else ExitCode.INFRASTRUCTURE
