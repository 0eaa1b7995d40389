"""Typed errors, each with the exit code of ``python -m ci``."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of ``python -m ci``."""

    PASSED = 0
    PRODUCT_FAILURE = 1
    USAGE = 2
    INFRASTRUCTURE = 3
    REGRESSION = 4
    INTERRUPTED = 130
    OUTPUT_CLOSED = 141  # as for any program that SIGPIPE ends


class CiError(Exception):
    """A failure that the user can act on; printed as a message, never as a traceback.

    ``str(error)`` reports what went wrong, where, what was found and what was expected.
    ``remedy`` is what the user can do about it.
    """

    exit_code = ExitCode.INFRASTRUCTURE

    def __init__(self, message: str, *, remedy: str | None = None) -> None:
        super().__init__(message)
        self.remedy = remedy


class UsageError(CiError):
    """A wrong command line."""

    exit_code = ExitCode.USAGE


class ConfigError(CiError):
    """A wrong configuration; the message has one line for each finding."""

    exit_code = ExitCode.USAGE


class InfrastructureError(CiError):
    """A failure of the engine, image, network, disk or device: not the product's fault."""

    exit_code = ExitCode.INFRASTRUCTURE


class UnreadableRunError(InfrastructureError):
    """A run in the store whose rows are damaged, or were written by another version.

    A query of many runs leaves it out and goes on. ``damaged`` is whether no version can read it.
    """

    def __init__(
        self, run_id: str, message: str, *, remedy: str | None = None, damaged: bool = False
    ) -> None:
        super().__init__(message, remedy=remedy)
        self.run_id = run_id
        self.damaged = damaged


class PrerequisiteError(InfrastructureError):
    """This machine lacks prerequisites of a run; the message has a line for each of them.

    ``remedy`` is one command that installs all of them, or ``None`` if no package would help.
    """
