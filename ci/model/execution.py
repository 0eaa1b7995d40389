"""What an engine reports about a run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ImageFacts:
    """The environment that the stages ran in; for the host engine a virtual environment."""

    reference: str
    digest: str | None
    built: bool
    seconds: float
    reason: str  # "cached", or why it was built
    base: str | None = None  # its base image
    base_digest: str | None = None  # the engine's id of it
    base_pinned: str | None = None  # its reference by digest, which registries know
    requirements: str | None = None  # digest of what the host engine's environment was made of


@dataclass(frozen=True, kw_only=True)
class ExecutionFacts:
    """Facts from the engine about a run, in addition to the files in ``plan.results``."""

    engine: str
    engine_version: str | None = None
    image: ImageFacts | None = None
    sync_seconds: float = 0.0
    exit_code: int | None = None  # of the container or the agent
    oom_killed: bool = False
    lost: bool = False  # the agent's result was not received
    interrupted: bool = False  # by the caller, with Ctrl-C or SIGTERM
    ended_by: str | None = None  # the request of another program that ended the container
    unreadable_lines: int = 0  # on standard output, where the agent prints its events
    longest_line: int = 0  # bytes of the longest of them, if it exceeds the limit for an event
    wrapper_seconds: float = 0.0  # wall time of the whole call
    notes: tuple[str, ...] = ()

    @property
    def may_run(self) -> bool:
        """Whether what the engine lost may still run."""
        return self.lost and self.exit_code is None
