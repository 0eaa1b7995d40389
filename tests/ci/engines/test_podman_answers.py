"""Podman: its address, and what its Docker-compatible answers lack."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from docker.api.client import APIClient
from docker.errors import APIError
from requests import Response

from ci.engines.docker.images import _STEP_RESULT
from ci.engines.podman.engine import PodmanAPI, PodmanLink, own_socket
from ci.model.plan import EngineKind, EnginePlan
from ci.plan.project import load_project

PODMAN = EnginePlan(name="podman", kind=EngineKind.PODMAN)


def test_the_address_of_a_user_and_of_root() -> None:
    assert own_socket({"XDG_RUNTIME_DIR": "/run/me"}, 1000) == "/run/me/podman/podman.sock"
    assert own_socket({}, 1000) == "/run/user/1000/podman/podman.sock"
    assert own_socket({"XDG_RUNTIME_DIR": "/run/me"}, 0) == "/run/podman/podman.sock"


def test_the_order_of_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CONTAINER_HOST", raising=False)
    assert PodmanLink.find_address(PODMAN).named_by is None
    monkeypatch.setenv("CONTAINER_HOST", "unix:///run/a.sock")
    named = PodmanLink.find_address(PODMAN)
    assert (named.url, named.named_by) == ("unix:///run/a.sock", "CONTAINER_HOST")
    lab = EnginePlan(name="lab", kind=EngineKind.PODMAN, podman_host="ssh://lab/run/b.sock")
    of_site = PodmanLink.find_address(lab)
    assert (of_site.url, of_site.named_by) == ("ssh://lab/run/b.sock", "engine lab")
    assert of_site.environment == {"CONTAINER_HOST": "ssh://lab/run/b.sock"}


def test_an_engine_of_the_site(tmp_path: Path) -> None:
    (tmp_path / "ci.yaml").write_text("project: tiny\nplatforms: {cpu: {}}\n")
    (tmp_path / "ci.site.yaml").write_text("engines: {lab: {podman_host: 'unix:///run/b.sock'}}\n")
    project = load_project(tmp_path / "ci.yaml", {})
    plan = project.engine("cpu", "lab")
    assert (plan.kind, plan.podman_host) == (EngineKind.PODMAN, "unix:///run/b.sock")
    assert project.engine("cpu", "podman") == PODMAN


@pytest.fixture
def api() -> PodmanAPI:
    """A client that connects to nothing."""
    return PodmanAPI(base_url="unix:///none", version="1.41")


def test_images_have_the_names_that_they_were_given(
    api: PodmanAPI, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = ["docker.io/infini-ci/cpu:1", "localhost/infini-ops-base:2", "quay.io/a/b:3"]
    answer = [{"Id": "a", "RepoTags": given}, {"Id": "b", "RepoTags": None}]
    monkeypatch.setattr(APIClient, "images", lambda *_, **__: answer)
    assert api.images() == [
        {"Id": "a", "RepoTags": ["infini-ci/cpu:1", "infini-ops-base:2", "quay.io/a/b:3"]},
        {"Id": "b", "RepoTags": []},
    ]
    monkeypatch.setattr(APIClient, "images", lambda *_, **__: ["a", "b"])
    assert api.images(quiet=True) == ["a", "b"]


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ('the container name "a" is already in use by 1: that name is already in use', 409),
        ("no space left on device", 500),
    ],
)
def test_a_taken_name_is_a_conflict(
    api: PodmanAPI, monkeypatch: pytest.MonkeyPatch, text: str, status: int
) -> None:
    response = Response()
    response.status_code = 500

    def refuse(*_: Any) -> None:
        raise APIError("refused", response=response, explanation=text)

    monkeypatch.setattr(APIClient, "create_container_from_config", refuse)
    with pytest.raises(APIError, match=text) as error:
        api.create_container_from_config({})
    assert error.value.status_code == status


@pytest.mark.parametrize(
    "printed",
    [
        " ---> 1064ee0361a5",
        "--> 1064ee0361a",
        "--> Using cache 1064ee0361a53c8c350b43e47a47b6621955ebc38b34d8641210540ceb65d0e6",
    ],
    ids=["Docker", "Podman", "Podman, cached"],
)
def test_the_image_of_a_step(printed: str) -> None:
    assert _STEP_RESULT.findall(f"STEP 1\n{printed}\n") == ["1064ee0361a"]
