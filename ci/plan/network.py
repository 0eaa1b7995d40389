"""Merge network settings into a ``NetworkPlan``.

Sources: the environment, ``network:`` sections and pip's own configuration.
"""

from __future__ import annotations

import os
import re
import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from configparser import Error as ConfigParserError
from configparser import RawConfigParser
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ci.errors import ConfigError
from ci.model.plan import CONTAINER_CA_BUNDLE, CONTAINER_WHEELS, WHEELHOUSE_URL, NetworkPlan
from ci.plan.config import NetworkConfig
from ci.protocol.job import NETRC
from ci.util.redaction import CREDENTIALS

# The variables of each setting. The first one that is set counts. All of them are set for stages,
# since curl reads only http_proxy and some tools only HTTP_PROXY.
VARIABLES: Mapping[str, tuple[str, ...]] = {
    "pip_index_url": ("PIP_INDEX_URL",),
    "pip_extra_index_url": ("PIP_EXTRA_INDEX_URL",),
    "pip_trusted_host": ("PIP_TRUSTED_HOST",),
    "http_proxy": ("HTTP_PROXY", "http_proxy"),
    "https_proxy": ("HTTPS_PROXY", "https_proxy"),
    "no_proxy": ("NO_PROXY", "no_proxy"),
    "pip_find_links": ("PIP_FIND_LINKS",),
    "pip_no_index": ("PIP_NO_INDEX",),
    "pip_proxy": ("PIP_PROXY",),
    "pip_timeout": ("PIP_TIMEOUT", "PIP_DEFAULT_TIMEOUT"),
    "ca_bundle": ("PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"),
}
PROXIES = ("http_proxy", "https_proxy", "pip_proxy")
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
TRUE = ("y", "yes", "t", "true", "on", "1")  # to pip


def resolve_network(
    environ: Mapping[str, str], *sections: NetworkConfig, folder: Path
) -> NetworkPlan:
    """Merge the environment and the ``network:`` sections; for each setting the first value counts.

    Relative paths in the sections are relative to ``folder``.
    """
    settings = network_settings(environ, *sections)
    if settings["http_proxy"] or settings["https_proxy"]:
        settings["no_proxy"] = _with_loopback(settings["no_proxy"])
    bundle = folder / settings["ca_bundle"] if settings["ca_bundle"] else None
    if bundle and not bundle.is_file():
        got = f"got '{settings['ca_bundle']}', expected a PEM file"
        remedy = "Correct ca_bundle, or the variable PIP_CERT or SSL_CERT_FILE."
        raise ConfigError(f"network.ca_bundle: {got}", remedy=remedy)
    links, wheelhouse = _find_links(settings["pip_find_links"], folder)
    here = {
        **settings,
        "pip_find_links": " ".join([*links, *([folder_word(wheelhouse)] if wheelhouse else [])]),
        "ca_bundle": str(bundle) if bundle else None,
    }
    inside = {**here, "ca_bundle": CONTAINER_CA_BUNDLE if bundle else None}
    in_builds: dict[str, str | None] = {}
    if wheelhouse:
        inside["pip_find_links"] = " ".join([*links, CONTAINER_WHEELS])
        in_builds["pip_find_links"] = " ".join([*links, WHEELHOUSE_URL])
    # A folder of links is another address in a container.
    addresses = {**settings, "pip_find_links": " ".join(links)}
    public = {name: CREDENTIALS.sub("", value or "") for name, value in addresses.items()}
    public = {name: value for name, value in public.items() if value != (addresses[name] or "")}
    bare = {name: CREDENTIALS.sub("", value or "") for name, value in inside.items()}
    return NetworkPlan(
        environment=_environment(bare),
        credentials=_credentials(inside, _environment(bare)),
        build_environment=_environment({**inside, **in_builds}),
        host_environment=_environment(here),
        without_credentials=_environment(public),
        ca_bundle=bundle,
        wheelhouse=wheelhouse,
    )


def _with_loopback(no_proxy: str | None) -> str:
    """Add this machine's own addresses: no proxy reaches the servers of tests and of builds."""
    words = [word.strip() for word in (no_proxy or "").split(",") if word.strip()]
    added = () if "*" in words else LOOPBACK_NAMES
    return ",".join(dict.fromkeys([*words, *added]))


def loopback_notes(environment: Mapping[str, str]) -> list[str]:
    """Return the note on the proxies of a container whose addresses mean itself."""
    variables = [VARIABLES[field][0] for field in PROXIES]
    found = {environment[it]: it for it in variables if _loopback(environment.get(it, ""))}
    return [
        f"{variable} is a proxy on {_loopback(proxy)}, which in a container means the container:"
        " let the proxy listen on an address that containers reach, such as that of docker0, and"
        f" name it in {variable}"
        for proxy, variable in found.items()
    ]


def _loopback(proxy: str) -> str | None:
    """Return the host of a proxy that is on the machine itself; ``None``: it is elsewhere."""
    try:
        host = urlsplit(proxy if "://" in proxy else f"//{proxy}").hostname or ""
        return host if host == "localhost" or ip_address(host).is_loopback else None
    except ValueError:  # a name, or no address at all
        return None


def network_settings(environ: Mapping[str, str], *sections: NetworkConfig) -> dict[str, str | None]:
    """Return every setting: the environment's, else the first section's."""
    found: dict[str, str | None] = {}
    for name, variables in VARIABLES.items():
        values = [environ.get(variable) for variable in variables]
        values += [_text(getattr(section, name)) for section in sections]
        found[name] = next(filter(None, values), None)
    return found


def _text(value: str | float | None) -> str | None:
    """Return a setting as pip reads it from a variable."""
    return value if value is None or isinstance(value, str) else f"{float(value):g}"


def is_without_index(environment: Mapping[str, str]) -> bool:
    """Return whether pip uses no index."""
    return environment.get("PIP_NO_INDEX", "").lower() in TRUE


def _environment(settings: Mapping[str, str | None]) -> dict[str, str]:
    return {
        variable: value for name, value in settings.items() if value for variable in VARIABLES[name]
    }


# The settings whose passwords pip also finds in the file that the variable NETRC names. Those of
# proxies it finds only in the address.
READ_BY_PIP = ("pip_index_url", "pip_extra_index_url", "pip_find_links")
# Words that all versions of Python's netrc module read alike: without quotes, backslashes and the
# sign of a comment.
NETRC_WORD = re.compile(r"[A-Za-z0-9!$%&()*+,./:;<=>?@^_`{|}~\[\]-]+")


def _credentials(settings: Mapping[str, str | None], without: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that hold passwords, which are in a netrc file if pip can read it."""
    netrc, hosts = _netrc(settings[name] for name in READ_BY_PIP)
    in_file = {name: _without_passwords(settings[name], hosts) for name in READ_BY_PIP}
    variables = _environment({**settings, **in_file}).items()
    found = {name: value for name, value in variables if value != without[name]}
    return {**found, **({NETRC: netrc} if netrc else {})}


def _netrc(settings: Iterable[str | None]) -> tuple[str, set[str]]:
    """Return a netrc file, in one line, with the passwords in lists of addresses, and its hosts.

    Left out are hosts with several passwords, and words that not every Python can read back.
    """
    found: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
    for word in " ".join(filter(None, settings)).split():
        if match := CREDENTIALS.search(word):
            user, _, password = match["credentials"].partition(":")
            host = urlsplit(CREDENTIALS.sub("", word)).hostname or ""
            found[host].add((unquote(user), unquote(password)))
    lines = {
        host: f"machine {host} login {user} password {password}"
        for host, [(user, password), *others] in sorted(found.items())
        if not others and ":" not in host and all(map(NETRC_WORD.fullmatch, (host, user, password)))
    }
    return " ".join(lines.values()), set(lines)


def _without_passwords(addresses: str | None, hosts: Collection[str]) -> str | None:
    """Remove the passwords for ``hosts`` from a list of addresses."""
    words = []
    for word in (addresses or "").split():
        bare = CREDENTIALS.sub("", word)
        words.append(bare if urlsplit(bare).hostname in hosts else word)
    return " ".join(words) or None


def _find_links(value: str | None, folder: Path) -> tuple[list[str], Path | None]:
    """Split into addresses that a container can reach, and a folder to serve to it."""
    links: list[str] = []
    folders: list[Path] = []
    for word in (value or "").split():
        path = folder / (unquote(urlsplit(word).path) if word.startswith("file:") else word)
        if path.is_dir():
            folders.append(path)
        elif path.exists() or ("://" in word and not word.startswith("file:")):
            links.append(word)
        else:
            remedy = "Correct pip_find_links, or the variable PIP_FIND_LINKS."
            message = f"network.pip_find_links: got '{word}', expected a folder or an address"
            raise ConfigError(message, remedy=remedy)
    if len(folders) > 1:
        names = ", ".join(map(str, folders))
        raise ConfigError(f"network.pip_find_links: got {names}, expected at most one folder")
    return links, folders[0] if folders else None


def folder_word(folder: Path) -> str:
    """Return a folder as a word of pip's lists, which are separated by spaces."""
    return folder.as_uri() if re.search(r"\s", str(folder)) else str(folder)


# pip's options, and the names of the settings here.
FIELDS: Mapping[str, str] = {
    "index-url": "pip_index_url",
    "extra-index-url": "pip_extra_index_url",
    "trusted-host": "pip_trusted_host",
    "find-links": "pip_find_links",
    "no-index": "pip_no_index",
    "cert": "ca_bundle",
    "proxy": "pip_proxy",
    "timeout": "pip_timeout",
    "default-timeout": "pip_timeout",
}
# What else of pip's settings is about the network, or speeds it up, and means something on this
# machine only. No other setting may change what a fresh environment gets: `user`, `target`.
ON_THIS_MACHINE = (
    *("client-cert", "keyring-provider", "no-input", "no-proxy-env", "retries", "resume-retries"),
    *("cache-dir", "no-cache-dir", "disable-pip-version-check"),
)


# Features that are about certificates.
FEATURES: Mapping[str, str] = {"use-feature": "truststore", "use-deprecated": "legacy-certs"}


def read_pip_settings(environ: Mapping[str, str]) -> NetworkConfig:
    """Read the settings of this Python's pip; empty if it can't read its own files.

    Indexes in folders of this machine are left out: a container cannot reach them.
    """
    found: dict[str, str | bool | float] = {}
    for option, value in _pip_options(environ).items():
        field = FIELDS.get(option)
        if field == "pip_no_index":
            found[field] = value.lower() in TRUE
        elif field == "pip_timeout":
            if value.isdecimal() and float(value):
                found[field] = float(value)
        elif field and (text := _without_folders(value) if "index" in field else value):
            found[field] = text
    return NetworkConfig.model_validate(found)


def pip_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return what pip is to know on this machine, as variables: it then reads no file.

    Kept is what variables and files of ``environ`` say about the network. Anything else, as
    ``user`` or ``target``, is for other environments than a fresh one.
    """
    variables = {name: value for name, value in environ.items() if name.startswith("PIP_")}
    spelled = {_option(name.removeprefix("PIP_")): value for name, value in variables.items()}
    found = {}
    for option, value in {**_pip_options(environ), **spelled}.items():
        if feature := FEATURES.get(option):
            kept = feature if feature in value.split() else ""
        else:
            kept = value if option in (*FIELDS, *ON_THIS_MACHINE) else ""
        if kept:
            found[f"PIP_{option.upper().replace('-', '_')}"] = kept
    return {**found, "PIP_CONFIG_FILE": os.devnull}


def with_folders(network: Mapping[str, str], variables: Mapping[str, str]) -> dict[str, str]:
    """Return network variables for this machine, with its indexes in folders.

    ``variables`` are those of pip here. Where the network has other indexes, it counts.
    """
    names = (*VARIABLES["pip_index_url"], *VARIABLES["pip_extra_index_url"])
    indexes = {name: variables[name] for name in names if name in variables}
    same = {
        name: value
        for name, value in indexes.items()
        if _without_folders(value) == network.get(name, "")
    }
    return {**network, **same}


def _without_folders(indexes: str) -> str:
    return " ".join(word for word in indexes.split() if not word.startswith("file:"))


def _option(name: str) -> str:
    """Return the name of an option as on the command line."""
    return name.lower().replace("_", "-").removeprefix("--")


def _pip_options(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the options of `pip install` in pip's files, which `pip config` prints in 0.3 s.

    Source: pip's documentation on its configuration, of version 26.
    """
    parser = RawConfigParser()
    try:
        parser.read(_pip_files(environ))
        sections = [parser.items(it) for it in ("global", "install") if parser.has_section(it)]
    except (ConfigParserError, OSError, UnicodeDecodeError):
        return {}
    return {
        _option(option): " ".join(value.split("\n")).strip()
        for section in sections
        for option, value in section
        if value
    }


def _pip_files(environ: Mapping[str, str]) -> list[Path]:
    """Return where pip looks for its settings; the last of several values counts."""
    named = environ.get("PIP_CONFIG_FILE")
    if named == os.devnull:
        return []
    home = Path(environ.get("HOME") or Path.home())
    shared = (environ.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(os.pathsep)
    folders = [*(Path(folder, "pip") for folder in shared), Path("/etc")]
    if not (named and Path(named).exists()):
        folders += [home / ".pip", Path(environ.get("XDG_CONFIG_HOME") or home / ".config", "pip")]
    files = [folder / "pip.conf" for folder in (*folders, Path(sys.prefix))]
    return [*files, Path(named)] if named else files
