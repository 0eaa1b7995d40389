"""The tests of the Docker engine on a rootless Podman, and what is different there."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from docker.client import DockerClient

from ci.engines.podman.engine import NO_LIMITS, PodmanEngine
from ci.engines.select import select_engine
from ci.errors import InfrastructureError
from ci.model.plan import EngineKind, EnginePlan
from tests.e2e.benches import Bench
from tests.e2e.places import Place, gc, project_files
from tests.e2e.plans import OFFLINE_BASE, python_stage, stage
from tests.e2e.rootless_podman import USER_ID, MissingPodmanError, rootless_podman

# Collected here too, with the engine of this file.
from tests.e2e.test_container_devices import check_leases
from tests.e2e.test_docker_engine import STAGES
from tests.e2e.test_engines import (
    test_crashing_stage,
    test_install_and_tests,
    test_interrupt_keeps_what_there_is,
    test_killed_caller_is_replaced,
    test_odd_names_and_absolute_links_arrive,
    test_second_interrupt_keeps_what_there_is,
)
from tests.e2e.test_read_only_root import INSTALL, LOOK, RECIPE, TESTS, read_only
from tests.e2e.test_red_and_green import SUITES, check, judged, plan_of

pytestmark = pytest.mark.complete

PODMAN = EnginePlan(name="podman", kind=EngineKind.PODMAN)
COLLECTED = (
    test_crashing_stage,
    test_install_and_tests,
    test_interrupt_keeps_what_there_is,
    test_killed_caller_is_replaced,
    test_odd_names_and_absolute_links_arrive,
    test_second_interrupt_keeps_what_there_is,
)


@pytest.fixture(scope="module")
def podman() -> Iterator[Path]:
    """The folder of a rootless Podman, which has the base image of all tests."""
    with pytest.MonkeyPatch.context() as patch:
        try:
            with rootless_podman() as folder:
                patch.setenv("CONTAINER_HOST", f"unix://{folder}/run/podman.sock")
                copy_base_image()
                yield folder
        except MissingPodmanError as error:
            pytest.skip(f"no rootless Podman: {error}")


def copy_base_image() -> None:
    """Copy it from the Docker Engine, if one has it; otherwise the first run makes it."""
    source = DockerClient.from_env()
    with closing(source), closing(select_engine(PODMAN)) as engine:
        assert isinstance(engine, PodmanEngine)
        if source.images.list(OFFLINE_BASE):
            chunks = source.images.get(OFFLINE_BASE).save(named=True)
            engine.client.images.load(b"".join(chunks))


@pytest.fixture
def tmp_path(podman: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A folder that the user of this Podman can reach and write to."""
    folder = podman / "tests" / request.node.name
    folder.mkdir(parents=True)
    os.chown(folder, USER_ID, USER_ID)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with closing(select_engine(PODMAN)) as engine:
        yield Bench(engine, tmp_path)


def test_two_containers_never_have_a_device_at_the_same_time(bench: Bench) -> None:
    leases = bench.folder / "leases"
    leases.mkdir()
    os.chown(leases, USER_ID, USER_ID)
    check_leases(bench, leases)


# The agent is the same on all engines. tests/e2e/test_red_and_green.py has all suites.
@pytest.mark.parametrize("name", list(SUITES)[::3])
def test_the_messages_to_a_user(bench: Bench, name: str) -> None:
    suite = SUITES[name]
    check(judged(bench, plan_of(bench, Path(sys.executable), suite)), suite)


def test_an_isolated_stage_has_no_network(bench: Bench) -> None:
    look = "print(open('/proc/net/dev').read())"
    isolated = replace(python_stage("last", look), isolated=True)
    plan = bench.plan(python_stage("first", look), isolated)
    assert bench.run(plan).exit_code == 0
    assert "eth0" in (plan.results / "first.log").read_text()
    assert "eth0" not in (plan.results / "last.log").read_text()


def test_stages_write_to_volumes_only(bench: Bench) -> None:
    plan = bench.plan(python_stage("look", LOOK), INSTALL, TESTS, dockerfile=RECIPE)
    bench.run(read_only(plan))
    looked = json.loads((plan.results / "look.log").read_text())
    assert [name for name, writes in looked.items() if writes is not True] == [
        "/data",
        "/var/lib/data",
    ]
    assert "1 failed, 2 passed" in (plan.results / "pytest.log").read_text()


def test_a_name_that_is_taken(bench: Bench) -> None:
    assert isinstance(bench.engine, PodmanEngine)
    plan = bench.plan(stage("build", "true"))
    image = bench.engine.prepare(plan, bench.observer)
    other = bench.engine.client.containers.create(image.reference, name=plan.container.name)
    try:
        message = f"platform cpu already has a container {plan.container.name}: .*in use"
        with pytest.raises(InfrastructureError, match=message) as error:
            bench.engine.execute(plan, image, bench.observer)
        assert f"`podman rm --volumes {plan.container.name}`" in str(error.value.remedy)
    finally:
        other.remove()


def test_passwords_stay_in_no_image(bench: Bench) -> None:
    assert isinstance(bench.engine, PodmanEngine)
    client = bench.engine.client
    plan = bench.plan(stage("build", "true"), dockerfile=STAGES % bench.run_id)
    secret = f"https://me:{bench.run_id}@index.example/simple"
    image = replace(plan.needed_image, build_arguments={"PIP_INDEX_URL": secret})
    bench.engine.prepare(replace(plan, image=image), bench.observer)
    names = client.api.images(quiet=True, all=True)
    found = [name for name in names if secret in str(client.api.history(name))]
    client.images.remove(plan.needed_image.tag)
    assert found == []


@pytest.fixture
def place(tmp_path_factory: pytest.TempPathFactory, bench: Bench) -> Place:
    """A project whose test fails; its image is there."""
    assert bench.engine.name == EngineKind.PODMAN
    files = project_files("kept-in-podman", "def test_a(): assert 0\n")
    return Place.make(tmp_path_factory.mktemp("place"), "podman", sys.executable, files)


def test_doctor(place: Place) -> None:
    finished = place.ci("doctor", "cpu", *place.options, "--format", "json")
    found = {it["subject"]: it for it in json.loads(finished.stdout)["findings"]}
    assert found["engine podman"]["level"] == "ok", found
    assert found["engine podman"]["found"].startswith("Podman ")
    nothing = f"unix://{place.folder}/none"
    finished = place.ci("doctor", "cpu", *place.options, CONTAINER_HOST=nothing)
    assert f"no Podman answers at {nothing}" in finished.stdout
    assert "systemctl --user start podman.socket" in finished.stdout


def test_it_is_known_again_and_notes_missing_limits(bench: Bench) -> None:
    assert isinstance(bench.engine, PodmanEngine)
    assert bench.engine.machine() == bench.engine.machine()
    facts = bench.run(bench.plan(stage("build", "true")))
    assert (NO_LIMITS in facts.notes) is (bench.engine.info()["CgroupVersion"] == "1")


# The last one: `gc` removes the images of the other tests, too.
def test_what_a_failed_run_leaves_is_entered_and_removed(place: Place) -> None:
    run_id = place.run("--keep")["run_id"]
    finished = place.ci("shell", run_id, "cpu", given="cat built; id -u; exit 7\n")
    assert (finished.returncode, finished.stdout) == (7, "one\n1000\n"), finished.stderr
    items = gc(place, "gc", *place.options, "--older-than", "0")
    removed = [(it["place"].split()[0], it["kind"]) for it in items if it["removed"]]
    assert ("Podman", "failed container") in removed
    assert ("Podman", "image") in removed
    assert [it["failure"] for it in items if it["failure"]] == []
