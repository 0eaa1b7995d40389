"""pip's own configuration files as a source of site settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from ci.plan.config import NetworkConfig
from ci.plan.network import parse_pip_settings, read_pip_settings, resolve_network

# As pip 26 prints it.
LISTING = """\
:env:.find-links='/from/the/environment'
global.cert='/etc/ssl/site.pem'
global.extra-index-url='\\nhttps://one.example/simple\\nfile:///opt/two/simple'
global.index-url='https://user:secret@mirror.example/simple'
global.timeout='60'
install.find-links='/srv/wheels'
"""


def test_a_listing() -> None:
    assert parse_pip_settings(LISTING) == NetworkConfig(
        ca_bundle="/etc/ssl/site.pem",
        pip_extra_index_url="https://one.example/simple",
        pip_index_url="https://user:secret@mirror.example/simple",
        pip_find_links="/srv/wheels",
    )


def test_an_index_that_is_a_folder_of_this_machine_is_no_setting() -> None:
    assert parse_pip_settings("global.extra-index-url='file:///opt/simple'\n") == NetworkConfig()


def test_pip_itself_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "pip.conf"
    file.write_text("[global]\nindex-url = https://mirror.example/simple\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(file))
    assert read_pip_settings().pip_index_url == "https://mirror.example/simple"


def test_it_is_the_last_to_be_asked(tmp_path: Path) -> None:
    pip = NetworkConfig(pip_index_url="https://pip/", pip_trusted_host="pip")
    config = NetworkConfig(pip_index_url="https://config/")
    network = resolve_network({}, config, pip, folder=tmp_path)
    assert network.environment == {"PIP_INDEX_URL": "https://config/", "PIP_TRUSTED_HOST": "pip"}
