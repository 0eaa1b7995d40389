"""Registries and package indexes that are down, slow or broken."""

from __future__ import annotations

import hashlib
import io
import socketserver
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import cache
from threading import Thread

from ci.facts.sentences import on_stages
from tests.e2e.bridge import machine_address
from tools.faults.model import GREEN, NOT_STARTED, PASSES
from tools.faults.running import FaultRun

KIND = "Registry and package index"
# A wheel is asked for while the image is built, twice: pip's own five retries take 8 s.
RECIPE = """\
ARG BASE_IMAGE
FROM ${BASE_IMAGE}
ARG PIP_INDEX_URL
ARG PIP_TRUSTED_HOST
RUN python -m pip install --retries 1 --timeout 5 --no-cache-dir faultless
"""
NOT_FOUND = "image … of platform cpu cannot be built…ERROR: Could not find a version …"
OTHER = "image … of platform cpu cannot be built…ERROR: THESE PACKAGES DO NOT MATCH THE HASHES…"
NOT_PULLED = "base image … is not on the engine and cannot be pulled…"
PATIENCE_S = 240.0  # builds wait for each other, and an engine asks a registry several times
SLOW_S = 3.0  # less than the patience of pip above
Answer = Callable[[str], bytes]
Around = Callable[[FaultRun], AbstractContextManager[object]]


@cache
def wheel() -> bytes:
    """Return a package without anything in it; a second one would have another time in it."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        folder = "faultless-1.dist-info"
        archive.writestr(
            f"{folder}/METADATA", "Metadata-Version: 2.1\nName: faultless\nVersion: 1\n"
        )
        archive.writestr(
            f"{folder}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{folder}/RECORD", "")
    return content.getvalue()


def response(body: bytes, status: str = "200 OK", kind: str = "text/html") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Connection: close\r\n\r\n".encode() + body


def index(path: str) -> bytes:
    """Answer as an index with one package."""
    if path.endswith(".whl"):
        return response(wheel(), kind="application/zip")
    digest = hashlib.sha256(wheel()).hexdigest()
    name = "faultless-1-py3-none-any.whl"
    return response(f'<a href="/{name}#sha256={digest}">{name}</a>'.encode())


def slow_index(path: str) -> bytes:
    time.sleep(SLOW_S)
    return index(path)


def cut_index(path: str) -> bytes:
    """Cut the package in its middle."""
    return index(path)[:-200] if path.endswith(".whl") else index(path)


def wrong_index(path: str) -> bytes:
    """Hand out another file than the one that the index lists."""
    return index(path).replace(b"Name: faultless", b"Name: FAULTLESS")


@contextmanager
def serving(address: str, answer: Answer) -> Iterator[int]:
    """Answer every request at an address of this machine; yield the port."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            path = self.rfile.readline().decode(errors="replace").split(" ")[1:2]
            while self.rfile.readline().strip():
                pass
            self.wfile.write(answer(*path or ["/"]))

    with socketserver.ThreadingTCPServer((address, 0), Handler) as server:
        server.daemon_threads = True
        Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def package_index(answer: Answer | None) -> Around:
    """Return what names an index to a run; without an answer nothing listens there."""

    @contextmanager
    def around(run: FaultRun) -> Iterator[None]:
        address = machine_address(run.client)
        with serving(address, answer or index) as port:
            shown = port if answer else 1
            run.environment["PIP_INDEX_URL"] = f"http://{address}:{shown}/simple"
            run.environment["PIP_TRUSTED_HOST"] = address
            yield

    return around


def registry(answer: Answer | None) -> Around:
    """Return what puts the base image of a run into a registry of this machine.

    An engine of this machine trusts a registry at its loopback address without encryption.
    """

    @contextmanager
    def around(run: FaultRun) -> Iterator[None]:
        config = run.project / "ci.yaml"
        with serving("127.0.0.1", answer or index) as port:
            base = f"127.0.0.1:{port if answer else 1}/{run.name}/base:1"
            config.write_text(config.read_text().replace(run.image, base))
            yield

    return around


def garbage(_: str) -> bytes:
    return b"\x00garbage\xff" * 9


def error(_: str) -> bytes:
    return response(b"out of order", "500 Internal Server Error")


WITH_RECIPE = {**GREEN, "Recipe": RECIPE}
RECIPE_SETTINGS = {"recipe": "cpu/Recipe"}
NO_IMAGE = replace(NOT_STARTED, kind=KIND, limit_s=PATIENCE_S)
NO_PACKAGE = replace(NO_IMAGE, files=WITH_RECIPE, settings=RECIPE_SETTINGS)
FAULTS = (
    replace(
        NO_PACKAGE,
        name="the package index is down",
        around=package_index(None),
        evidence=(on_stages.platform_failed(NOT_FOUND),),
    ),
    replace(
        NO_PACKAGE,
        name="the package index answers with status 500",
        around=package_index(error),
        evidence=(on_stages.platform_failed(NOT_FOUND),),
    ),
    replace(
        NO_PACKAGE,
        name="the package index answers with garbage",
        around=package_index(garbage),
        evidence=(on_stages.platform_failed(NOT_FOUND),),
    ),
    replace(
        NO_PACKAGE,
        name="a package of the index is cut in its middle",
        around=package_index(cut_index),
        evidence=(on_stages.platform_failed(OTHER),),
    ),
    replace(
        NO_PACKAGE,
        name="a package of the index is not the one that it lists",
        around=package_index(wrong_index),
        evidence=(on_stages.platform_failed(OTHER),),
    ),
    replace(
        PASSES,
        name="the package index takes 3 s for each answer",
        kind=KIND,
        files=WITH_RECIPE,
        settings=RECIPE_SETTINGS,
        around=package_index(slow_index),
        limit_s=PATIENCE_S,
    ),
    replace(
        NO_IMAGE,
        name="the registry is down",
        around=registry(None),
        evidence=(on_stages.platform_failed(f"{NOT_PULLED}connection refused…"),),
    ),
    replace(
        NO_IMAGE,
        name="the registry answers with status 500",
        around=registry(error),
        evidence=(on_stages.platform_failed(f"{NOT_PULLED}HTTP status: 500 …"),),
    ),
    replace(
        NO_IMAGE,
        name="the registry answers with garbage",
        around=registry(garbage),
        evidence=(on_stages.platform_failed(f"{NOT_PULLED}malformed HTTP …"),),
    ),
    replace(
        NO_IMAGE,
        name="the registry cuts every connection",
        around=registry(lambda _: b""),
        evidence=(on_stages.platform_failed(f"{NOT_PULLED}: EOF…"),),
    ),
)
