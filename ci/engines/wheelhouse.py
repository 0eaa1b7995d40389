"""Serve a folder of wheels on loopback during the build of an image or a run.

The port is fixed, because the address is part of the image's recipe. Runs side by side therefore
share it: one serves, the others verify that it serves their folder and wait to take over.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from http.client import HTTPConnection, HTTPException
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from time import monotonic, sleep

from ci.errors import InfrastructureError
from ci.model.plan import NetworkPlan

LOOPBACK = "127.0.0.1"
IDENTITY = "X-Infini-CI-Wheelhouse"  # a header of every answer, which identifies the served folder
POLL_S = 0.1  # pip retries for longer than that
HANDOVER_S = 5.0  # for a server that ends, and one that begins
TIMEOUT_S = 10.0  # for an answer on loopback, perhaps through ssh
REMEDY = "set network.wheelhouse_port to a free port"


class _Handler(SimpleHTTPRequestHandler):
    def end_headers(self) -> None:
        self.send_header(IDENTITY, _identity(Path(self.directory)))
        super().end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Keep requests out of the progress display; pip's own log names them."""


@contextmanager
def serve(network: NetworkPlan) -> Iterator[None]:
    """Serve ``network.wheelhouse``, if it is set, until the block ends."""
    if network.wheelhouse is None or network.wheelhouse_port is None:
        yield
        return
    folder, port = network.wheelhouse, network.wheelhouse_port
    with background_thread(_keep_serving, folder, port, _listen_or_share(folder, port)):
        yield


@contextmanager
def serve_on_free_port(folder: Path) -> Iterator[int]:
    """Serve ``folder`` at a free port, and yield the port, until the block ends."""
    server = _make_server(folder, 0)  # the kernel chooses one that is free
    with background_thread(_keep_serving, folder, 0, server):
        yield server.server_port


@contextmanager
def background_thread(work: Callable[..., None], *arguments: object) -> Iterator[None]:
    """Run ``work`` in a thread; its last argument is an event that is set when the block ends."""
    ended = Event()
    thread = Thread(target=work, args=(*arguments, ended), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _listen_or_share(folder: Path, port: int) -> ThreadingHTTPServer | None:
    """Listen on the port; return None if another run serves the same folder there."""
    deadline = monotonic() + HANDOVER_S
    while True:  # a server that ends resets the connections that it has not accepted
        server = _listen(folder, port)
        if server is not None or is_served(folder, (LOOPBACK, port)):
            return server
        if monotonic() > deadline:
            message = f"cannot serve {folder} at port {port}: another program uses that port"
            raise InfrastructureError(message, remedy=REMEDY)
        sleep(POLL_S)


def _keep_serving(
    folder: Path, port: int, server: ThreadingHTTPServer | None, ended: Event
) -> None:
    """Serve until ``ended``; while another run serves the folder, wait to take its place."""
    while server is None:
        if ended.wait(POLL_S):
            return
        server = _listen(folder, port)
    with server:
        while not ended.is_set():
            server.handle_request()


def _listen(folder: Path, port: int) -> ThreadingHTTPServer | None:
    """Listen on the port; return None if it is in use."""
    try:
        return _make_server(folder, port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return None
        message = f"cannot serve {folder} at port {port}: {error}"
        raise InfrastructureError(message, remedy=REMEDY) from error


def _make_server(folder: Path, port: int) -> ThreadingHTTPServer:
    server = ThreadingHTTPServer((LOOPBACK, port), partial(_Handler, directory=str(folder)))
    server.timeout = POLL_S
    return server


def is_served(folder: Path, address: tuple[str, int] | str) -> bool:
    """Tell whether ``folder`` is served at an address; a string is the path of a socket."""
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    with socket.socket(family) as line, closing(HTTPConnection(LOOPBACK)) as connection:
        line.settimeout(TIMEOUT_S)
        try:
            line.connect(address)
            connection.sock = line
            connection.request("HEAD", "/")
            return connection.getresponse().getheader(IDENTITY) == _identity(folder)
        except (OSError, HTTPException):
            return False


def _identity(folder: Path) -> str:
    """Return the same text for the same folder, however it is spelled."""
    status = folder.stat()
    return f"{status.st_dev}-{status.st_ino}"
