"""A fault of the suite: what is done to a run, and what must come of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from signal import Signals
from typing import TYPE_CHECKING

from ci.facts.sentences import on_tests
from ci.model.verdicts import Harness, Product
from tools.faults.findings import Expected, as_text

if TYPE_CHECKING:
    from tools.faults.running import FaultRun

KILLED = -9  # what Python reports of a process that SIGKILL ended
PYTEST = "python -m pytest -s {folder}"
LIMIT_S = 60.0  # most runs take 3 s; two of them share a busy processor


class Left(StrEnum):
    """What remains of a run after its process has ended."""

    NOTHING = "nothing"
    CONTAINER = "a container, which `--resume` adopts"


@dataclass(frozen=True, kw_only=True)
class Fault:
    """One fault, with its project and its expectations.

    A fault gets a platform of a run. Several share a run where that changes no outcome. Texts of
    ``shown`` stand for themselves, but ``…`` matches any text.
    """

    name: str
    """What is done, in words."""
    kind: str
    """The group in the table."""

    # What is done
    files: Mapping[str, str] = field(default_factory=dict)
    """Files in the platform's own folder of the project, which ``{folder}`` stands for.

    ``{run}`` in a text is a name that no other run has.
    """
    install: str = "true"
    """The command of the stage ``install``; ``{folder}`` as in ``tests``."""
    tests: str = PYTEST
    """The command of the stage ``pytest``."""
    limits_s: Mapping[str, float] = field(default_factory=dict)
    """Time limits of stages."""
    settings: Mapping[str, object] = field(default_factory=dict)
    """Further settings of the platform in ``ci.yaml``."""
    config: Mapping[str, object] = field(default_factory=dict)
    """Further settings of the project in ``ci.yaml``."""
    site: Mapping[str, object] = field(default_factory=dict)
    """Settings of ``ci.site.yaml``."""
    options: tuple[str, ...] = ()
    """Options of ``ci run``; ``--engine docker`` is the default."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of the orchestrator; ``{run}`` is the folder of the fault's files."""
    prefix: tuple[str, ...] = ()
    """The program that starts every command, with its arguments."""
    around: Callable[[FaultRun], AbstractContextManager[object]] | None = None
    """What is set up before the run, and taken down after the checks; its value is ``setting``."""
    act: Callable[[FaultRun, str], None] | None = None
    """What is done at a moment of the run, which the function waits for, to the platform."""
    then: Callable[[FaultRun], None] | None = None
    """What is done after the command, which may start more commands."""
    alone: bool = False
    """Whether the fault needs a run of its own."""

    # What must come of it
    product: Product | None
    """``None``: the command refuses to run, and there are no results."""
    harness: Harness | None
    evidence: tuple[Expected, ...] = ()
    """The findings of the verdict, in any order: no others."""
    shown: tuple[str, ...] = ()
    """Texts that the command must show."""
    exits: tuple[int, ...]
    """Exit codes of all commands, in the order of their start.

    If there are more than ``act`` and ``then`` start, each of the others is a ``--resume``.
    """
    results: str = ""
    """Results of tests in the row, such as ``1 passed, 1 failed``."""
    kept: tuple[str, ...] = ("pytest.log",)
    """Files in the platform's folder of results."""
    left: Left = Left.NOTHING
    """What remains of the first command."""
    limit_s: float = LIMIT_S
    """Seconds after which each command must have ended."""

    @property
    def is_alone(self) -> bool:
        """Whether other platforms of the same run would be disturbed."""
        whole_run = (self.config, self.site, self.options, self.environment, self.prefix)
        setting = (self.around, self.then)
        return self.alone or any((*whole_run, *setting)) or len(self.exits) > 1

    def row(self) -> dict[str, str]:
        """Return the fault's row of the table."""
        files = [f"`{name}`" for name in self.kept]
        happens = [
            f"\N{LEFT DOUBLE QUOTATION MARK}{text}\N{RIGHT DOUBLE QUOTATION MARK}"
            for text in as_text(self.evidence) or self.shown
        ]
        return {
            "kind": self.kind,
            "fault": self.name,
            "what happens": "; ".join(happens),
            "product": _words(self.product),
            "harness": _words(self.harness),
            "exit": ", then ".join(
                "killed" if code == KILLED else str(code) for code in self.exits
            ),
            "kept": ", ".join([*([self.results] if self.results else []), *files]) or "nothing",
            "left behind": self.left,
        }


# What most faults are made of with ``replace``: a project of one test, and what comes of it.
GREEN = {"test_it.py": "def test_a(): pass\n"}
SLOW = {"test_it.py": "import time\ndef test_a(): print('begun'); time.sleep(3)\n"}
PASSED = on_tests.suite_passed(1, 0, ended=True)
PASSES = Fault(
    name="the run does not notice it",
    kind="",
    files=GREEN,
    product=Product.PASSED,
    harness=Harness.CLEAN,
    evidence=(PASSED,),
    exits=(0,),
    results="1 passed",
)
NOT_STARTED = Fault(
    name="it hits the run before its first stage",
    kind="",
    files=GREEN,
    product=Product.NOT_RUN,
    harness=Harness.INFRASTRUCTURE,
    exits=(3,),
    kept=("image.log",),
)
REFUSED = Fault(
    name="the command refuses to run",
    kind="",
    files=GREEN,
    product=None,
    harness=None,
    exits=(3,),
    kept=(),
)


def _exit(code: int) -> str:
    """``3``, or ``SIGKILL`` for a command that this signal ended."""
    return str(code) if code >= 0 else Signals(-code).name


def _words(value: Product | Harness | None) -> str:
    return "none" if value is None else value.replace("_", " ")


def batches(faults: list[Fault], size: int) -> list[list[Fault]]:
    """Divide faults into runs: up to ``size`` platforms each, in order."""
    alone = [[fault] for fault in faults if fault.is_alone]
    shared = [fault for fault in faults if not fault.is_alone]
    return [*(shared[at : at + size] for at in range(0, len(shared), size)), *alone]
