"""Servers at a socket of their own: a way to the real engine that can hang, and one that lies."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

ENGINE = os.environ.get("DOCKER_HOST", "unix:///var/run/docker.sock").removeprefix("unix://")
REQUEST = re.compile(rb"^([A-Z]+) (/\S*) HTTP/1\.1\r\n")


class Proxy(socketserver.ThreadingUnixStreamServer):
    """Passes everything on until ``running`` is cleared.

    ``on_request`` gets each request, such as ``POST /v1.41/containers/create``, before the engine.
    """

    daemon_threads = True

    def __init__(self, path: Path) -> None:
        self.running = threading.Event()
        self.running.set()
        self.ended = False
        self.on_request: Callable[[str], None] = lambda _: None
        self._lines: list[socket.socket] = []
        super().__init__(str(path), _Way)

    def cut(self) -> None:
        """Cut all connections."""
        self.ended = True
        for line in self._lines:
            with contextlib.suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)

    def pump(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if found := REQUEST.match(data):
                    self.on_request(b" ".join(found.groups()).decode())
                self.running.wait()
                if self.ended:
                    return
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)


class _Way(socketserver.BaseRequestHandler):
    server: Proxy

    def handle(self) -> None:
        with socket.socket(socket.AF_UNIX) as engine:
            engine.connect(ENGINE)
            self.server._lines += [self.request, engine]
            back = threading.Thread(target=self.server.pump, args=(engine, self.request))
            back.start()
            self.server.pump(self.request, engine)
            with contextlib.suppress(OSError):  # the other direction waits for it
                engine.shutdown(socket.SHUT_RDWR)
            back.join()


@contextlib.contextmanager
def proxied(path: Path) -> Iterator[Proxy]:
    """Listen at ``path`` until the block ends."""
    with Proxy(path) as proxy:
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        try:
            yield proxy
        finally:
            proxy.ended = True
            proxy.running.set()
            proxy.shutdown()


class _Liar(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    body = b""

    def answer(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def address_string(self) -> str:
        return "unix"

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@contextlib.contextmanager
def lying(path: Path, body: bytes) -> Iterator[None]:
    """Answer every request at ``path`` with ``body`` until the block ends."""
    methods = {f"do_{name}": _Liar.answer for name in ("GET", "POST", "HEAD", "DELETE")}
    handler = type("Liar", (_Liar,), {"body": body, **methods})
    with socketserver.ThreadingUnixStreamServer(str(path), handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield
        server.shutdown()
