"""Planning is pure: the same inputs give the same plan, to the image's tag."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from ci.engines.host.workfolder import host_job
from ci.engines.job import container_job
from ci.errors import ConfigError
from ci.facts.platform_result import LONGEST_TEXT, judged_result, not_run_result
from ci.facts.result_files import ResultFiles
from ci.facts.sentences.on_rows import reported
from ci.model.execution import ExecutionFacts
from ci.model.plan import NetworkPlan, SystemPackages
from ci.model.platforms import OFFLINE_BASE_IMAGE, PLATFORMS
from ci.model.trust import Trust
from ci.plan.planning import PlanInputs, RunOptions
from ci.protocol.job import Column
from ci.protocol.stage_kind import StageKind
from tests.ci.made_plans import CONFIG, INPUTS, plan


def network(**environment: str) -> NetworkPlan:
    return NetworkPlan(environment=environment, build_environment=environment)


SIMULATED = {"INFINI_CI_SIMULATED": "1"}


def test_stages() -> None:
    build, size, tests = plan().stages
    assert build.command == ("make", "two words")
    assert build.environment == {"B": "2", "SOURCE_DATE_EPOCH": "946684800"}
    assert "SOURCE_DATE_EPOCH" not in tests.environment
    columns = [build.column, size.column, tests.column]
    assert columns == [Column.BUILD_INSTALL, Column.NONE, Column.PYTEST]
    assert (tests.kind, tests.timeout_s) == (StageKind.PYTEST, 60)


@pytest.mark.parametrize(
    ("platform", "device", "simulated"), [("cpu", "cpu", {}), ("ascend", "npu", SIMULATED)]
)
def test_stages_know_their_platform(platform: str, device: str, simulated: dict[str, str]) -> None:
    wanted = {"environment": {"A": "1"}, "simulated": bool(simulated)}
    planned = plan({**CONFIG, "platforms": {platform: wanted}})
    assert (planned.platform, planned.torch_device) == (platform, device)
    assert planned.simulated is bool(simulated)
    variables = {"INFINI_CI_PLATFORM": platform, "INFINI_CI_TORCH_DEVICE": device}
    assert planned.environment == {"A": "1", **variables, **simulated}


@pytest.mark.parametrize("where", ["platform", "stage"])
def test_a_date_of_the_configuration_replaces_that_of_the_sources(where: str) -> None:
    own = {"environment": {"SOURCE_DATE_EPOCH": "7"}}
    build = {"name": "build", "command": "make", **(own if where == "stage" else {})}
    tests = {"name": "tests", "kind": "pytest", "command": "pytest"}
    platforms = {"cpu": own if where == "platform" else {}}
    [planned, _] = plan({**CONFIG, "platforms": platforms, "stages": [build, tests]}).stages
    assert planned.environment == (own["environment"] if where == "stage" else {})


def test_a_simulated_device_that_was_not_run_is_one_too() -> None:
    simulated = plan({**CONFIG, "platforms": {"ascend": {"simulated": True}}})
    result = not_run_result(simulated, "no space is left")
    assert (result.label, result.simulated) == ("Ascend (simulated device)", True)


@pytest.mark.parametrize(
    ("wanted", "name"),
    [
        ({}, "infini-ci-cache-tiny-ascend-branch"),
        ({"compiler_cache_of": "cpu"}, "infini-ci-cache-tiny-cpu-branch"),
        ({"compiler_cache": False}, None),
    ],
)
def test_the_compiler_cache(wanted: dict[str, object], name: str | None) -> None:
    planned = plan({**CONFIG, "platforms": {"ascend": wanted}})
    assert (planned.cache and planned.cache.name) == name


@pytest.mark.parametrize(
    ("level", "read"),
    [(Trust.RELEASE, []), (Trust.BRANCH, ["release"]), (Trust.UNTRUSTED, ["release", "branch"])],
)
def test_compiler_caches_of_a_trust_level(level: Trust, read: list[str]) -> None:
    planned = plan(inputs=replace(INPUTS, options=RunOptions(trust=level)))
    assert planned.trust is level
    assert planned.cache
    assert planned.cache.name == f"infini-ci-cache-tiny-cpu-{level}"
    assert planned.cache.trusted == tuple(f"infini-ci-cache-tiny-cpu-{it}" for it in read)


@pytest.mark.parametrize(
    ("platform", "base_image", "expected"),
    [
        ("cpu", None, "python:3.11-slim-bookworm"),
        ("iluvatar", "corex:1", "corex:1"),
        ("ascend", f"site/ascend@sha256:{'0' * 64}", f"site/ascend@sha256:{'0' * 64}"),
    ],
)
def test_the_base_image(platform: str, base_image: str | None, expected: str) -> None:
    config = {**CONFIG, "platforms": {platform: {}}}
    assert plan(config, replace(INPUTS, base_image=base_image)).needed_image.base_image == expected


def test_a_platform_without_a_configured_base_image() -> None:
    planned = plan({**CONFIG, "platforms": {"iluvatar": {}}})
    with pytest.raises(ConfigError, match=r"platforms\.iluvatar: no base image") as error:
        _ = planned.needed_image
    assert "INFINI_CI_BASE_IMAGE_ILUVATAR or as platforms.iluvatar" in str(error.value.remedy)


def test_results_and_container() -> None:
    planned = plan()
    assert planned.results == Path("/results/run/cpu")
    assert planned.label == "CPU"
    container = planned.container
    assert container.name == "infini-ci-20260101T000000Z-abc-1234-cpu"
    assert container.labels["infini-ci.run"] == INPUTS.run_id
    assert container.memory_bytes == 2**30


def test_an_image_gets_the_settings_of_builds() -> None:
    links = {"PIP_FIND_LINKS": "http://127.0.0.1:8421/"}
    network = NetworkPlan(environment={"PIP_FIND_LINKS": "/wheels"}, build_environment=links)
    planned = plan(inputs=replace(INPUTS, network=network))
    assert planned.needed_image.build_arguments["PIP_FIND_LINKS"] == links["PIP_FIND_LINKS"]
    assert planned.network.environment["PIP_FIND_LINKS"] == "/wheels"


def test_equal_inputs_give_an_equal_tag() -> None:
    other = plan(inputs=replace(INPUTS, run_id="another", source=Path("/elsewhere")))
    assert plan().needed_image.tag == other.needed_image.tag


@pytest.mark.parametrize(
    "changed",
    [
        replace(INPUTS, context={**INPUTS.context, "Dockerfile": b"FROM y"}),
        replace(INPUTS, context={**INPUTS.context, "site-ca-bundle.pem": b""}),
        replace(INPUTS, base_image="registry.example/python:3.11"),
        replace(INPUTS, network=network(PIP_INDEX_URL="https://mirror.example/")),
    ],
)
def test_whatever_changes_the_image_changes_its_tag(changed: PlanInputs) -> None:
    assert plan(inputs=changed).needed_image.tag != plan().needed_image.tag


def test_system_packages_of_the_project_and_of_the_platform() -> None:
    own = {"apt": ["libxml2-dev", "less"], "dnf": ["libxml2-devel"]}
    config = {**CONFIG, "platforms": {"cpu": {"system_packages": own}}, "system_packages": ["less"]}
    planned = plan(config)
    expected = SystemPackages(apt=("less", "libxml2-dev"), dnf=("less", "libxml2-devel"))
    assert planned.system_packages == expected
    [name] = planned.needed_image.context.keys() - INPUTS.context.keys()
    assert planned.needed_image.context[name] == (
        b"apt less\napt libxml2-dev\ndnf less\ndnf libxml2-devel\n"
    )


def test_system_packages_change_the_image_s_tag() -> None:
    without, less, more = (
        plan({**CONFIG, "system_packages": names}).needed_image
        for names in ([], ["less"], ["less", "more"])
    )
    assert len({without.tag, less.tag, more.tag}) == 3
    assert without.context == INPUTS.context
    assert less.inputs.keys() - without.inputs.keys() == {"system-packages"}


def test_a_recipe_that_would_leave_out_system_packages_is_refused() -> None:
    platforms = {"cpu": {"recipe": "my.Dockerfile"}}
    config = {**CONFIG, "platforms": platforms, "system_packages": ["less"]}
    wanted = r"^platforms\.cpu\.recipe: my\.Dockerfile does not install the system packages less$"
    with pytest.raises(ConfigError, match=wanted) as error:
        plan(config)
    assert "COPY the file system-packages" in str(error.value.remedy)
    dockerfile = {"Dockerfile": b"COPY my-script system-package[s] /"}
    assert plan(config, replace(INPUTS, context={**INPUTS.context, **dockerfile})).system_packages


def test_a_proxy_reaches_the_build_but_not_the_tag() -> None:
    proxies = {"HTTP_PROXY": "http://p:1", "http_proxy": "http://p:1"}
    certificate = {"PIP_CERT": "/in/container.pem"}  # is too long for an argument
    image = plan(inputs=replace(INPUTS, network=network(**proxies, **certificate))).needed_image
    assert image.build_arguments == {**proxies, "PLATFORM": "cpu"}
    assert image.tag == plan().needed_image.tag


def test_the_offline_base_replaces_only_the_platforms_own_base() -> None:
    own = plan().needed_image
    assert own.base_image == PLATFORMS["cpu"].base_image
    assert own.offline_base_image == OFFLINE_BASE_IMAGE
    assert own.offline_base_command == ("docker/make-base-image",)
    sites = plan(inputs=replace(INPUTS, base_image="registry.example/python:3.11")).needed_image
    assert (sites.offline_base_image, sites.offline_base_command) == (None, None)
    config = {**CONFIG, "platforms": {"ascend": {}}}
    named = plan(config, replace(INPUTS, base_image=OFFLINE_BASE_IMAGE)).needed_image
    assert (named.base_image, named.offline_base_image) == (OFFLINE_BASE_IMAGE,) * 2


def test_a_row_lists_only_as_many_files_as_can_be_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ci.facts.platform_result.LARGEST_PART", 100)
    planned = plan(inputs=replace(INPUTS, results=tmp_path))
    planned.results.mkdir()
    for number in range(9):
        (planned.results / f"{number}.log").touch()
    result = not_run_result(planned, "the agent's events are of another version")
    assert result.artifacts == {f"{n}.log": f"cpu/{n}.log" for n in range(4)}
    assert result.notes[-1] == "5 files not listed"


def test_a_note_is_masked_and_cut_with_its_parameters(tmp_path: Path) -> None:
    planned = plan(inputs=replace(INPUTS, results=tmp_path))
    planned.results.mkdir()
    facts = ExecutionFacts(engine="docker", notes=(f"https://me:secret@host {'x' * 10_000}",))
    files = ResultFiles(folder=planned.results, stages=planned.stages)
    [note] = judged_result(planned, facts, files).findings[-1:]
    assert note.text == f"https://***@host {'x' * 10_000}"[:LONGEST_TEXT]
    assert (note.code, note.parameters) == (reported.code, {"text": note.text})


def test_a_run_that_searches_a_commit_is_marked(tmp_path: Path) -> None:
    for command in ("bisect", None):
        inputs = replace(INPUTS, results=tmp_path, options=RunOptions(asked_by=command))
        planned = plan(inputs=inputs)
        planned.results.mkdir(exist_ok=True)
        files = ResultFiles(folder=planned.results, stages=planned.stages)
        judged = judged_result(planned, ExecutionFacts(engine="docker"), files)
        assert judged.asked_by == command
        assert not_run_result(planned, "no space is left").asked_by == command


def test_only_containers_can_lose_their_network(tmp_path: Path) -> None:
    stages = [{"name": "t", "command": "pytest", "kind": "pytest", "network": "none"}]
    planned = plan({**CONFIG, "stages": stages})
    assert [stage.isolated for stage in planned.stages] == [True]
    in_container, on_host = container_job(planned), host_job(planned, tmp_path)
    jobs = [json.loads(job)["stages"][0] for job in (in_container, on_host)]
    assert [job["isolated"] for job in jobs] == [True, False]
    [with_network] = plan().stages[-1:]
    assert not with_network.isolated
    # The stage may wait as long as it may run.
    free = replace(planned, stages=tuple(replace(it, isolated=False) for it in planned.stages))
    assert planned.longest_s == free.longest_s + planned.stages[0].timeout_s
