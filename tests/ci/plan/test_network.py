"""Site settings: precedence, the view from inside a container, credentials."""

from __future__ import annotations

from netrc import netrc
from pathlib import Path
from urllib.parse import quote

import pytest

from ci.errors import ConfigError
from ci.model.plan import CONTAINER_CA_BUNDLE
from ci.plan.config import NetworkConfig
from ci.plan.network import is_without_index, loopback_notes, resolve_network
from ci.util.text import mask_credentials


def test_environment_before_site_before_configuration(tmp_path: Path) -> None:
    site = NetworkConfig(pip_index_url="https://site/", http_proxy="http://site:1")
    config = NetworkConfig(pip_index_url="https://config/", http_proxy="x", no_proxy="a")
    environ = {"PIP_INDEX_URL": "https://environment/", "NO_PROXY": ""}
    network = resolve_network(environ, site, config, folder=tmp_path)
    assert network.environment == {
        "PIP_INDEX_URL": "https://environment/",
        "http_proxy": "http://site:1",
        "HTTP_PROXY": "http://site:1",
        "no_proxy": "a,localhost,127.0.0.1,::1",
        "NO_PROXY": "a,localhost,127.0.0.1,::1",
    }
    assert network.host_environment == network.environment


@pytest.mark.parametrize("spelling", ["HTTPS_PROXY", "https_proxy"])
def test_proxies_in_both_spellings(tmp_path: Path, spelling: str) -> None:
    network = resolve_network({spelling: "http://p:1", "no_proxy": "*"}, folder=tmp_path)
    both = dict.fromkeys(("https_proxy", "HTTPS_PROXY"), "http://p:1")
    assert network.environment == {**both, **dict.fromkeys(("no_proxy", "NO_PROXY"), "*")}


OWN_ADDRESSES = ("localhost", "127.0.0.1", "::1")


@pytest.mark.parametrize("named", ["", "::1, a.example ,localhost"])
def test_no_proxy_reaches_servers_of_the_machine_itself(tmp_path: Path, named: str) -> None:
    environ = {"http_proxy": "http://p:1", "no_proxy": named}
    network = resolve_network(environ, folder=tmp_path)
    words = network.environment["no_proxy"].split(",")
    assert sorted(words) == sorted({*OWN_ADDRESSES, *(["a.example"] * bool(named))})
    assert network.environment["NO_PROXY"] == network.host_environment["no_proxy"]
    assert network.build_environment["no_proxy"] == network.environment["no_proxy"]
    bare = resolve_network({"no_proxy": named}, folder=tmp_path)
    assert bare.environment.get("no_proxy", "") == named


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "127.1.2.3"])
def test_a_proxy_on_loopback_is_noted(tmp_path: Path, host: str) -> None:
    proxy = f"http://me:s3cret@{host}:3128"
    environ = {"HTTP_PROXY": proxy, "https_proxy": proxy, "PIP_PROXY": f"me:s3cret@{host}:8080"}
    network = resolve_network(environ, folder=tmp_path)
    both, pips = loopback_notes(network.environment)
    means = "which in a container means the container: let the proxy listen on an address that"
    shown = host.strip("[]")
    assert both.startswith(f"HTTPS_PROXY is a proxy on {shown}, {means}")
    assert pips.startswith(f"PIP_PROXY is a proxy on {shown}, {means}")


def test_other_proxies_are_not_noted(tmp_path: Path) -> None:
    environ = {"HTTP_PROXY": "http://127.example:1", "https_proxy": "[", "PIP_PROXY": "10.0.0.1:1"}
    assert loopback_notes(resolve_network(environ, folder=tmp_path).environment) == []


def test_a_folder_of_wheels_is_served_to_builds(tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    environ = {"PIP_FIND_LINKS": f"https://links.example/ {wheels}", "HTTP_PROXY": "http://p:1"}
    network = resolve_network(environ, folder=tmp_path)
    assert network.environment["PIP_FIND_LINKS"] == "https://links.example/ /opt/infini-ci/wheels"
    # The address is part of an image's tag.
    assert network.build_environment == {
        **network.environment,
        "PIP_FIND_LINKS": "https://links.example/ http://127.0.0.1:8421/",
    }
    assert network.host_environment["PIP_FIND_LINKS"] == f"https://links.example/ {wheels}"
    assert network.wheelhouse == wheels


@pytest.mark.parametrize("name", ["wheels", "the wheels"])
def test_a_folder_of_wheels_by_its_address(tmp_path: Path, name: str) -> None:
    wheels = tmp_path / name
    wheels.mkdir()
    network = resolve_network({"PIP_FIND_LINKS": wheels.as_uri()}, folder=tmp_path)
    assert network.wheelhouse == wheels
    [word] = network.host_environment["PIP_FIND_LINKS"].split()  # one word to pip
    assert word == (str(wheels) if name == "wheels" else wheels.as_uri())


def test_a_site_without_an_index(tmp_path: Path) -> None:
    site, config = NetworkConfig(pip_no_index=False), NetworkConfig(pip_no_index=True)
    for network, without_index in (
        (resolve_network({}, config, folder=tmp_path), True),
        (resolve_network({}, site, config, folder=tmp_path), False),
        (resolve_network({"PIP_NO_INDEX": "yes"}, site, folder=tmp_path), True),
        (resolve_network({}, folder=tmp_path), False),
    ):
        assert is_without_index(network.host_environment) is without_index
        assert network.build_environment == network.environment == network.host_environment


def test_a_page_of_links_needs_no_server(tmp_path: Path) -> None:
    network = resolve_network({"PIP_FIND_LINKS": "https://links.example/"}, folder=tmp_path)
    assert network.wheelhouse is None
    assert network.build_environment == network.environment


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("PIP_FIND_LINKS", "{0} {0}", "pip_find_links: got .*, expected at most one folder"),
        ("PIP_FIND_LINKS", "/no/such", "pip_find_links: got '/no/such', expected a folder or"),
        ("PIP_FIND_LINKS", "https://a/ file:///no", "got 'file:///no', expected a folder or an"),
        ("PIP_FIND_LINKS", "wheel", "pip_find_links: got 'wheel', expected a folder or an address"),
        ("PIP_CERT", "/no/such.pem", r"ca_bundle: got '/no/such\.pem', expected a PEM file"),
    ],
)
def test_files_that_do_not_exist(tmp_path: Path, variable: str, value: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve_network({variable: value.format(tmp_path)}, folder=tmp_path)


@pytest.mark.parametrize("variable", ["PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"])
def test_the_ca_bundle_has_its_place_in_the_container(tmp_path: Path, variable: str) -> None:
    bundle = tmp_path / "ca.pem"
    bundle.write_text("-----BEGIN CERTIFICATE-----\n")
    network = resolve_network({variable: str(bundle)}, folder=tmp_path)
    assert network.ca_bundle == bundle
    names = {"PIP_CERT", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"}
    assert network.environment == dict.fromkeys(names, CONTAINER_CA_BUNDLE)
    assert network.host_environment == dict.fromkeys(names, str(bundle))


def test_a_ca_bundle_beside_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("x")
    network = resolve_network({}, NetworkConfig(ca_bundle="ca.pem"), folder=tmp_path)
    assert network.ca_bundle == tmp_path / "ca.pem"


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("https://user:pass@host/simple", "https://***@host/simple"),
        ("--index https://token@host:8443/x y", "--index https://***@host:8443/x y"),
        ("http://user:p@ss@host/", "http://***@host/"),
        ("http://user:p/w@host/", "http://***@host/"),
        ("http://host/a b@c", "http://host/a b@c"),
        ("me@host", "me@host"),
        ("ssh://me@host:22/a.sock", "ssh://me@host:22/a.sock"),
        ("expected ssh://[user@]host[:port]", "expected ssh://[user@]host[:port]"),
        ("ssh://me:p:w@d@host:22", "ssh://***@host:22"),
        ("a=%22https%3A%2F%2Fme%3Apw%40host%2F%22&b", "a=%22https%3A%2F%2F***%40host%2F%22&b"),
        ("http://h/build?a=https%3a%2f%2fme%3apw%40i", "http://h/build?a=https%3a%2f%2f***%40i"),
        ("https%3A%2F%2Fhost%2Fa", "https%3A%2F%2Fhost%2Fa"),
        ("http://a:b@c/ http://d/ http://e:f@g", "http://***@c/ http://d/ http://***@g"),
    ],
)
def test_credentials_are_masked(text: str, masked: str) -> None:
    assert mask_credentials(text) == masked


def test_passwords_can_be_withheld(tmp_path: Path) -> None:
    environ = {
        "PIP_INDEX_URL": "https://me:p%40ss@index.example/@team/simple",
        "PIP_EXTRA_INDEX_URL": "https://a.example/simple https://token@b.example/simple",
        "PIP_TRUSTED_HOST": "b.example",
        "https_proxy": "http://me:a@b@proxy.example:3128",
        "http_proxy": "http://proxy.example:3128",
    }
    plan = resolve_network(environ, folder=tmp_path)
    assert plan.environment["PIP_INDEX_URL"] == "https://index.example/@team/simple"
    assert plan.build_environment["PIP_INDEX_URL"] == environ["PIP_INDEX_URL"]
    assert plan.credentials == {
        "NETRC": "machine index.example login me password p@ss",
        "PIP_EXTRA_INDEX_URL": environ["PIP_EXTRA_INDEX_URL"],  # without a password: only a token
        "HTTPS_PROXY": environ["https_proxy"],
        "https_proxy": environ["https_proxy"],
    }
    assert plan.without_credentials == {
        "PIP_INDEX_URL": "https://index.example/@team/simple",
        "PIP_EXTRA_INDEX_URL": "https://a.example/simple https://b.example/simple",
        "HTTPS_PROXY": "http://proxy.example:3128",
        "https_proxy": "http://proxy.example:3128",
    }


@pytest.mark.parametrize(
    "addresses",
    [
        "https://me:one@host/a https://me:two@host/b",  # one file has one password for a host
        "https://me:p%20w@host/",
        "https://me:p%22w@host/",
        "https://me:p%5Cw@host/",
        "https://me:%23pw@host/",
        "https://me:pw@[::1]/",
    ],
)
def test_what_a_netrc_file_cannot_hold_stays_in_the_address(tmp_path: Path, addresses: str) -> None:
    plan = resolve_network({"PIP_EXTRA_INDEX_URL": addresses}, folder=tmp_path)
    assert plan.credentials == {"PIP_EXTRA_INDEX_URL": addresses}
    assert "pw@" not in str(plan.environment)


def test_python_reads_the_netrc_file(tmp_path: Path) -> None:
    allowed = "p!$%&()*+,-./:;<=>?@[]^_`{|}~w"
    url = f"https://me:{quote(allowed, safe='')}@host.example:8443/simple"
    plan = resolve_network({"PIP_INDEX_URL": url, "PIP_FIND_LINKS": url}, folder=tmp_path)
    file = tmp_path / "netrc"
    file.write_text(plan.credentials["NETRC"] + "\n")
    file.chmod(0o600)
    assert netrc(file).authenticators("host.example") == ("me", "", allowed)
    assert plan.credentials.keys() == {"NETRC"}
