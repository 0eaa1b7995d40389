"""The main job on this project itself: its release, without a vendor's hardware.

The default is some operators on the CPU. If complete tests are requested: every platform, in a
container of its own. Of platforms whose contracts are the same, the first one has all operators.
Those whose device a plug-in adds to torch have a simulated device.

The host engine releases this project in test_shipped_artifact.py and in test_fresh_machine.py.
"""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import subprocess
import sys
import tarfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from ci.facts.sentences import on_rows
from ci.model.platforms import PLATFORMS, Platform
from ci.model.results import selected_title, title
from ci.model.verdicts import Evidence
from tests.e2e.benches import USUAL_ENGINE, engine_or_skip

ROOT = Path(__file__).resolve().parents[2]
SIMULATION = ("--config", "tests/simulated/ci.yaml")
NO_DEVICE = [name for name, platform in PLATFORMS.items() if not platform.is_simulable]
SIMULATED = [name for name in PLATFORMS if name not in ("cpu", *NO_DEVICE)]
# A twin has the library of another platform, but for the name of the device, and its contract adds
# nothing to the other's: a whole suite would prove once more what it proves there.
CONTRACTS = ROOT / "tests" / "simulated" / "contracts"
LIKE_ITS_BASE = re.compile(r"^base: \w+\.yaml$.*^operators: \{\}\ntests: \{\}$", re.M | re.S)
TWINS = tuple(
    name for name in PLATFORMS if LIKE_ITS_BASE.search((CONTRACTS / f"{name}.yaml").read_text())
)
FIRST = tuple(name for name in PLATFORMS if name not in TWINS)

Row = Mapping[str, Any]
Made = tuple[Path, subprocess.CompletedProcess[str]]


@dataclass(frozen=True, kw_only=True)
class Release:
    """A release, and the results that it must have."""

    name: str
    platforms: tuple[str, ...]
    arguments: tuple[str, ...]
    engine: str
    suite: Evidence = field(hash=False)
    """The first note on the row of a platform whose tests ran."""
    overloads: int
    passed: int
    """Overloads on the CPU."""
    passed_simulated: int
    """Overloads on a simulated device."""
    passed_without_device: int
    """Tests that need no device."""


# Each is a kind of its own, add one with a hand-written kernel.
SELECTION, SELECTED = "abs,add,mul_", 5  # overloads
NARROW = Release(
    name="narrow",
    platforms=("cpu",),
    arguments=("cpu", "--select", SELECTION, *SIMULATION),
    engine=USUAL_ENGINE,
    suite=on_rows.selected_suite(),
    overloads=SELECTED,
    passed=SELECTED,
    passed_simulated=SELECTED,
    passed_without_device=400,
)
WHOLE = Release(
    name="whole",
    platforms=FIRST,
    arguments=(*FIRST, *SIMULATION),
    engine="docker",
    suite=on_rows.full_suite(),
    overloads=1400,
    passed=1300,
    passed_simulated=1250,  # no sparse tensors, for one
    passed_without_device=2500,
)
OF_TWINS = replace(
    NARROW,
    name="twins",
    platforms=TWINS,
    arguments=(*TWINS, "--select", SELECTION, *SIMULATION),
    engine="docker",
)
MARKS = {
    NARROW: [pytest.mark.docker] if USUAL_ENGINE == "docker" else [],
    WHOLE: [pytest.mark.docker, pytest.mark.complete],
    OF_TWINS: [pytest.mark.docker, pytest.mark.complete],
}
of_each_release = pytest.mark.parametrize(
    "release", [pytest.param(each, marks=marks, id=each.name) for each, marks in MARKS.items()]
)
of_each_platform = pytest.mark.parametrize(
    ("release", "platform"),
    [
        pytest.param(release, PLATFORMS[name], marks=marks, id=f"{release.name}-{name}")
        for release, marks in MARKS.items()
        for name in release.platforms
    ],
)


def ci(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ci", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def make(release: Release, folder: Path) -> Made:
    engine_or_skip(release.engine).close()
    options = ["--engine", release.engine, "--results", folder]
    return folder, ci("run", *release.arguments, *options)


@pytest.fixture(scope="module")
def released(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[Release], Made]]:
    """Makes two of the selected releases at once; returns the folder of one, and how it ended."""
    items = (item for item in request.session.items if item.path == request.path)
    selected = {item.callspec.params["release"] for item in items if hasattr(item, "callspec")}
    with ThreadPoolExecutor(max_workers=2) as pool:
        made = {
            release: pool.submit(make, release, tmp_path_factory.mktemp("release"))
            for release in MARKS
            if release in selected
        }

        def wait(release: Release) -> Made:
            folder, finished = made[release].result()
            print(finished.stdout, finished.stderr)
            return folder, finished

        yield wait


@pytest.fixture
def results(released: Callable[[Release], Made], release: Release) -> Path:
    """The results folder of the release, which ended well. Its store is in the folder above."""
    folder, finished = released(release)
    assert finished.returncode == 0
    for name in release.platforms:
        row = rf"^ *{PLATFORMS[name].label}( \(.*\))? +Yes +\d+ passed"
        assert re.search(row, finished.stdout, re.MULTILINE)
    return folder / "latest"


@pytest.fixture
def document(results: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((results / "results.json").read_text())
    return found


@pytest.fixture
def row(document: dict[str, Any], platform: Platform) -> Row:
    rows: list[Row] = document["platforms"]
    [found] = (row for row in rows if row["platform"] == platform.name)
    return found


def recorded(folder: Path) -> list[dict[str, Any]]:
    """Return the properties that each operator test records."""
    reports = map(json.loads, (folder / "pytest.jsonl").read_text().splitlines())
    known = [dict(report["user_properties"]) for report in reports if report.get("when") == "call"]
    return [properties for properties in known if "overload" in properties]


@of_each_release
def test_all_platforms_are_rows_of_one_table(
    results: Path, document: dict[str, Any], release: Release
) -> None:
    selected = SELECTION if "--select" in release.arguments else None
    labels = [
        selected_title(title(PLATFORMS[name].label, name, simulated=name != "cpu"), selected)
        for name in release.platforms
    ]
    assert document["engine"] == release.engine
    assert [row["platform"] for row in document["platforms"]] == list(release.platforms)
    assert [row["label"] for row in document["platforms"]] == labels
    table = (results / "results.md").read_text().splitlines()
    assert [line.split(" | ")[0] for line in table if " | Yes | " in line] == [
        f"| {label}".replace("_", "\\_") for label in labels
    ]


@of_each_platform
def test_a_platform_is_built_and_passes(row: Row, platform: Platform) -> None:
    assert row["built"] is True
    assert row["simulated"] is (platform.name != "cpu")
    assert (row["verdict"]["product"], row["verdict"]["harness"]) == ("passed", "clean")
    assert (row["pytest"]["failed"], row["pytest"]["errors"]) == (0, 0)
    assert all(stage["exit_code"] == 0 for stage in row["stages"])


@of_each_platform
def test_a_platform_runs_in_a_container_of_its_own_image(
    row: Row, platform: Platform, release: Release
) -> None:
    engine = row["environment"]["engine"]
    assert engine["name"] == release.engine
    if release.engine == "docker":
        assert engine["image"]["reference"].startswith(f"infini-ci/{platform.name}:")


@of_each_platform
def test_only_simulated_devices_are_built_and_tested_themselves(
    row: Row, platform: Platform
) -> None:
    stages = [stage["name"] for stage in row["stages"]]
    simulated = ["simulated-device", "simulated-device-tests"] * (platform.name in SIMULATED)
    assert stages == ["image", "sync", "generate", "wheel", "install", *simulated, "pytest"]


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
    codes = [it["code"] for it in row["findings"]]
    assert on_rows.no_contract.code not in codes
    assert "base image" not in "; ".join(row["notes"])
    without_hardware = {on_rows.simulated_device.code, on_rows.compiled_only.code}
    assert bool(without_hardware.intersection(codes)) is (platform.name != "cpu")
    if platform.name in NO_DEVICE:
        assert release.suite.code not in codes
        [note] = [it for it in row["findings"] if it["code"] == on_rows.compiled_only.code]
        assert note["parameters"]["skipped"]
    else:
        assert row["findings"][0]["code"] == release.suite.code


@of_each_platform
def test_times_can_be_explained(row: Row) -> None:
    seconds = {stage["name"]: stage["seconds"] for stage in row["stages"]}
    counted = {stage["name"] for stage in row["stages"] if stage["in_total"]}
    assert counted == {"generate", "wheel", "install", "pytest"}
    built = seconds["generate"] + seconds["wheel"] + seconds["install"]
    assert row["build_install_s"] == pytest.approx(built)
    assert row["total_s"] == pytest.approx(row["build_install_s"] + row["pytest_s"])
    spent = row["environment"]["engine"]["seconds"]
    overhead = spent - sum(seconds.values()) + seconds["image"]
    assert 0 <= overhead < spent
    # Informative: machines differ.
    print(f"{row['label']}: {overhead:.1f} s beside its stages: {seconds}")


@of_each_platform
def test_the_row_is_true_to_the_logs(results: Path, row: Row, platform: Platform) -> None:
    folder = results / platform.name
    log = (folder / "pytest.log").read_text()
    assert row["pytest"]["summary"] in log.splitlines()[-1]
    suites = ElementTree.parse(folder / "junit.xml").getroot()  # noqa: S314 - pytest's own
    (suite,) = suites.iter("testsuite")
    assert int(suite.attrib["failures"]) == row["pytest"]["failed"] == 0
    assert int(suite.attrib["errors"]) == row["pytest"]["errors"] == 0
    assert int(suite.attrib["skipped"]) == row["pytest"]["skipped"]
    passed = int(suite.attrib["tests"]) - row["pytest"]["skipped"]
    assert passed == row["pytest"]["passed"]


@of_each_platform
def test_the_generated_source_is_kept(results: Path, platform: Platform, release: Release) -> None:
    folder = results / platform.name
    with tarfile.open(folder / "generated.tar.gz") as archive:
        (name,) = [n for n in archive.getnames() if n.endswith("torch_ops_metadata.json")]
        member = archive.extractfile(name)
        assert member is not None
        metadata = json.load(member)
    assert len(metadata["ops"]) >= release.overloads
    packages = json.loads((folder / "environment.json").read_text())["packages"]
    assert metadata["torch_version"] == packages["torch"]
    assert "torch_kernels" in (folder / "ninja_log").read_text().replace("/", "_")


@of_each_release
def test_the_store_has_the_run(results: Path, document: dict[str, Any]) -> None:
    with sqlite3.connect(results.parent / "ci.db") as store:
        runs = [run for (run,) in store.execute("select run_id from runs")]
        stored = dict(store.execute("select platform, document from platforms"))
        [(described,)] = store.execute("select count(*) from details")
    assert runs == [document["run_id"]]
    rows = {row["platform"]: row for row in document["platforms"]}
    assert {name: json.loads(text)["stages"] for name, text in stored.items()} == {
        name: row["stages"] for name, row in rows.items()
    }
    assert described == len(rows)


@of_each_release
def test_the_report_shows_the_same(results: Path, document: dict[str, Any]) -> None:
    report = ci("report", "--format", "markdown", "--results", results.parent)
    assert report.returncode == 0, report.stderr
    assert report.stdout == (results / "results.md").read_text()
    for row in document["platforms"]:
        assert row["pytest"]["summary"] in report.stdout


of_selected_operators = pytest.mark.parametrize(
    "release", [pytest.param(NARROW, marks=MARKS[NARROW], id="narrow")]
)


@of_selected_operators
def test_selected_operators_are_counted_as_such(document: dict[str, Any]) -> None:
    row = document["platforms"][0]
    assert row["notes"][1].startswith(f"selected {SELECTED} of 1,")
    assert not [note for note in row["notes"] if "contract" in note]
    selection = row["environment"]["selection"]
    assert (selection["operators"], selection["overloads"]) == (SELECTION, SELECTED)
    active = {count["slot"]: count["active"] for count in row["overloads"]}
    assert active == {0: 1, 8: SELECTED}


@of_selected_operators
def test_a_selected_test_that_is_missing_breaks_the_contract(results: Path, tmp_path: Path) -> None:
    """Planted into the log of the run, which is then judged once more."""
    planted = tmp_path / "results"
    shutil.copytree(results.parent, planted, symlinks=True)
    folder = planted / "latest"
    (folder / "results.json").unlink()
    log = folder / "cpu" / "pytest.jsonl"
    lines = log.read_text().splitlines(keepends=True)
    kept = [line for line in lines if "test_overload[abs.out-float32-cpu-slot8]" not in line]
    assert len(lines) - len(kept) == 3  # setup, call, teardown
    log.write_text("".join(kept))
    output = folder / "cpu" / "pytest.log"  # that one more was collected than ran is another fault
    output.write_text(output.read_text().replace(" items]", " items (planted)]"))
    finished = ci("run", "--resume", results.resolve().name, "--results", planted)
    assert finished.returncode == 1, finished.stdout + finished.stderr
    document = json.loads((folder / "results.json").read_text())
    notes = document["platforms"][0]["notes"]
    breach = "contract: 1 test vanished: float32 of abs.out (slot 8; was passed)"
    assert any(note.startswith(breach) for note in notes), notes


@of_selected_operators
def test_no_contract_comes_from_selected_operators(results: Path, tmp_path: Path) -> None:
    contract = tmp_path / "cpu.yaml"
    options = ("--config", SIMULATION[1], "--results", results.parent)
    finished = ci("contract", "cpu", *options, "--output", contract)
    assert finished.returncode == 2
    assert f"has only selected operators: {SELECTION}" in finished.stderr
    assert not contract.exists()
