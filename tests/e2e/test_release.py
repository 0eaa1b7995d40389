"""The release of all seven platforms, in seven containers, without a vendor's hardware.

With some operators on one platform of each kind, and with all of them on all platforms where
complete tests are asked for.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from conftest import engine_or_skip
from plans import SELECTED, SELECTION

from ci.platforms import PLATFORMS, Platform

pytestmark = pytest.mark.docker

ROOT = Path(__file__).resolve().parents[2]
CONFIG = "tests/simulated/ci.yaml"
NO_DEVICE = [name for name, platform in PLATFORMS.items() if not platform.is_simulable]
SIMULATED = [name for name in PLATFORMS if name not in ("cpu", *NO_DEVICE)]

Row = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Release:
    """What is released, and what has to be there then."""

    name: str
    platforms: tuple[str, ...]
    arguments: tuple[str, ...]
    suite: str
    overloads: int
    passed: int
    passed_simulated: int
    passed_without_device: int  # tests


NARROW = Release(
    name="narrow",
    platforms=("cpu", NO_DEVICE[0], SIMULATED[0]),
    arguments=("cpu", NO_DEVICE[0], SIMULATED[0], "--select", SELECTION),
    suite="suite of the selected operators passed",
    overloads=SELECTED,
    passed=SELECTED,
    passed_simulated=SELECTED,
    passed_without_device=100,
)
ALL = Release(
    name="all",
    platforms=tuple(PLATFORMS),
    arguments=("--all",),
    suite="full suite passed",
    overloads=1400,
    passed=1300,
    passed_simulated=1250,  # no sparse tensors, for one
    passed_without_device=2500,
)
of_each_platform = pytest.mark.parametrize(
    ("release", "platform"),
    [
        pytest.param(release, PLATFORMS[name], marks=marks, id=f"{release.name}-{name}")
        for release, marks in ((NARROW, ()), (ALL, pytest.mark.complete))
        for name in release.platforms
    ],
)


@pytest.fixture(scope="module")
def released(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Release], tuple[Path, int]]:
    """Makes each release once: its results folder, and how it ended."""
    engine_or_skip("docker")

    @cache
    def run(release: Release) -> tuple[Path, int]:
        folder = tmp_path_factory.mktemp("release")
        options = ["--config", CONFIG, "--engine", "docker", "--results", folder]
        finished = subprocess.run(
            [sys.executable, "-m", "ci", "run", *release.arguments, *options],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        print(finished.stdout)
        return folder / "latest", finished.returncode

    return run


@pytest.fixture
def results(released: Callable[[Release], tuple[Path, int]], release: Release) -> Path:
    """The results folder of the release, which ended well."""
    folder, exit_code = released(release)
    assert exit_code == 0
    return folder


@pytest.fixture
def document(results: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((results / "results.json").read_text())
    return found


@pytest.fixture
def row(document: dict[str, Any], platform: Platform) -> Row:
    [found] = (row for row in document["platforms"] if row["platform"] == platform.name)
    return found


def recorded(folder: Path) -> list[dict[str, Any]]:
    """What each operator test says of itself."""
    reports = map(json.loads, (folder / "pytest.jsonl").read_text().splitlines())
    known = [dict(report["user_properties"]) for report in reports if report.get("when") == "call"]
    return [properties for properties in known if "overload" in properties]


@pytest.mark.parametrize(
    "release", [NARROW, pytest.param(ALL, marks=pytest.mark.complete)], ids=lambda each: each.name
)
def test_all_platforms_are_rows_of_one_table(
    results: Path, document: dict[str, Any], release: Release
) -> None:
    labels = [PLATFORMS["cpu"].label]
    labels += [f"{PLATFORMS[name].label} (simulated)" for name in release.platforms[1:]]
    assert document["engine"] == "docker"
    assert [row["platform"] for row in document["platforms"]] == list(release.platforms)
    assert [row["label"] for row in document["platforms"]] == labels
    table = (results / "results.md").read_text().splitlines()
    assert [line.split(" | ")[0] for line in table if " | Yes | " in line] == [
        f"| {label}" for label in labels
    ]


@of_each_platform
def test_a_platform_is_built_and_passes(row: Row, platform: Platform) -> None:
    assert row["built"] is True
    assert row["simulated"] is (platform.name != "cpu")
    assert (row["verdict"]["product"], row["verdict"]["harness"]) == ("passed", "clean")
    assert (row["pytest"]["failed"], row["pytest"]["errors"]) == (0, 0)
    assert all(stage["exit_code"] == 0 for stage in row["stages"])


@of_each_platform
def test_a_platform_runs_in_a_container_of_its_own_image(row: Row, platform: Platform) -> None:
    engine = row["environment"]["engine"]
    assert engine["name"] == "docker"
    assert engine["image"]["reference"].startswith(f"infini-ci/{platform.name}:")


@of_each_platform
def test_only_simulated_devices_are_built_and_tested_themselves(
    row: Row, platform: Platform
) -> None:
    stages = [stage["name"] for stage in row["stages"]]
    simulated = ["simulated-device", "simulated-device-tests"] * (platform.name in SIMULATED)
    assert stages == ["image", "sync", "generate", "install", *simulated, "pytest"]


@of_each_platform
def test_what_counts_is_of_the_platforms_own_device(
    row: Row, platform: Platform, release: Release
) -> None:
    assert {count["device"] for count in row["overloads"]} == {platform.torch_device}
    assert {count["simulated"] for count in row["overloads"]} == {platform.name != "cpu"}
    [count] = (count for count in row["overloads"] if count["slot"] == 8)
    assert count["active"] >= release.overloads
    if platform.name in NO_DEVICE:
        assert (count["executed"], count["passed"]) == (0, 0)
        assert row["pytest"]["passed"] >= release.passed_without_device
    else:
        least = release.passed if platform.name == "cpu" else release.passed_simulated
        assert count["executed"] >= count["passed"] >= least


@of_each_platform
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


@of_each_platform
def test_notes_say_what_no_hardware_was_used_for(
    row: Row, platform: Platform, release: Release
) -> None:
    notes = "; ".join(row["notes"])
    assert "no contract" not in notes
    assert "base image" not in notes
    assert ("no vendor hardware was used" in notes) is (platform.name != "cpu")
    if platform.name in NO_DEVICE:
        assert release.suite not in notes
        assert "no device: compiled only, " in notes
    else:
        assert row["notes"][0] == release.suite


@of_each_platform
def test_times_can_be_explained(row: Row) -> None:
    seconds = {stage["name"]: stage["seconds"] for stage in row["stages"]}
    assert row["total_s"] == pytest.approx(row["build_install_s"] + row["pytest_s"])
    spent = row["environment"]["engine"]["seconds"]
    overhead = spent - sum(seconds.values()) + seconds["image"]
    assert 0 <= overhead < spent
    # Informative: machines differ.
    print(f"{row['label']}: {overhead:.1f} s beside its stages: {seconds}")
