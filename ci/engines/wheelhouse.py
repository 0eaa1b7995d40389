"""Serves a folder of wheels on loopback while an image is built or a run goes on."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from ci.errors import InfrastructureError
from ci.plan import NetworkPlan


class _Handler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Keep requests out of the progress display; pip's own log names them."""


@contextmanager
def serve(network: NetworkPlan) -> Iterator[None]:
    """Serve ``network.wheelhouse``, if there is one, until the block ends."""
    if network.wheelhouse is None or network.wheelhouse_port is None:
        yield
        return
    handler = partial(_Handler, directory=str(network.wheelhouse))
    try:
        server = ThreadingHTTPServer(("127.0.0.1", network.wheelhouse_port), handler)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise InfrastructureError(f"cannot serve {network.wheelhouse}: {error}") from error
        yield  # a run beside this one serves the folder already
        return
    with server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield
        finally:
            server.shutdown()
