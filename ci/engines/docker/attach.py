"""Connect this process's terminal, or its standard streams, to a command in a container."""

from __future__ import annotations

import os
import signal
import socket
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from http import HTTPStatus
from threading import Thread
from time import monotonic, sleep
from typing import Any

from docker.api.client import APIClient
from docker.errors import APIError
from docker.models.containers import Container
from docker.utils.socket import STDERR, frames_iter

from ci.engines import job
from ci.errors import InfrastructureError
from ci.model.plan import RunPlan
from ci.protocol.job import INTERACTIVE
from ci.util.process import handle_interrupts

CHUNK = 1 << 16
STARTED_S = 10.0  # until the command runs, after the engine's answer
POLL_S = 0.05
TERMINAL = ("TERM",)  # variables that describe the caller's terminal
KILLED = 137  # the exit code of a shell whose container is stopped
ENDED_S = 5  # for a container that ends to have ended
AGENT_CODES = (0, 1)  # of an agent that ended by itself
OPEN_AGAIN = "Open another shell with the same command."


def open_shell(client: APIClient, container: Container, plan: RunPlan, *, interactive: bool) -> int:
    """Run a shell in a container whose stage holds its environment open, as that stage's user.

    Returns its exit code. Raises ``InfrastructureError`` if the container was stopped or removed.
    """
    terminal = {name: os.environ[name] for name in TERMINAL if name in os.environ}
    words = [*job.ENTER_SHELL, *([INTERACTIVE] if interactive else [])]
    try:
        command = client.exec_create(
            container.id,
            [*plan.needed_image.entry, *words],
            stdin=True,
            tty=interactive,
            user=plan.container.user,
            environment=terminal,
        )
        code = attach(client, command["Id"], interactive=interactive)
        is_gone = code == KILLED and _is_ended_from_outside(container)
    except APIError as error:
        is_gone = error.status_code in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT)
        if not is_gone:
            raise
    if is_gone:
        message = f"container {container.name} was stopped or removed, and its shells with it"
        raise InfrastructureError(message, remedy=OPEN_AGAIN)
    return code


def _is_ended_from_outside(container: Container) -> bool:
    """Whether a container was stopped or killed, not only a shell in it.

    Raises ``APIError`` if it was removed.
    """
    try:
        code: int = container.wait(timeout=ENDED_S)["StatusCode"]
    except APIError:  # an OSError, too
        raise
    except OSError:  # it goes on
        return False
    return code not in AGENT_CODES


def attach(client: APIClient, command: str, *, interactive: bool) -> int:
    """Run an exec of the engine with this process's streams; return its exit code.

    ``command`` is the id of the exec, which has a terminal if it is ``interactive``. Its output is
    passed on as it is, like that of a shell on this machine.
    """
    stream = client.exec_start(command, tty=interactive, socket=True)
    with closing(stream), ExitStack() as terminal:
        if interactive:
            terminal.enter_context(_raw_terminal())
            terminal.enter_context(_same_size(client, command))
        _exchange(stream, interactive=interactive)
    code: int | None = client.exec_inspect(command)["ExitCode"]
    return 1 if code is None else code  # None: the connection ended before the command


def _exchange(stream: Any, *, interactive: bool) -> None:
    """Send the standard input, and write the command's output until it ends."""
    connection: socket.socket = getattr(stream, "_sock", stream)  # below the file of the SDK
    connection.settimeout(None)  # a person may think for an hour
    Thread(target=_send_input, args=(connection,), daemon=True).start()
    frames: Iterator[tuple[int, bytes]] = frames_iter(stream, interactive)
    for source, data in frames:
        target = sys.stderr if source == STDERR else sys.stdout
        target.buffer.write(data)
        target.buffer.flush()


def _send_input(connection: socket.socket) -> None:
    with suppress(OSError):  # the command has ended
        while chunk := os.read(sys.stdin.fileno(), CHUNK):
            connection.sendall(chunk)
        connection.shutdown(socket.SHUT_WR)


@contextmanager
def _raw_terminal() -> Iterator[None]:
    """Pass every key on: the terminal in the container interprets them."""
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    # What a signal from outside interrupts must not leave the terminal as it is.
    with handle_interrupts(signal.default_int_handler):
        try:
            tty.setraw(terminal, termios.TCSADRAIN)  # keeps what was typed ahead
            yield
        finally:
            termios.tcsetattr(terminal, termios.TCSADRAIN, before)


@contextmanager
def _same_size(client: APIClient, command: str) -> Iterator[None]:
    """Give the terminal in the container the size of this one, now and whenever it changes."""
    deadline = monotonic() + STARTED_S
    # The engine refuses it until the command runs, which is later than its answer.
    while not _resize(client, command) and monotonic() < deadline:
        sleep(POLL_S)

    def resize(*_: object) -> None:
        _resize(client, command)

    before = signal.signal(signal.SIGWINCH, resize)
    try:
        yield
    finally:
        signal.signal(signal.SIGWINCH, before)


def _resize(client: APIClient, command: str) -> bool:
    """Return whether the command runs, and so has the size of this terminal now."""
    columns, lines = os.get_terminal_size(sys.stdin.fileno())  # variables may have another one
    with suppress(OSError):
        client.exec_resize(command, height=lines, width=columns)
        return True
    return False
