"""Network settings of the site: ``network:`` sections and environment become a NetworkPlan."""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ci.errors import ConfigError
from ci.model.plan import CONTAINER_CA_BUNDLE, NetworkPlan
from ci.plan.config import NetworkConfig
from ci.util.process import ProcessError, run

WHEELHOUSE_PORT = 8421
LOOPBACK = "127.0.0.1"

# Where each setting is found in the environment, in order of precedence.
VARIABLES: Mapping[str, tuple[str, ...]] = {
    "pip_index_url": ("PIP_INDEX_URL",),
    "pip_extra_index_url": ("PIP_EXTRA_INDEX_URL",),
    "pip_trusted_host": ("PIP_TRUSTED_HOST",),
    "pip_find_links": ("PIP_FIND_LINKS",),
    "ca_bundle": ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"),
    "http_proxy": ("HTTP_PROXY", "http_proxy"),
    "https_proxy": ("HTTPS_PROXY", "https_proxy"),
    "no_proxy": ("NO_PROXY", "no_proxy"),
}


def resolve_network(
    environ: Mapping[str, str], *sections: NetworkConfig, folder: Path
) -> NetworkPlan:
    """Merge the environment and the ``network:`` sections, first come first served.

    ``folder`` is what relative paths in the sections are relative to.
    """
    settings = network_settings(environ, *sections)
    bundle = _ca_bundle(settings["ca_bundle"], folder)
    links, wheelhouse = _find_links(settings["pip_find_links"], folder)
    port = next((s.wheelhouse_port for s in sections if s.wheelhouse_port), WHEELHOUSE_PORT)
    served = f"http://{LOOPBACK}:{port}/"
    common = _pip_variables(settings) | _proxy_variables(settings)
    return NetworkPlan(
        environment=common
        | _links_variable([*links, served] if wheelhouse else links)
        | _ca_variables(CONTAINER_CA_BUNDLE if bundle else None)
        | (_no_proxy_variables(settings) if wheelhouse else {}),
        host_environment=common
        | _links_variable([*links, str(wheelhouse)] if wheelhouse else links)
        | _ca_variables(str(bundle) if bundle else None),
        ca_bundle=bundle,
        wheelhouse=wheelhouse,
        wheelhouse_port=port if wheelhouse else None,
    )


def network_settings(environ: Mapping[str, str], *sections: NetworkConfig) -> dict[str, str | None]:
    """Return every setting but the port: of the environment, else of the first section."""
    return {name: _setting(name, environ, sections) for name in VARIABLES}


def _setting(
    name: str, environ: Mapping[str, str], sections: tuple[NetworkConfig, ...]
) -> str | None:
    values = [environ.get(variable) for variable in VARIABLES[name]]
    values += [getattr(section, name) for section in sections]
    return next((value for value in values if value), None)


def _pip_variables(settings: Mapping[str, str | None]) -> dict[str, str]:
    names = ("pip_index_url", "pip_extra_index_url", "pip_trusted_host")
    return {name.upper(): value for name in names if (value := settings[name])}


def _proxy_variables(settings: Mapping[str, str | None]) -> dict[str, str]:
    # Both spellings: curl reads only http_proxy, some tools only HTTP_PROXY.
    variables: dict[str, str] = {}
    for name in ("http_proxy", "https_proxy", "no_proxy"):
        if value := settings[name]:
            variables |= {name: value, name.upper(): value}
    return variables


def _no_proxy_variables(settings: Mapping[str, str | None]) -> dict[str, str]:
    """The served wheelhouse is on loopback, which no proxy can reach."""
    if not (settings["http_proxy"] or settings["https_proxy"]):
        return {}
    value = ",".join(filter(None, (settings["no_proxy"], LOOPBACK)))
    return {"no_proxy": value, "NO_PROXY": value}


def _links_variable(links: list[str]) -> dict[str, str]:
    return {"PIP_FIND_LINKS": " ".join(links)} if links else {}


def _ca_variables(path: str | None) -> dict[str, str]:
    names = ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")
    return dict.fromkeys(names, path) if path else {}


def _ca_bundle(value: str | None, folder: Path) -> Path | None:
    if value is None:
        return None
    path = folder / value
    if not path.is_file():
        remedy = "Correct ca_bundle, or the variable PIP_CERT or SSL_CERT_FILE."
        raise ConfigError(f"network.ca_bundle: got '{value}', expected a PEM file", remedy=remedy)
    return path


def _find_links(value: str | None, folder: Path) -> tuple[list[str], Path | None]:
    """Split into addresses that a container reaches by itself and a folder to serve."""
    links: list[str] = []
    folders: list[Path] = []
    for word in (value or "").split():
        path = folder / (unquote(urlsplit(word).path) if word.startswith("file:") else word)
        if path.is_dir():
            folders.append(path)
        elif path.exists() or _is_address(word):
            links.append(word)
        else:
            remedy = "Correct pip_find_links, or the variable PIP_FIND_LINKS."
            message = f"network.pip_find_links: got '{word}', expected a folder or an address"
            raise ConfigError(message, remedy=remedy)
    if len(folders) > 1:
        names = ", ".join(map(str, folders))
        raise ConfigError(f"network.pip_find_links: got {names}, expected at most one folder")
    return links, folders[0] if folders else None


def _is_address(word: str) -> bool:
    return "://" in word and not word.startswith("file:")


FIELDS: Mapping[str, str] = {
    "index-url": "pip_index_url",
    "extra-index-url": "pip_extra_index_url",
    "trusted-host": "pip_trusted_host",
    "find-links": "pip_find_links",
    "cert": "ca_bundle",
}
TIMEOUT_S = 30


def read_pip_settings() -> NetworkConfig:
    """Ask this Python's pip; empty where it has none."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    try:
        return parse_pip_settings(run(command, timeout_s=TIMEOUT_S).stdout)
    except ProcessError:
        return NetworkConfig()


def parse_pip_settings(listing: str) -> NetworkConfig:
    """Parse ``pip config list``: lines such as ``global.index-url='https://…'``.

    Environment variables are listed too, but read elsewhere. Indexes that are folders of
    this machine are left out: a container cannot see them.
    """
    found: dict[str, str] = {}
    for line in listing.splitlines():
        key, _, literal = line.partition("=")
        section, _, option = key.partition(".")
        field = FIELDS.get(option)
        if field is None or section not in ("global", "install"):
            continue
        words = str(ast.literal_eval(literal)).split()
        if field.endswith("index_url"):
            words = [word for word in words if not word.startswith("file:")]
        if words:
            found[field] = " ".join(words)
    return NetworkConfig.model_validate(found)
