"""pip's own configuration files as a source of site settings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from ci.plan.config import NetworkConfig
from ci.plan.network import FIELDS, pip_variables, read_pip_settings, resolve_network, with_folders

HOME = ".config/pip/pip.conf"
SETTINGS = {
    "a mirror with a password": {HOME: "[global]\nindex-url = https://user:secret@mirror/simple\n"},
    "several lines": {HOME: "[global]\nextra-index-url =\n  https://one/simple\n  https://two\n"},
    "install before global": {
        HOME: "[install]\nfind-links = /install\n[global]\nfind-links = /global\n"
    },
    "another command": {HOME: "[download]\nindex-url = https://download/\n"},
    "names as in variables": {HOME: "[global]\ntrusted_host = mirror\n--cert = /site.pem\n"},
    "the older file of a user": {".pip/pip.conf": "[global]\ncert = /old.pem\n"},
    "the newer one counts": {
        ".pip/pip.conf": "[global]\ncert = /old.pem\ntrusted-host = old\n",
        HOME: "[global]\ncert = /new.pem\n",
    },
    "that of the machine": {
        "xdg/pip/pip.conf": "[global]\ncert = /machine.pem\ntrusted-host = machine\n",
        HOME: "[global]\ncert = /home.pem\n",
    },
    "a named file": {
        "named.conf": "[global]\ncert = /named.pem\n",
        HOME: "[global]\ncert = /home.pem\ntrusted-host = home\n",
    },
    "a percent sign": {HOME: "[global]\nindex-url = https://a%%40b:%(x)s@mirror/\n"},
    "a proxy and a timeout": {HOME: "[global]\nproxy = proxy:1\n[install]\ntimeout = 60\n"},
    "nothing": {},
}


# `pip config list` has a line for each file, and does not say which of them counts.
ASK_PIP = """
import json
from pip._internal.configuration import Configuration
configuration = Configuration(isolated=False)
configuration.load()
files = configuration._dictionary.values()  # the last one counts
print(json.dumps({key: value for file in files for key, value in file.items()}))
"""


def settings_of_pip(environ: Mapping[str, str]) -> NetworkConfig:
    """The settings that pip itself works with."""
    finished = subprocess.run(
        [sys.executable, "-c", ASK_PIP], env=environ, capture_output=True, text=True, check=True
    )
    found: dict[str, str | float | None] = {}
    for key, value in sorted(json.loads(finished.stdout).items()):
        section, _, option = key.partition(".")
        if section in ("global", "install") and option in FIELDS:
            words = [word for word in value.split() if not word.startswith("file:")]
            found[FIELDS[option]] = float(value) if option == "timeout" else " ".join(words) or None
    return NetworkConfig.model_validate(found)


@pytest.mark.parametrize("files", SETTINGS.values(), ids=SETTINGS)
def test_pip_says_the_same(files: Mapping[str, str], tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    environ = {"HOME": str(tmp_path), "XDG_CONFIG_DIRS": str(tmp_path / "xdg")}
    if "named.conf" in files:
        environ["PIP_CONFIG_FILE"] = str(tmp_path / "named.conf")
    assert read_pip_settings(environ) == settings_of_pip(environ)


def test_no_file_is_read_if_none_is_wanted(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "PIP_CONFIG_FILE": os.devnull}
    (tmp_path / ".pip").mkdir()
    (tmp_path / ".pip" / "pip.conf").write_text("[global]\ncert = /old.pem\n")
    assert read_pip_settings(environ) == settings_of_pip(environ) == NetworkConfig()


@pytest.mark.parametrize("text", [b"no section\n", b"\xff\xfe", b"[global]\ncert\n"])
def test_a_file_that_pip_cannot_read_has_no_settings(text: bytes, tmp_path: Path) -> None:
    """Its message is that of the stage that runs pip."""
    (tmp_path / "pip.conf").write_bytes(text)
    environ = {"PIP_CONFIG_FILE": str(tmp_path / "pip.conf")}
    assert read_pip_settings(environ) == NetworkConfig()


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        ("extra-index-url = file:///opt/simple", "pip_extra_index_url", None),  # not in a container
        ("no-index = true", "pip_no_index", True),
    ],
)
def test_settings_that_pip_has_in_another_form(
    tmp_path: Path, line: str, field: str, value: object
) -> None:
    (tmp_path / "pip.conf").write_text(f"[global]\n{line}\n[install]\n")
    environ = {"HOME": str(tmp_path), "PIP_CONFIG_FILE": str(tmp_path / "pip.conf")}
    assert getattr(read_pip_settings(environ), field) is value


def test_it_is_the_last_to_be_asked(tmp_path: Path) -> None:
    pip = NetworkConfig(pip_index_url="https://pip/", pip_trusted_host="pip")
    config = NetworkConfig(pip_index_url="https://config/")
    network = resolve_network({}, config, pip, folder=tmp_path)
    assert network.environment == {"PIP_INDEX_URL": "https://config/", "PIP_TRUSTED_HOST": "pip"}


def test_a_fresh_environment_has_only_settings_of_the_network(tmp_path: Path) -> None:
    file = tmp_path / "pip.conf"
    file.write_text(
        "[global]\nuser = true\nextra-index-url =\n  https://one/simple\n  file:///opt/simple\n"
        "use-feature = fast-deps truststore\nretries = 9\ncache-dir = /a folder\n"
        "[install]\ntarget = /opt/packages\nno-deps = true\nkeyring-provider = subprocess\n"
    )
    others = ["TARGET", "PREFIX", "ROOT", "USER", "DRY_RUN", "REQUIRE_VIRTUALENV", "NO_DEPS"]
    others += ["ONLY_BINARY", "NO_BINARY", "CONSTRAINT", "REQUIREMENT", "LOG", "PYTHON", "PRE"]
    environ = {
        **{f"PIP_{name}": "1" for name in others},
        "PIP_INDEX_URL": "https://two/",
        "PIP_RETRIES": "2",
        "PIP_CONFIG_FILE": str(file),
        "PIP_PASSWORD": "secret",
        "HOME": str(tmp_path),
        "OTHER": "1",
    }
    variables = pip_variables(environ)
    variables.pop("PIP_CERT", None)  # of this machine
    assert variables == {
        "PIP_INDEX_URL": "https://two/",
        "PIP_EXTRA_INDEX_URL": "https://one/simple file:///opt/simple",
        "PIP_USE_FEATURE": "truststore",
        "PIP_RETRIES": "2",
        "PIP_CACHE_DIR": "/a folder",
        "PIP_KEYRING_PROVIDER": "subprocess",
        "PIP_CONFIG_FILE": os.devnull,
    }
    network = resolve_network(environ, read_pip_settings(environ), folder=tmp_path)
    assert network.host_environment["PIP_EXTRA_INDEX_URL"] == "https://one/simple"
    here = with_folders(network.host_environment, variables)
    assert here["PIP_EXTRA_INDEX_URL"] == variables["PIP_EXTRA_INDEX_URL"]
    other = {"PIP_EXTRA_INDEX_URL": "https://three/"}  # of a site file, which counts
    assert with_folders(other, variables) == other
