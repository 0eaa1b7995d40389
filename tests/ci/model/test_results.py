"""``results.json``: the contract's fields, exit codes, atomic writes."""

from __future__ import annotations

import json
import resource
from pathlib import Path

import jsonschema
import pytest

from ci.errors import InfrastructureError
from ci.model.results import SCHEMA_VERSION, PlatformResult, RunResult, results_schema
from ci.model.verdicts import Product
from ci.store.folder import read_results
from ci.util.files import write_atomically
from tests.ci.published import PUBLISHED, platform_result

DATA = Path(__file__).parents[1] / "data"


def test_results_are_read_back(published: RunResult, tmp_path: Path) -> None:
    path = tmp_path / "run" / "results.json"
    write_atomically(path, published.to_json())
    assert read_results(path) == published
    assert [entry.name for entry in path.parent.iterdir()] == ["results.json"]


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"schema_version": 1', '{"schema_version": 12}'])
def test_another_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "results.json"
    path.write_text(text)
    with pytest.raises(
        InfrastructureError, match="expected a results file of version 11 or older"
    ) as it:
        read_results(path)
    assert "\n" not in str(it.value)


def test_an_invalid_number_is_refused(published: RunResult, tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    for number, fault in {
        "1e999": "got 1e999, which is not finite",
        "-Infinity": "got -Infinity, which is not JSON",
        "1e300": r"platforms\.0\.build_install_s: Input should be less than .*, got 1e\+300",
        "-1": r"platforms\.0\.build_install_s: Input should be greater than or equal to 0, got -1",
        '"many"': r"platforms\.0\.build_install_s: Input should be a valid number, got 'many'",
        '"12"': r"platforms\.0\.build_install_s: Input should be a valid number, got '12'",
        "true": r"platforms\.0\.build_install_s: Input should be a valid number, got True",
    }.items():
        path.write_text(published.to_json().replace("888.75", number))
        with pytest.raises(InfrastructureError, match=fault):
            read_results(path)


# Each is one run as the program of that version wrote it: see data/README.md.
VERSIONS = range(1, SCHEMA_VERSION + 1)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_file_of_every_version_is_read(version: int) -> None:
    text = (DATA / f"results-{version}.json").read_text(encoding="utf-8")
    document = json.loads(text)
    assert document["schema_version"] == version
    read = read_results(DATA / f"results-{version}.json")
    assert read.schema_version == SCHEMA_VERSION
    cpu, ascend = read.platforms
    assert (cpu.pytest and cpu.pytest.passed, ascend.verdict.product) == (9486, Product.FAILED)
    # What a version did not have yet is empty; what it had is read.
    assert bool(cpu.overloads) is (version >= 2)
    assert [(it.simulated, it.kernels) for it in cpu.overloads] == [(False, {})] * (version >= 2)
    assert ascend.simulated is (version >= 3)
    assert (cpu.build is not None) is (version >= 4)
    assert read.lineage.branch == ("feature" if version >= 5 else None)
    assert [it.message for it in ascend.failures] == ["assert 1 == 2"] * (version >= 6)
    assert [it.shard for it in ascend.shards] == [1, 2] * (version >= 8)
    found = [*ascend.verdict.evidence, *ascend.findings]
    assert [it.code is not None for it in found] == [version >= 9] * 2
    assert [it.unit for it in cpu.benchmarks] == ["s", "images/s"] * (version >= 10)
    assert ascend.notes == tuple(json.loads(text)["platforms"][1]["notes"])


@pytest.mark.parametrize("version", VERSIONS)
def test_a_file_of_every_version_matches_the_schema(version: int) -> None:
    document = json.loads((DATA / f"results-{version}.json").read_text(encoding="utf-8"))
    validator = jsonschema.Draft202012Validator(json.loads(results_schema()))
    validator.validate(document)
    document["platforms"][0]["unknown"] = 1
    document["schema_version"] = SCHEMA_VERSION + 1
    del document["platforms"][1]["verdict"]
    assert {error.validator for error in validator.iter_errors(document)} == {
        *("additionalProperties", "maximum", "required"),
    }


def test_the_newest_file_has_every_field() -> None:
    text = (DATA / f"results-{SCHEMA_VERSION}.json").read_text(encoding="utf-8")
    assert read_results(DATA / f"results-{SCHEMA_VERSION}.json").to_json() == text


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError, match=r"results\.json: cannot be read"):
        read_results(tmp_path / "results.json")


def test_a_full_disk_is_reported_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, before[1]))  # as a disk with a byte of room
    try:
        with pytest.raises(OSError, match=rf"File too large: '{path}'$"):
            write_atomically(path, "new")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_leaves_the_old_content(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    write_atomically(path, "old")
    with pytest.raises(UnicodeEncodeError, match="surrogates not allowed"):
        write_atomically(path, "new \ud800")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("platform", "label", "simulated", "shown"),
    [
        ("ascend", "Ascend (simulated)", True, "Ascend (simulated device)"),
        ("nvidia", "My GPU (simulated)", True, "My GPU (compiled only)"),
        ("unknown", "X (simulated)", True, "X (simulated device)"),
        ("ascend", "Ascend (simulated)", False, "Ascend (simulated)"),
        ("ascend", "Ascend (simulated device)", True, "Ascend (simulated device)"),
    ],
)
def test_labels_of_earlier_versions_name_the_kind_of_device(
    platform: str, label: str, simulated: bool, shown: str
) -> None:
    result = platform_result("X", PUBLISHED[0][1:])
    document = result.model_dump(mode="json") | {"platform": platform, "label": label}
    read = PlatformResult.model_validate({**document, "simulated": simulated})
    assert read.label == shown
