"""The release of all seven platforms, in seven containers, without a vendor's hardware."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from conftest import engine_or_skip

from ci.platforms import PLATFORMS, Platform

pytestmark = pytest.mark.docker

ROOT = Path(__file__).resolve().parents[2]
CONFIG = "tests/simulated/ci.yaml"
LEAST_OVERLOADS = 1400
LEAST_PASSED = 1300
LEAST_PASSED_SIMULATED = 1250  # no sparse tensors, for one
LEAST_WITHOUT_DEVICE = 2500  # tests that pass where there is none

NO_DEVICE = [name for name, platform in PLATFORMS.items() if not platform.is_simulable]
SIMULATED = [name for name in PLATFORMS if name not in ("cpu", *NO_DEVICE)]

Row = Mapping[str, Any]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results folder of the release, which ended well."""
    engine_or_skip("docker")
    folder = tmp_path_factory.mktemp("release")
    options = ["--all", "--config", CONFIG, "--engine", "docker", "--results", folder]
    finished = subprocess.run(
        [sys.executable, "-m", "ci", "run", *options],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    print(finished.stdout)
    assert finished.returncode == 0
    return folder / "latest"


@pytest.fixture(scope="module")
def document(results: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((results / "results.json").read_text())
    return found


@pytest.fixture(scope="module")
def rows(document: dict[str, Any]) -> dict[str, Row]:
    return {row["platform"]: row for row in document["platforms"]}


@pytest.fixture(params=PLATFORMS.values(), ids=lambda platform: platform.name)
def platform(request: pytest.FixtureRequest) -> Platform:
    found: Platform = request.param
    return found


@pytest.fixture
def row(rows: dict[str, Row], platform: Platform) -> Row:
    return rows[platform.name]


def recorded(folder: Path) -> list[dict[str, Any]]:
    """What each operator test says of itself."""
    reports = map(json.loads, (folder / "pytest.jsonl").read_text().splitlines())
    known = [dict(report["user_properties"]) for report in reports if report.get("when") == "call"]
    return [properties for properties in known if "overload" in properties]


def test_all_platforms_are_rows_of_one_table(results: Path, document: dict[str, Any]) -> None:
    labels = [PLATFORMS["cpu"].label]
    labels += [f"{platform.label} (simulated)" for platform in list(PLATFORMS.values())[1:]]
    assert document["engine"] == "docker"
    assert [row["platform"] for row in document["platforms"]] == list(PLATFORMS)
    assert [row["label"] for row in document["platforms"]] == labels
    table = (results / "results.md").read_text().splitlines()
    assert [line.split(" | ")[0] for line in table if " | Yes | " in line] == [
        f"| {label}" for label in labels
    ]


def test_a_platform_is_built_and_passes(row: Row, platform: Platform) -> None:
    assert row["built"] is True
    assert row["simulated"] is (platform.name != "cpu")
    assert (row["verdict"]["product"], row["verdict"]["harness"]) == ("passed", "clean")
    assert (row["pytest"]["failed"], row["pytest"]["errors"]) == (0, 0)
    assert all(stage["exit_code"] == 0 for stage in row["stages"])


def test_a_platform_runs_in_a_container_of_its_own_image(row: Row, platform: Platform) -> None:
    engine = row["environment"]["engine"]
    assert engine["name"] == "docker"
    assert engine["image"]["reference"].startswith(f"infini-ci/{platform.name}:")


def test_only_simulated_devices_are_built_and_tested_themselves(
    row: Row, platform: Platform
) -> None:
    stages = [stage["name"] for stage in row["stages"]]
    simulated = ["simulated-device", "simulated-device-tests"] * (platform.name in SIMULATED)
    assert stages == ["image", "sync", "generate", "install", *simulated, "pytest"]


def test_what_counts_is_of_the_platforms_own_device(row: Row, platform: Platform) -> None:
    assert {count["device"] for count in row["overloads"]} == {platform.torch_device}
    assert {count["simulated"] for count in row["overloads"]} == {platform.name != "cpu"}
    [count] = (count for count in row["overloads"] if count["slot"] == 8)
    assert count["active"] >= LEAST_OVERLOADS
    if platform.name in NO_DEVICE:
        assert (count["executed"], count["passed"]) == (0, 0)
        assert row["pytest"]["passed"] >= LEAST_WITHOUT_DEVICE
    else:
        least = LEAST_PASSED if platform.name == "cpu" else LEAST_PASSED_SIMULATED
        assert count["executed"] >= count["passed"] >= least


def test_every_operator_test_says_where_it_ran(results: Path, platform: Platform) -> None:
    hardware = "cpu" if platform.name == "cpu" else None
    found = recorded(results / platform.name)
    assert {(each["platform"], each["device"]) for each in found} == {
        (platform.name, platform.torch_device)
    }
    ran = {(each["ran_device"], each["ran_platform"]) for each in found if each.get("executed")}
    assert ran == (set() if platform.name in NO_DEVICE else {(platform.torch_device, hardware)})
    if platform.name in NO_DEVICE:
        assert {each["reason"] for each in found} == {"no device"}


def test_notes_say_what_no_hardware_was_used_for(row: Row, platform: Platform) -> None:
    notes = "; ".join(row["notes"])
    assert "no contract" not in notes
    assert "base image" not in notes
    assert ("no vendor hardware was used" in notes) is (platform.name != "cpu")
    if platform.name in NO_DEVICE:
        assert "full suite passed" not in notes
        assert "no device: compiled only, " in notes
    else:
        assert row["notes"][0] == "full suite passed"


def test_times_can_be_explained(row: Row) -> None:
    seconds = {stage["name"]: stage["seconds"] for stage in row["stages"]}
    assert row["total_s"] == pytest.approx(row["build_install_s"] + row["pytest_s"])
    spent = row["environment"]["engine"]["seconds"]
    overhead = spent - sum(seconds.values()) + seconds["image"]
    assert 0 <= overhead < spent
    # Informative: machines differ.
    print(f"{row['label']}: {overhead:.1f} s beside its stages: {seconds}")
