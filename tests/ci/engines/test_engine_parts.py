"""The engines' helpers: the wheelhouse, the choice of an engine, errors of its SDK, packages."""

from __future__ import annotations

import errno
import json
import os
import re
import socket
import sys
from pathlib import Path
from urllib.parse import urlencode

import pytest
import requests
from docker.errors import APIError
from urllib3.exceptions import ProtocolError

from ci.engines.checks import package_manager
from ci.engines.docker.images import server_stage
from ci.engines.docker.link import is_connection_lost, typed_sdk_errors
from ci.engines.docker.wheelhouse import volume_name, wheel_archive
from ci.engines.host.engine import HostEngine, missing_packages
from ci.engines.select import ENGINES, select_engine
from ci.errors import ExitCode, InfrastructureError
from ci.model.plan import EngineKind, EnginePlan, ImagePlan, SystemPackages


def test_the_volume_of_a_wheelhouse_changes_with_its_files(tmp_path: Path) -> None:
    wheel = tmp_path / "tiny-1-py3-none-any.whl"
    wheel.write_bytes(b"wheel")
    before = volume_name(tmp_path)
    (tmp_path / "folder").mkdir()  # pip does not look into it
    assert volume_name(tmp_path) == before
    os.utime(wheel, (1, 1))
    assert volume_name(tmp_path) != before


def test_a_wheel_that_shrinks_while_it_is_copied(tmp_path: Path) -> None:
    wheel = tmp_path / "tiny-1-py3-none-any.whl"
    wheel.write_bytes(b"wheel")
    archive = wheel_archive(tmp_path)
    next(archive)  # its header
    os.truncate(wheel, 1)
    with pytest.raises(InfrastructureError, match=r"tiny-1.* became shorter while it was copied"):
        list(archive)


OWN_RECIPE = (Path(__file__).parents[3] / "docker" / "Dockerfile").read_text()


@pytest.mark.parametrize(
    ("recipe", "stage"),
    [
        (OWN_RECIPE, "base"),
        ("from x as BASE\n", "base"),
        ("FROM ${BASE_IMAGE}\n", None),
        ("FROM ${BASE_IMAGE} AS basement\n", None),
    ],
    ids=["own", "short", "no stage", "another stage"],
)
def test_the_stage_that_serves_a_wheelhouse(recipe: str, stage: str | None) -> None:
    image = ImagePlan(
        tag="a:b",
        dockerfile="Dockerfile",
        context={"Dockerfile": recipe.encode()},
        build_arguments={},
        base_image="base",
        offline_base_image=None,
        offline_base_command=None,
    )
    assert server_stage(image) == stage


def test_every_kind_has_an_engine() -> None:
    assert {*ENGINES} == {*EngineKind} - {EngineKind.AUTO}
    assert all(engine.name == kind for kind, engine in ENGINES.items())


def test_docker_without_an_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{port}")
    with pytest.raises(
        InfrastructureError, match=rf"no Docker Engine answers at tcp://127.0.0.1:{port}: "
    ) as error:
        select_engine(EnginePlan(name="docker", kind=EngineKind.DOCKER))
    assert error.value.exit_code is ExitCode.INFRASTRUCTURE
    assert error.value.remedy is not None
    assert error.value.remedy.startswith("check the address")
    engine = select_engine(EnginePlan(name="auto", kind=EngineKind.AUTO))
    assert isinstance(engine, HostEngine)
    [note] = engine.notes
    assert note.startswith("DOCKER_HOST was not used: no Docker Engine answers at tcp:")
    monkeypatch.setattr(sys, "platform", "darwin")
    expected = r"^the host engine needs Linux, and this machine runs darwin; DOCKER_HOST was not"
    with pytest.raises(InfrastructureError, match=expected):
        select_engine(EnginePlan(name="auto", kind=EngineKind.AUTO))


ADDRESS = "https://user:s3cretpw@host.invalid/simple"
QUERY = urlencode({"buildargs": json.dumps({"PIP_INDEX_URL": ADDRESS, "TOKEN": "t0ken"})})


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(APIError("400 Client Error: /build?" + QUERY), id="no explanation"),
        pytest.param(APIError("/build?" + QUERY, explanation="unknown instruction"), id="answer"),
        pytest.param(ConnectionError(f"retries exceeded with url: /build?{QUERY} (x)"), id="cut"),
    ],
)
def test_error_of_a_build_does_not_contain_its_arguments(error: Exception) -> None:
    with (
        pytest.raises(InfrastructureError, match=r"failed: (400|unknown|retries)") as raised,
        typed_sdk_errors("the Docker Engine at tcp://lab"),
    ):
        raise error
    assert not [secret for secret in ("s3cretpw", "t0ken") if secret in str(raised.value)]


@pytest.mark.parametrize(
    ("error", "machine"),
    [
        (APIError("500", explanation="write /x: no space left on device"), "the engine at x"),
        (OSError(errno.ENOSPC, "No space left on device"), "this machine"),
    ],
)
def test_full_disk_is_reported_with_its_machine(error: Exception, machine: str) -> None:
    with (
        pytest.raises(InfrastructureError, match=f"^the disk of {machine} is full: ") as raised,
        typed_sdk_errors("the engine at x"),
    ):
        raise error
    assert raised.value.remedy is not None
    assert "python -m ci gc" in raised.value.remedy


@pytest.mark.parametrize(
    ("error", "cut"),
    [
        (requests.ConnectionError("aborted"), True),
        (ProtocolError("broken"), True),
        (ConnectionResetError(errno.ECONNRESET, "reset"), True),
        (APIError("404"), False),
        (OSError(errno.ENOSPC, "full"), False),
    ],
)
def test_a_cut_connection_is_distinguished_from_an_answer(error: Exception, cut: bool) -> None:
    assert is_connection_lost(error) is cut


@pytest.mark.skipif(package_manager() is None, reason="no apt-get, dnf or yum on this machine")
def test_system_packages_that_this_machine_lacks() -> None:
    wanted = SystemPackages(apt=("dpkg", "no-such-package"), dnf=("rpm", "no-such-package"))
    line = missing_packages(wanted)
    assert line is not None
    assert re.search(rf"{package_manager()} install .* no-such-package'?$", line)
    assert "dpkg" not in line


def test_machine_without_a_package_manager_is_not_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert missing_packages(SystemPackages(apt=("less",), dnf=("less",))) is None
