"""Engines: where plans are carried out, and what each of them provides."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from ci.errors import InfrastructureError
from ci.model.plan import RunPlan
from ci.model.results import ExecutionFacts, ImageFacts


class Observer(Protocol):
    """Watches a run while it goes on."""

    def event(self, event: Mapping[str, object]) -> None:
        """Take an event of the agent, a line of output or an engine's message.

        The latter two are ``{"event": "output", "stage", "text"}`` and
        ``{"event": "engine", "text"}``.
        """


@dataclass(frozen=True, kw_only=True)
class EngineMachine:
    """Where an engine runs its plans.

    Two engines of one ``identity`` are the same one, whatever they are called here, and
    ``processors`` is how many platforms run there at once where no capacity is set.
    """

    identity: str
    processors: int


class Engine(Protocol):
    """Carries plans out."""

    name: str

    def check(self, plan: RunPlan) -> None:
        """Raise ``ConfigError`` for a plan that lacks what this engine needs."""

    def machine(self) -> EngineMachine:
        """Where it runs plans."""

    def prepare(self, plan: RunPlan, observer: Observer) -> ImageFacts:
        """Find or make the environment of the stages; the log is ``image.log``."""

    def execute(self, plan: RunPlan, image: ImageFacts, observer: Observer) -> ExecutionFacts:
        """Copy the sources in, run the stages, and leave their results in ``plan.results``.

        An interrupt (Ctrl-C) ends the stages, keeps what they left, and returns.
        """

    def resume(self, plan: RunPlan, observer: Observer) -> ExecutionFacts | None:
        """Adopt the run that a dead caller left behind; None where there is none."""

    def describe(self, plan: RunPlan) -> str:
        """Return what ``execute`` would do, as one would type it."""

    def close(self) -> None:
        """Hang up; nothing is asked of the engine any more."""


@contextmanager
def typed_errors(
    what: str,
    *kinds: type[Exception],
    remedy: str,
    explain: Callable[[Exception], str] = str,
) -> Iterator[None]:
    """Turn errors of the given kinds into ``InfrastructureError``: ``what`` failed."""
    try:
        yield
    except kinds as error:
        raise InfrastructureError(f"{what} failed: {explain(error)}", remedy=remedy) from error
