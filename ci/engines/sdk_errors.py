"""What the Docker SDK raises, and what may be said of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from docker.errors import APIError, DockerException, StreamParseError
from urllib3.exceptions import HTTPError

from ci.engines.base import typed_errors
from ci.errors import InfrastructureError
from ci.invocation import command

# What the SDK lets through when the connection is cut, beside its own errors.
ERRORS = (DockerException, StreamParseError, HTTPError, OSError)

_QUERY = re.compile(r"(?<=\?)\S+")
_FULL = re.compile("no space left on device|disk quota exceeded", re.IGNORECASE)


def explain(error: Exception) -> str:
    """Say why a request failed, without its query: of a build, that holds all arguments."""
    if isinstance(error, APIError) and error.explanation:
        return str(error.explanation)
    return _QUERY.sub("…", str(error))


def is_cut(error: Exception) -> bool:
    """Tell a lost connection from an answer of the engine, and from trouble of this machine."""
    if isinstance(error, APIError):
        return False
    # What the SDK's libraries raise is an OSError without a number.
    local = isinstance(error, OSError) and error.errno is not None
    return not local or isinstance(error, ConnectionError)


@contextmanager
def typed_sdk_errors(place: str) -> Iterator[None]:
    """Turn errors of the SDK, the connection and the disk into typed ones."""
    remedy = "look at `docker info` and the engine's log, then run again"
    try:
        with typed_errors(f"the run on {place}", *ERRORS, remedy=remedy, explain=explain):
            yield
    except InfrastructureError as error:
        if not _FULL.search(str(error)):
            raise
        here = isinstance(error.__cause__, OSError) and error.__cause__.errno is not None
        machine = "this machine" if here else place
        raise InfrastructureError(
            f"the disk of {machine} is full: {error}",
            remedy=f"make room: {command('gc')} removes what earlier runs have left",
        ) from error
