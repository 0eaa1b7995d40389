"""Shells in containers: of runs in progress, and of failed runs that are kept.

A kept container has the labels of its run. Its name shows that the run is judged, so that no later
caller adopts it.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import termios
import tty
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from http import HTTPStatus
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from time import monotonic, sleep
from typing import Any

from docker.api.client import APIClient
from docker.client import DockerClient
from docker.errors import APIError
from docker.models.containers import Container
from docker.utils.socket import STDERR, frames_iter

from ci.engines import Observer, job
from ci.engines.docker.containers import Isolation, copy_program, find_containers, read_log, start
from ci.engines.docker.link import Link
from ci.engines.logs import EventReader
from ci.engines.shells import MOST_STARTS, OPEN_AGAIN, Doorway
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


def keep_container(client: DockerClient, plan: RunPlan) -> str | None:
    """Rename the ended container of a run; return its new name, or ``None`` if there is none."""
    name = plan.container.kept_name
    for container in find_containers(client, plan.container.labels):
        if container.name != name:
            container.rename(name)
        return name
    return None


def enter_kept(link: Link, plan: RunPlan, observer: Observer, *, interactive: bool) -> int | None:
    """Open a shell in the container of a kept plan; return its exit code.

    ``None``: there is no such container. Raises ``InfrastructureError`` if it opens no shell.
    """
    name = plan.container.name
    for _ in range(MOST_STARTS):
        found = find_containers(link.client, plan.container.labels)
        container = next((it for it in found if it.name == name), None)
        if container is None:
            return None
        doorway = Doorway(observer, plan.stages[-1].name)
        is_started_here = container.status != "running"
        try:
            if _is_held_open(link, container, plan, doorway, is_started_here=is_started_here):
                doorway.enter()
                return open_shell(link.client.api, container, plan, interactive=interactive)
        except KeyboardInterrupt:
            _leave(link, container, is_started_here=is_started_here)
            raise
        if doorway.reason:
            raise InfrastructureError(f"no shell was opened in container {name}: {doorway.reason}")
    message = f"no shell was opened: container {name} ended {MOST_STARTS} times at its start"
    raise InfrastructureError(message, remedy=f"{link.product.command} logs {name}")


def _is_held_open(
    link: Link, container: Container, plan: RunPlan, doorway: Doorway, *, is_started_here: bool
) -> bool:
    """Start the container if necessary, and follow it until it is held open; ``False``: it ended.

    Its log has the events of its run, and of earlier shells.
    """

    def start_again() -> None:
        copy_program(container, plan)
        start(container, plan)

    with TemporaryDirectory(prefix="infini-ci-kept-") as folder:
        reader = EventReader(Isolation(container, link, plan, doorway), Path(folder))
        read = partial(read_log, container, reader, link.watch)
        return doorway.opens(
            reader,
            container.logs(stream=True, follow=False),
            start_again if is_started_here else None,
            partial(link.retry, read, doorway),
        )


def _leave(link: Link, container: Container, *, is_started_here: bool) -> None:
    """End an interrupted session, unless it is the one of other shells too."""
    container.reload()
    commands = container.attrs["ExecIDs"] or ()
    running = [it for it in commands if link.client.api.exec_inspect(it)["Running"]]
    is_last = len(running) <= 1 if running else is_started_here
    if is_last and container.status == "running":
        container.kill(signal="SIGTERM")


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
