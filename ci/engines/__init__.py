"""Engines, which carry plans out, and the interface that each of them provides."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol, Self

from ci.errors import InfrastructureError
from ci.protocol.events import Event

if TYPE_CHECKING:  # noxfile.py checks prerequisites before anything is installed
    from ci.engines.checks import Finding
    from ci.engines.leftovers import Leftovers
    from ci.model.execution import ExecutionFacts, ImageFacts
    from ci.model.plan import EnginePlan, RunPlan


class Observer(Protocol):
    """Receives the events of a run in progress."""

    def event(self, event: Event) -> None:
        """Handle an event of the agent, a line of a stage's output, or an engine's message."""


@dataclass(frozen=True)
class EngineMessage(Event):
    """What an engine reports about itself."""

    event = "engine"
    text: str


def say(observer: Observer, text: str) -> None:
    """Pass a message of an engine on."""
    observer.event(EngineMessage(text))


@dataclass(frozen=True, kw_only=True)
class EngineMachine:
    """The machine on which an engine runs its plans.

    Attributes:
        identity: the same text for the same engine, even if it has several names here
        processors: the number of platforms that run there at once, unless a capacity is set
    """

    identity: str
    processors: int


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """What plans may ask of the engines of a kind.

    Attributes:
        isolates_network: a stage may run without a network
        images: it stores the images that it runs: it is an ``ImageEngine``
    """

    isolates_network: bool
    images: bool


class Engine(Protocol):
    """Carries plans out.

    Each engine is a room of this package, and a row of ``ci.engines.select.ENGINES``. The methods
    that have a body suit engines without a need of their own.
    """

    name: str
    capabilities: ClassVar[Capabilities]
    prepares: ClassVar[str] = "image"
    """What ``prepare`` makes, as the progress names it."""

    @classmethod
    def connect(cls, plan: EnginePlan) -> Self:
        """Return the engine of ``plan``; raises ``InfrastructureError`` if it does not answer."""

    def check(self, plan: RunPlan) -> None:  # noqa: ARG002
        """Raise ``ConfigError`` for a plan that lacks what this engine needs; here accept any."""
        return

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

    def find_image(self, plan: RunPlan, digest: str, /) -> ImageFacts | None:  # noqa: ARG002
        """Return the environment that an earlier run recorded; ``None`` if it no longer exists."""
        return None

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

    def prerequisites(self, *plans: RunPlan) -> Iterator[Finding]:  # noqa: ARG002
        """Yield what the plans of one project need on this machine; checked before any download."""
        yield from ()

    def checks(self, plan: EnginePlan, runs: Sequence[RunPlan]) -> Iterator[Finding]:
        """Check the engine, which is that of ``plan``, and what ``runs`` need there: for doctor."""

    def leftovers(self) -> Leftovers | None:
        """Return what the engine keeps of earlier runs: for gc; ``None``: nothing stays."""
        return None

    def describe(self, plan: RunPlan) -> Mapping[str, object]:
        """Return what this engine makes of ``plan``, as values of JSON: for ``--dry-run``."""

    def close(self) -> None:
        """Close the connection, if there is one; the engine is not used after this."""
        return


class ImageStore(Protocol):
    """The images of an engine."""

    def inspect(self, image_id: str, /) -> tuple[int, tuple[str, ...]]:
        """Return the size of an image, and the digests of its layers."""

    def save(self, image_id: str, /) -> Iterator[bytes]:
        """Return an image as ``docker save`` prints it."""


class ImageEngine(Engine, Protocol):
    """An engine that stores images."""

    images: ImageStore


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
