"""Where a Docker Engine is: as a plan says, else as the docker command would find it.

The order is the docker command's own: DOCKER_HOST, DOCKER_CONTEXT, the current context, and
the local socket (https://docs.docker.com/engine/manage-resources/contexts/).
"""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from docker.errors import TLSParameterError
from docker.tls import TLSConfig
from docker.utils import kwargs_from_env

from ci.errors import ConfigError
from ci.plan import EnginePlan
from ci.text import near_match

LOCAL = "unix:///var/run/docker.sock"
DEFAULT_CONTEXT = "default"  # no context, that is


@dataclass(frozen=True, kw_only=True)
class EngineAddress:
    """How an engine is reached, and how the docker command is told so.

    ``named_by`` is who named it; ``None`` is nobody: the local socket.
    """

    url: str
    environment: Mapping[str, str]
    named_by: str | None = None
    tls: TLSConfig | None = field(default=None, repr=False)


def find_address(plan: EnginePlan, environ: Mapping[str, str]) -> EngineAddress:
    """Return the address of the plan's engine; raises ``ConfigError`` for an unknown context."""
    if plan.docker_host is not None:
        return _by_url(plan.docker_host, environ, f"engine {plan.name}")
    if plan.context is not None:
        return _by_context(plan.context, environ, f"engine {plan.name}")
    if url := environ.get("DOCKER_HOST"):
        return _by_url(url, environ, "DOCKER_HOST")
    folder = _configuration(environ)
    if name := environ.get("DOCKER_CONTEXT"):
        return _by_context(name, environ, "DOCKER_CONTEXT")
    if name := _read(folder / "config.json").get("currentContext"):
        return _by_context(name, environ, f"currentContext of {folder / 'config.json'}")
    return EngineAddress(url=LOCAL, environment={})


def _by_url(url: str, environ: Mapping[str, str], named_by: str) -> EngineAddress:
    # The variables speak of TCP; the SDK would look for their files whatever the address is.
    try:
        tls = kwargs_from_env(environ).get("tls") if url.startswith("tcp://") else None
    except TLSParameterError as error:
        remedy = "Correct DOCKER_CERT_PATH, or unset it and DOCKER_TLS_VERIFY."
        raise ConfigError(f"{named_by}: {error}", remedy=remedy) from error
    return EngineAddress(url=url, environment={"DOCKER_HOST": url}, named_by=named_by, tls=tls)


def _by_context(name: str, environ: Mapping[str, str], named_by: str) -> EngineAddress:
    if name == DEFAULT_CONTEXT:
        return EngineAddress(url=LOCAL, environment={"DOCKER_HOST": LOCAL})
    # Not by the SDK: without a config.json, which only a login or `docker context use` makes,
    # it finds no context.
    store = _configuration(environ) / "contexts"
    known = {
        str(found["Name"]): found
        for path in store.glob("meta/*/meta.json")
        if (found := _read(path))
    }
    if name not in known:
        names = ", ".join([DEFAULT_CONTEXT, *sorted(known)])
        raise ConfigError(
            f"{named_by}: unknown Docker context '{name}', expected one of {names}"
            + near_match(name, known),
            remedy=f"docker context create {name} --docker host=ssh://USER@HOST",
        )
    endpoint = known[name]["Endpoints"]["docker"]
    return EngineAddress(
        url=endpoint["Host"],
        environment={"DOCKER_CONTEXT": name, "DOCKER_HOST": ""},  # the latter would win
        named_by=f"context {name}",
        tls=_context_tls(store / "tls" / sha256(name.encode()).hexdigest() / "docker", endpoint),
    )


def _context_tls(folder: Path, endpoint: Mapping[str, Any]) -> TLSConfig | None:
    if not folder.is_dir():
        return None
    certificate, key, authority = (
        str(path) if (path := folder / name).exists() else None
        for name in ("cert.pem", "key.pem", "ca.pem")
    )
    return TLSConfig(
        client_cert=(certificate, key) if certificate and key else None,
        ca_cert=authority,
        verify=not endpoint.get("SkipTLSVerify", False),
    )


def _configuration(environ: Mapping[str, str]) -> Path:
    """Where the docker command keeps its settings."""
    return Path(environ.get("DOCKER_CONFIG") or Path.home() / ".docker")


def _read(path: Path) -> Mapping[str, Any]:
    """Read a file of the docker command; one that is not there says nothing."""
    try:
        content: Mapping[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: {error}", remedy="Correct or remove the file.") from error
    return content


def is_here(info: Mapping[str, Any]) -> bool:
    """Tell whether an engine is this machine's own: by name, and where it says its files are."""
    return bool(info["Name"] == socket.gethostname() and Path(info["DockerRootDir"]).exists())
