"""The main job on this project itself, as the README's first command runs it.

With some operators on the engine that is chosen by itself; and with all of them on the host engine
where complete tests are asked for: the release of all platforms runs them in containers.
"""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
import tarfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from plans import SELECTED, SELECTION

ROOT = Path(__file__).resolve().parents[2]
LEAST_OVERLOADS = 1400


@pytest.fixture(scope="module", params=["some", pytest.param("all", marks=pytest.mark.complete)])
def operators(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory, operators: str) -> Path:
    """The results folder of a run."""
    folder = tmp_path_factory.mktemp("results")
    options = ["--select", SELECTION] if operators == "some" else ["--engine", "host"]
    finished = subprocess.run(
        [sys.executable, "-m", "ci", "run", "cpu", *options, "--results", folder],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    print(finished.stdout)
    assert finished.returncode == 0
    assert re.search(r"CPU +Yes +\d+ passed", finished.stdout)
    return folder


@pytest.fixture(scope="module")
def document(results: Path) -> dict[str, Any]:
    return json.loads((results / "latest" / "results.json").read_text())


@pytest.fixture(scope="module")
def row(document: dict[str, Any]) -> dict[str, Any]:
    (row,) = document["platforms"]
    return row


def test_the_verdict(row: dict[str, Any]) -> None:
    assert row["built"] is True
    assert (row["verdict"]["product"], row["verdict"]["harness"]) == ("passed", "clean")


def test_the_row_is_true_to_the_logs(results: Path, row: dict[str, Any]) -> None:
    folder = results / "latest" / "cpu"
    log = (folder / "pytest.log").read_text()
    assert row["pytest"]["summary"] in log.splitlines()[-1]
    suites = ElementTree.parse(folder / "junit.xml").getroot()  # noqa: S314 - pytest's own
    (suite,) = suites.iter("testsuite")
    assert int(suite.attrib["failures"]) == row["pytest"]["failed"] == 0
    assert int(suite.attrib["errors"]) == row["pytest"]["errors"] == 0
    assert int(suite.attrib["skipped"]) == row["pytest"]["skipped"]
    passed = int(suite.attrib["tests"]) - row["pytest"]["skipped"]
    assert passed == row["pytest"]["passed"]


def test_times_add_up(row: dict[str, Any]) -> None:
    seconds = {stage["name"]: stage["seconds"] for stage in row["stages"]}
    assert list(seconds) == ["image", "sync", "generate", "install", "pytest"]
    counted = {stage["name"] for stage in row["stages"] if stage["in_total"]}
    assert counted == {"generate", "install", "pytest"}
    assert row["build_install_s"] == pytest.approx(seconds["generate"] + seconds["install"])
    assert row["total_s"] == pytest.approx(row["build_install_s"] + row["pytest_s"])


def test_the_generated_source_is_kept(results: Path, operators: str) -> None:
    folder = results / "latest" / "cpu"
    with tarfile.open(folder / "generated.tar.gz") as archive:
        (name,) = [n for n in archive.getnames() if n.endswith("torch_ops_metadata.json")]
        member = archive.extractfile(name)
        assert member is not None
        metadata = json.load(member)
    assert len(metadata["ops"]) >= (SELECTED if operators == "some" else LEAST_OVERLOADS)
    packages = json.loads((folder / "environment.json").read_text())["packages"]
    assert metadata["torch_version"] == packages["torch"]
    assert "torch_kernels" in (folder / "ninja_log").read_text().replace("/", "_")


def test_the_store_has_the_run(results: Path, document: dict[str, Any]) -> None:
    with sqlite3.connect(results / "ci.db") as store:
        tables = {name for (name,) in store.execute("select name from sqlite_master")}
        assert {"runs", "stages", "details"} <= tables
        runs = [run for (run,) in store.execute("select run_id from runs")]
    assert runs == [document["run_id"]]


def test_the_report_shows_the_same(results: Path, row: dict[str, Any]) -> None:
    report = subprocess.run(
        [sys.executable, "-m", "ci", "report", "--format", "markdown", "--results", results],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert row["pytest"]["summary"] in report.stdout
    assert report.stdout == (results / "latest" / "results.md").read_text()
