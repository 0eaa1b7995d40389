"""What the Docker SDK raises, and what may be said of it."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager

from docker.errors import APIError, DockerException, StreamParseError
from urllib3.exceptions import HTTPError

from ci.engines.base import typed_errors

# What the SDK lets through when the connection is cut, beside its own errors.
ERRORS = (DockerException, StreamParseError, HTTPError, OSError)

_QUERY = re.compile(r"(?<=\?)\S+")


def explain(error: Exception) -> str:
    """Say why a request failed, without its query: of a build, that holds all arguments."""
    if isinstance(error, APIError) and error.explanation:
        return str(error.explanation)
    return _QUERY.sub("…", str(error))


def typed_sdk_errors() -> AbstractContextManager[None]:
    """Turn errors of the SDK, the connection and the disk into typed ones."""
    remedy = "look at `docker info` and the engine's log, then run again"
    return typed_errors("the run on the Docker Engine", *ERRORS, remedy=remedy, explain=explain)
