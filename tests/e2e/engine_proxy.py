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
    If it returns bytes, they are the answer in place of the engine's; none at all cut the line.
    ``on_answer`` gets each part of an answer with its request, and returns what is passed on. The
    line is cut after a part that is shorter than the engine's.
    """

    daemon_threads = True

    def __init__(self, path: Path) -> None:
        self.running = threading.Event()
        self.running.set()
        self.ended = False
        self.on_request: Callable[[str], bytes | None] = lambda _: None
        self.on_answer: Callable[[str, bytes], bytes] = lambda _, part: part
        self._lines: list[socket.socket] = []
        super().__init__(str(path), _Way)

    def cut(self) -> None:
        """Cut all connections."""
        self.ended = True
        for line in self._lines:
            _cut(line)


class _Way(socketserver.BaseRequestHandler):
    server: Proxy

    def handle(self) -> None:
        self.asked = ""  # the latest request of this connection
        with socket.socket(socket.AF_UNIX) as engine:
            engine.connect(ENGINE)
            self.server._lines += [self.request, engine]
            back = threading.Thread(target=self.pump, args=(engine, self.request, self.answer))
            back.start()
            self.pump(self.request, engine, self.ask)
            _cut(engine)  # the other direction waits for it
            back.join()

    def pump(
        self, source: socket.socket, sink: socket.socket, change: Callable[[bytes], bytes]
    ) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                passed = change(data)
                self.server.running.wait()
                if self.server.ended:
                    return
                sink.sendall(passed)
                if len(passed) < len(data):
                    _cut(source)
                    break
            sink.shutdown(socket.SHUT_WR)

    def ask(self, data: bytes) -> bytes:
        """Return what the engine gets of a request."""
        if found := REQUEST.match(data):
            self.asked = b" ".join(found.groups()).decode()
            instead = self.server.on_request(self.asked)
            if instead is not None:
                self.request.sendall(instead)
                return b""
        return data

    def answer(self, data: bytes) -> bytes:
        """Return what the client gets of an answer."""
        return self.server.on_answer(self.asked, data)


def _cut(line: socket.socket) -> None:
    with contextlib.suppress(OSError):
        line.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def proxied(path: Path) -> Iterator[Proxy]:
    """Listen at ``path`` until the block ends."""
    with Proxy(path) as proxy:
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        try:
            yield proxy
        finally:
            proxy.cut()
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
