"""The address of an engine: from plans, environment and the files of the docker command."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from ci.engines.docker.link import EngineAddress, find_address
from ci.engines.docker.remote import LAUNCHER, RemoteMachine
from ci.errors import ConfigError
from ci.model.plan import EngineKind, EnginePlan

LOCAL = "unix:///var/run/docker.sock"


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """The environment of a user with a context ``lab``."""
    write(tmp_path, "lab", {"Host": "ssh://me@lab:2222", "SkipTLSVerify": False})
    return {"DOCKER_CONFIG": str(tmp_path)}


def write(folder: Path, name: str, endpoint: dict[str, object]) -> Path:
    """Write a context as `docker context create` does; returns the folder of its certificates."""
    identity = sha256(name.encode()).hexdigest()
    meta = folder / "contexts" / "meta" / identity / "meta.json"
    meta.parent.mkdir(parents=True)
    content = {"Name": name, "Metadata": {}, "Endpoints": {"docker": endpoint}}
    meta.write_text(json.dumps(content))
    return folder / "contexts" / "tls" / identity / "docker"


def find(
    environ: dict[str, str], *, context: str | None = None, docker_host: str | None = None
) -> EngineAddress:
    kind = EngineKind.DOCKER
    plan = EnginePlan(name="pool", kind=kind, context=context, docker_host=docker_host)
    return find_address(plan, environ)


def test_the_default_address(tmp_path: Path) -> None:
    address = find({"DOCKER_CONFIG": str(tmp_path)})
    assert (address.url, address.named_by, address.tls) == (LOCAL, None, None)


def test_order_of_precedence(environ: dict[str, str]) -> None:
    (Path(environ["DOCKER_CONFIG"]) / "config.json").write_text('{"currentContext": "lab"}')
    write(Path(environ["DOCKER_CONFIG"]), "other", {"Host": "tcp://other:2375"})
    assert find(environ).url == "ssh://me@lab:2222"
    environ["DOCKER_CONTEXT"] = "other"
    assert find(environ).url == "tcp://other:2375"
    assert find(environ).environment == {"DOCKER_CONTEXT": "other", "DOCKER_HOST": ""}
    environ["DOCKER_HOST"] = "ssh://host"
    assert (find(environ).url, find(environ).named_by) == ("ssh://host", "DOCKER_HOST")
    assert find(environ, context="default").url == LOCAL
    assert find(environ, context="lab").url == "ssh://me@lab:2222"
    address = find(environ, docker_host="unix:///run/other.sock")
    assert address.url == "unix:///run/other.sock"
    assert address.environment == {"DOCKER_HOST": address.url}


def test_certificates(environ: dict[str, str], tmp_path: Path) -> None:
    tls = write(tmp_path, "safe", {"Host": "tcp://safe:2376", "SkipTLSVerify": False})
    for folder in (tls, tmp_path):
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("ca.pem", "cert.pem", "key.pem"):
            (folder / name).touch()
    of_context = find(environ, context="safe").tls
    assert of_context is not None
    assert (of_context.ca_cert, of_context.verify) == (str(tls / "ca.pem"), True)
    assert of_context.cert == (str(tls / "cert.pem"), str(tls / "key.pem"))
    environ |= {"DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": str(tmp_path)}
    of_variables = find(environ, docker_host="tcp://host:2376").tls
    assert of_variables is not None
    assert (of_variables.ca_cert, of_variables.verify) == (str(tmp_path / "ca.pem"), True)
    assert find(environ, docker_host="ssh://host").tls is None
    (tmp_path / "key.pem").unlink()
    with pytest.raises(ConfigError, match="engine pool: Path to a certificate and key") as error:
        find(environ, docker_host="tcp://host:2376")
    assert error.value.remedy == "Correct DOCKER_CERT_PATH, or unset it and DOCKER_TLS_VERIFY."


def test_unknown_context(environ: dict[str, str]) -> None:
    message = "engine pool: unknown Docker context 'lb', expected one of default, lab; did you mean"
    with pytest.raises(ConfigError, match=message) as error:
        find(environ, context="lb")
    assert error.value.remedy == "docker context create lb --docker host=ssh://USER@HOST"
    with pytest.raises(ConfigError, match=r"^DOCKER_CONTEXT: unknown Docker context 'lb'"):
        find(environ | {"DOCKER_CONTEXT": "lb"})


def test_unreadable_settings(environ: dict[str, str]) -> None:
    (Path(environ["DOCKER_CONFIG"]) / "config.json").write_text("{")
    with pytest.raises(ConfigError, match=r"config\.json: Expecting property name"):
        find(environ)


def test_a_machine_as_ssh_knows_it() -> None:
    machine = RemoteMachine.parse("ssh://me@Lab:2222", {"INFINI_CI_SSH_CONFIG": "file"})
    assert machine.command()[:3] == ["ssh", "-F", "file"]
    assert machine.command()[-2:] == ["--", "ssh://me@Lab:2222"]
    assert machine.engine_socket == "/var/run/docker.sock"
    rootless = RemoteMachine.parse("ssh://lab/run/user/1000/docker.sock", {})
    assert rootless.engine_socket == "/run/user/1000/docker.sock"
    assert rootless.command()[-1] == "ssh://lab"
    assert "-F" not in rootless.command()


@pytest.mark.parametrize("url", ["ssh://", "ssh://me:secret@lab", "ssh:///socket", "ssh://lab?a=b"])
def test_no_address_of_a_machine(url: str) -> None:
    with pytest.raises(
        ConfigError, match=r"is not the address of an engine, expected ssh://"
    ) as error:
        RemoteMachine.parse(url, {})
    assert "secret" not in str(error.value)


MACOS = "import ctypes, sys\nsys.platform = 'darwin'\ndel ctypes.CDLL\n"


def test_ssh_starts_where_no_kernel_ends_it_with_its_owner() -> None:
    command = [sys.executable, "-I", "-S", "-c", MACOS + LAUNCHER, str(os.getpid()), "echo", "yes"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "yes\n"
