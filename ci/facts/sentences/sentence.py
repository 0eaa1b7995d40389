"""What a sentence of a verdict is."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Generic, NamedTuple, ParamSpec

from pydantic import ValidationError, validate_call

from ci.model.verdicts import Evidence, Grade
from ci.util.text import signal_name

MOST_LISTED = 20  # of a list among the parameters; a text has five
MOST_NAMED = 3  # runs in a sentence

P = ParamSpec("P")


class Sentence(Generic[P]):
    """A sentence, named after the function that writes it."""

    def __init__(self, write: Callable[P, str], grade: Grade) -> None:
        self.code = write.__name__.replace("_", "-")
        self.grade = grade
        self.write: Callable[..., str] = write

    @cached_property
    def signature(self) -> inspect.Signature:
        return inspect.signature(self.write)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Evidence:
        parameters = self.signature.bind(*args, **kwargs).arguments
        return Evidence(
            grade=self.grade,
            text=self.write(*args, **kwargs),
            code=self.code,
            parameters={name: _plain(value) for name, value in parameters.items()},
        )

    def reworded(self, found: Evidence, **changes: Any) -> str | None:
        """Return the text with other parameters; ``None`` if this sentence did not write it.

        The evidence may come from elsewhere, so its parameters are checked.
        """
        if found.code != self.code:
            return None
        try:
            return validate_call(self.write)(**{**found.parameters, **changes})
        except ValidationError:
            return None


def _plain(value: Any) -> Any:
    """Return a parameter as JSON has it."""
    match value:
        case Exit():
            return value._asdict()
        case str() | None:
            return str(value) if value else value
        case Sequence():
            return list(value[:MOST_LISTED])
    return value


def fact(write: Callable[P, str]) -> Sentence[P]:
    return Sentence(write, Grade.FACT)


def likely(write: Callable[P, str]) -> Sentence[P]:
    return Sentence(write, Grade.LIKELY)


def unknown(write: Callable[P, str]) -> Sentence[P]:
    return Sentence(write, Grade.UNKNOWN)


class Exit(NamedTuple):
    """How a command ended."""

    exit_code: int
    signal: int | None = None
    by_agent: bool = False
    """Whether the agent ended a command that then had exit code 0."""

    def __str__(self) -> str:
        if self.signal is not None:
            return f"signal {signal_name(self.signal)} (exit code {self.exit_code})"
        return f"exit code {self.exit_code}" + (
            ", after the agent ended it" if self.by_agent else ""
        )
