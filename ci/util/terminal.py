"""The one place that prints: it replaces whatever a terminal would obey.

Results name projects, engines, commits, stages, tests and files, and a stranger's run can have
chosen any of these. ruff rejects `print` elsewhere in this program. Colored output goes through
``ci.report.document`` and ``ci.run.progress``, which clean each text before they color it.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, BinaryIO

from ci.errors import CiError
from ci.util.text import mask_credentials, strip_controls


def show(text: str = "", *, end: str = "\n") -> None:
    """Print to the standard output."""
    print(strip_controls(text), end=end)  # noqa: T201


@contextmanager
def standard_output_to(file: BinaryIO) -> Iterator[None]:
    """Write what this process, and those it starts, print to a file instead."""
    sys.stdout.flush()
    kept = os.dup(1)
    try:
        os.dup2(file.fileno(), 1)
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


def show_error(error: Exception | str, remedy: str | None = None) -> None:
    """Print an error and its remedy, by default the error's own, to the standard error.

    Passwords in addresses are masked: messages quote URLs of engines, indexes and stores. A remedy
    is this program's own text, and may show how to write such a URL.
    """
    remedy = remedy or (error.remedy if isinstance(error, CiError) else None)
    complain("\n".join(filter(None, (mask_credentials(f"error: {error}"), remedy))))


def complain(text: str) -> None:
    """Print to the standard error."""
    print(strip_controls(text), file=sys.stderr)  # noqa: T201


def discard_output(stream: IO[str]) -> None:
    """Write to nowhere what is still to come, since the reader, such as `head`, has ended."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


ACTIONS_VARIABLE = "GITHUB_ACTIONS"
_stopped: list[str] = []  # the token that lets GitHub obey commands again


@contextmanager
def workflow_commands_stopped(environ: Mapping[str, str]) -> Iterator[None]:
    """In a job of GitHub, let it obey no line of the output that begins with ``::``.

    The message of a stranger's test can be such a line: ``::add-mask::e`` would hide each e of the
    log. Only this process knows the token that ends it:
    https://docs.github.com/en/actions/reference/workflow-commands-for-github-actions
    """
    if ACTIONS_VARIABLE not in environ:
        yield
        return
    _stopped.append(secrets.token_hex(16))
    complain(f"::stop-commands::{_stopped[-1]}")
    try:
        yield
    finally:
        complain(f"::{_stopped.pop()}::")


def show_workflow_commands(commands: Sequence[str]) -> None:
    """Print lines that GitHub obeys, to the standard error: programs read the standard output."""
    if _stopped and commands:
        commands = [f"::{_stopped[-1]}::", *commands, f"::stop-commands::{_stopped[-1]}"]
    for line in commands:
        complain(line)
