"""How containers get access to devices, and the data about them for the agent: pure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ci.engines.devices import DeviceFiles, check_exposure, container_devices, exposure_of
from ci.engines.docker.engine import container_description
from ci.engines.job import container_options, job_document
from ci.errors import ConfigError
from ci.model.plan import DevicePlan, Exposure, RunPlan
from ci.model.platforms import PLATFORMS
from tests.ci.made_plans import device_plan

ACCELERATORS = [name for name, platform in PLATFORMS.items() if platform.devices]


def job_of(plan: RunPlan, **more: Any) -> dict[str, Any]:
    where: dict[str, Any] = {"workspace": "/w", "results": "/r", "printed_bytes_per_s": 1}
    job: dict[str, Any] = json.loads(job_document(plan, **where, **more))
    return job


def devices_of(plan: RunPlan) -> DevicePlan:
    assert plan.devices is not None
    return plan.devices


@pytest.mark.parametrize("name", ACCELERATORS)
def test_every_vendor_has_its_way(tmp_path: Path, name: str) -> None:
    devices = devices_of(device_plan(tmp_path, name))
    expected = Exposure.REQUEST if name == "nvidia" else Exposure.FILES
    assert exposure_of(devices) is expected
    check_exposure(name, devices)
    options = container_devices(devices)
    assert ("device_requests" in options) is (name == "nvidia")
    assert ("devices" in options) is (name != "nvidia")
    assert "privileged" not in options
    assert options["volumes"][0] == "/run/lock/infini-ci:/run/lock/infini-ci"


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ({}, {"Count": -1, "DeviceIDs": []}),
        ({"uuids": ["GPU-1", "GPU-2"], "count": 2}, {"DeviceIDs": ["GPU-1", "GPU-2"], "Count": 0}),
    ],
)
def test_a_request_has_the_devices_of_the_policy(
    tmp_path: Path, policy: dict[str, Any], expected: dict[str, Any]
) -> None:
    [request] = container_devices(devices_of(device_plan(tmp_path, "nvidia", **policy)))[
        "device_requests"
    ]
    assert request.items() >= expected.items()
    assert request["Capabilities"] == [["gpu", "compute", "utility"]]


def test_files_are_those_of_the_machine(tmp_path: Path) -> None:
    devices = devices_of(device_plan(tmp_path, "ascend"))
    found = DeviceFiles(files=("/dev/davinci0",), mounts=("/usr/local/dcmi",), groups=(1000,))
    assert container_devices(devices, found) == {
        "devices": ["/dev/davinci0:/dev/davinci0:rw"],
        "volumes": [
            "/run/lock/infini-ci:/run/lock/infini-ci",
            "/usr/local/dcmi:/usr/local/dcmi:ro",
        ],
        "group_add": ["1000"],
    }


@pytest.mark.parametrize("name", ["ascend", "metax"])
def test_a_way_that_the_vendor_has_not(tmp_path: Path, name: str) -> None:
    devices = devices_of(device_plan(tmp_path, name, exposure="request"))
    message = rf"^platforms\.{name}\.devices\.exposure: got 'request', expected one of cdi, files$"
    with pytest.raises(ConfigError, match=message):
        check_exposure(name, devices)


def test_only_a_platform_that_requests_it_gets_a_privileged_container(tmp_path: Path) -> None:
    plan = device_plan(tmp_path, "iluvatar", privileged=True)
    assert container_options(plan)["privileged"] is True
    assert "privileged" not in container_options(device_plan(tmp_path, "iluvatar"))


def test_a_run_without_devices_has_none_of_it(tmp_path: Path) -> None:
    plan = device_plan(tmp_path, "nvidia", count=0)
    options = container_options(plan)
    assert not options.keys() & {"device_requests", "devices", "group_add", "privileged"}
    assert options["volumes"] == ["infini-ci-cache-tiny-nvidia-branch:/cache:nocopy"]
    assert job_of(plan)["devices"] is None
    assert container_options(device_plan(tmp_path, "metax", count=0))["ulimits"] == []


def test_the_driver_s_limits_are_the_container_s(tmp_path: Path) -> None:
    limits = container_options(device_plan(tmp_path, "metax"))["ulimits"]
    assert [(limit.name, limit.soft, limit.hard) for limit in limits] == [
        ("memlock", -1, -1),
        ("stack", 64 * 2**20, 64 * 2**20),
    ]


@pytest.mark.parametrize(
    ("name", "policy", "shown"),
    [
        ("nvidia", {"exposure": "cdi"}, '"DeviceIDs": ["nvidia.com/gpu=all"]'),
        ("metax", {}, '{"Name": "memlock", "Soft": -1, "Hard": -1}'),
        ("ascend", {}, '"/dev/davinci[0-9]*:/dev/davinci[0-9]*:rw"'),
        ("ascend", {}, '"/usr/local/Ascend/driver:/usr/local/Ascend/driver:ro"'),
    ],
)
def test_a_dry_run_shows_the_way(
    tmp_path: Path, name: str, policy: dict[str, Any], shown: str
) -> None:
    described = container_description(device_plan(tmp_path, name, **policy))
    assert shown in json.dumps(described["container"])
    assert '"/run/lock/infini-ci:/run/lock/infini-ci"' in json.dumps(described["container"])


def test_the_agent_gets_the_policy_and_the_probe(tmp_path: Path) -> None:
    plan = device_plan(tmp_path, "cambricon", uuids=["MLU-1"], wait_s=5)
    document = job_of(plan, probe=("python", "devices.py"))
    devices = document["devices"]
    assert devices.pop("user").count("@") == 1
    assert devices == {
        "count": 1,
        "uuids": ["MLU-1"],
        "wait_s": 5,
        "busy_memory": 0.1,
        "folder": "/run/lock/infini-ci",
        "probe": ["python", "devices.py", "cambricon"],
        "visible": "MLU_VISIBLE_DEVICES",
        "visible_by": "index",
        "shards": 1,
    }
    assert [stage["device"] for stage in document["stages"]] == [False, True]
