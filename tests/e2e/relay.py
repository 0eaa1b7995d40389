"""A relay to a Unix socket: ``python relay.py LISTEN CONNECT``. Killing it cuts the line."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import sys
import threading


def pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)


class Relay(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        with socket.socket(socket.AF_UNIX) as upstream:
            upstream.connect(sys.argv[2])
            back = threading.Thread(target=pump, args=(upstream, self.request))
            back.start()
            pump(self.request, upstream)
            back.join()


class Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True


if __name__ == "__main__":
    with Server(sys.argv[1], Relay) as server:
        print("ready", flush=True)
        server.serve_forever()
