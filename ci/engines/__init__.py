"""Engines, which carry plans out, and the interface that each of them provides."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from ci.errors import InfrastructureError
from ci.model.plan import RunPlan
from ci.model.results import ExecutionFacts, ImageFacts
from ci.protocol.events import Event


class Observer(Protocol):
    """Receives the events of a run in progress."""

    def event(self, event: Event) -> None:
        """Handle an event of the agent, a line of a stage's output, or an engine's message."""


@dataclass(frozen=True)
class EngineMessage(Event):
    """What an engine reports about itself."""

    event = "engine"
    text: str


@dataclass(frozen=True, kw_only=True)
class EngineMachine:
    """The machine on which an engine runs its plans.

    Attributes:
        identity: the same text for the same engine, even if it has several names here
        processors: the number of platforms that run there at once, unless a capacity is set
    """

    identity: str
    processors: int


class Engine(Protocol):
    """Carries plans out."""

    name: str

    def check(self, plan: RunPlan) -> None:
        """Raise ``ConfigError`` for a plan that lacks what this engine needs."""

    def machine(self) -> EngineMachine:
        """Return the machine on which the engine runs plans."""

    def prepare(self, plan: RunPlan, observer: Observer) -> ImageFacts:
        """Find or create the environment of the stages, and log to ``image.log``."""

    def execute(self, plan: RunPlan, image: ImageFacts, observer: Observer) -> ExecutionFacts:
        """Copy the sources in, run the stages, and leave their results in ``plan.results``.

        An interrupt (Ctrl-C) ends the stages; their results so far are kept and returned.
        """

    def resume(self, plan: RunPlan, observer: Observer) -> ExecutionFacts | None:
        """Adopt the run of a caller that died; return None if there is no such run."""

    def find_image(self, plan: RunPlan, digest: str, /) -> ImageFacts | None:
        """Return the environment that an earlier run recorded; ``None`` if it no longer exists."""

    def enter(self, plan: RunPlan, *, interactive: bool) -> int:
        """Run a shell beside the stage of ``plan`` that holds its environment open.

        It has this process's standard streams, which are a terminal if ``interactive``. Returns its
        exit code. The stage ends with it. Called in ``execute``, by the observer.
        """

    def settle(self, plan: RunPlan, *, keep: bool) -> str | None:
        """Keep the environment of ``plan``, which has ended and is judged, or remove it.

        ``execute`` and ``resume`` leave it to this, if the plan keeps those of failed platforms.
        Returns the name of what is kept. No later caller adopts it.
        """

    def enter_kept(self, plan: RunPlan, observer: Observer, *, interactive: bool) -> int | None:
        """Run a shell in what ``settle`` has kept, as ``enter`` does; ``None``: it is gone.

        ``plan`` has one stage, which holds the environment open until the last shell has left. The
        observer gets its start when the shell opens.
        """

    def describe(self, plan: RunPlan) -> str:
        """Return a shell script that does the same as ``execute``."""

    def close(self) -> None:
        """Close the connection; the engine is not used after this."""


@contextmanager
def typed_errors(
    what: str,
    *kinds: type[Exception],
    remedy: str,
    explain: Callable[[Exception], str] = str,
) -> Iterator[None]:
    """Raise errors of the given kinds as ``InfrastructureError``: "<what> failed"."""
    try:
        yield
    except kinds as error:
        raise InfrastructureError(f"{what} failed: {explain(error)}", remedy=remedy) from error
