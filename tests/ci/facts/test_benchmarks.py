"""Result files of benchmarks: those that tools wrote, the minimal form, and damaged ones."""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pytest

from bench.report import BenchReport, Conditions, Machine, as_json
from bench.rows import GOALS, Measurement
from ci.facts.benchmarks import LARGEST_BENCHMARKS, BenchmarkReading, read_benchmarks, within_limits
from ci.facts.measures import (
    Benchmark,
    Quantity,
    amount,
    headline,
    is_benchmark,
    is_worse,
    measure_key,
    measure_name,
    stage_and_quantity,
)
from ci.model.fields import LONGEST_BENCHMARK, MOST_BENCHMARKS
from ci.model.results import BenchmarkResult, Direction
from ci.protocol.agent_files import benchmark_file

DATA = Path(__file__).parents[1] / "data" / "benchmarks"
LOWER, HIGHER = Direction


def read(folder: Path, content: object) -> BenchmarkReading:
    """What is read of a file with this text, or with this content as JSON."""
    text = content if isinstance(content, str) else json.dumps(content)
    (folder / benchmark_file("bench")).write_text(text, encoding="utf-8")
    return read_benchmarks(folder, "bench")


def read_recorded(folder: Path, name: str) -> BenchmarkReading:
    return read(folder, (DATA / name).read_text(encoding="utf-8"))


def pack(folder: Path, source: Path) -> None:
    """Pack a folder of results as the agent does."""
    with tarfile.open(folder / f"{benchmark_file('bench')}.tar.gz", "w:gz") as archive:
        archive.add(source, source.name)


def figures(reading: BenchmarkReading) -> list[tuple[str, float, str, int | None]]:
    assert reading.fault is None
    assert {(it.stage, it.direction) for it in reading.results} == {("bench", LOWER)}
    return [(it.name, it.value, it.unit, it.repetitions) for it in reading.results]


def minimal(*rows: dict[str, Any]) -> dict[str, Any]:
    return {
        "benchmarks": [
            {"name": "a", "value": 1, "unit": "s", "direction": "lower"} | row for row in rows
        ]
    }


# What tools wrote


def test_pytest_benchmark(tmp_path: Path) -> None:
    assert figures(read_recorded(tmp_path, "pytest-benchmark.json")) == [
        ("test_b.py::test_sum", 6.069001756259241e-07, "s", 1044),
        ("test_b.py::test_sort[16]", 3.0550017982022837e-07, "s", 5),
        ("test_b.py::test_sort[64]", 5.055007932242006e-07, "s", 5),
    ]


@pytest.mark.parametrize(
    ("name", "values", "repetitions"),
    [
        ("google-benchmark.json", [6.023157745268277, 47.707805216376975, 0.05500086443881826], 1),
        # The medians, which the file has as well.
        (
            "google-benchmark-repeated.json",
            [6.350508246590033, 49.10481739516162, 0.05734162252640104],
            3,
        ),
    ],
)
def test_google_benchmark(tmp_path: Path, name: str, values: list[float], repetitions: int) -> None:
    found = read_recorded(tmp_path, name)
    units = {"BM_Sum/8": "ns", "BM_Sum/64": "ns", "BM_Ms": "ms"}
    expected = [(*it, repetitions) for it in zip(units, values, units.values(), strict=True)]
    assert figures(found) == expected
    assert found.without_value == ("BM_Bad",)  # SkipWithError


def test_google_benchmark_with_aggregates_alone(tmp_path: Path) -> None:
    content = json.loads((DATA / "google-benchmark-repeated.json").read_text(encoding="utf-8"))
    rows = [it for it in content["benchmarks"] if it["run_type"] == "aggregate"]
    found = figures(read(tmp_path, {**content, "benchmarks": rows}))
    assert [it[:2] for it in found] == [
        ("BM_Sum/8", 6.350508246590032),
        ("BM_Sum/64", 49.10481739516161),
        ("BM_Ms", 0.05734162252640104),
    ]


def test_hyperfine(tmp_path: Path) -> None:
    assert figures(read_recorded(tmp_path, "hyperfine.json")) == [
        ("nap", 0.001344583, "s", 3),
        ("sleep 0.01", 0.014920157000000002, "s", 3),
    ]


def test_asv(tmp_path: Path) -> None:
    """A folder; one combination of parameters failed, and bounds are infinite."""
    pack(tmp_path, DATA / "asv" / "results")
    found = read_benchmarks(tmp_path, "bench")
    assert figures(found) == [
        ("bench.Suite.time_sort(16, 'a')", 1.071599945134949e-05, "s", None),
        ("bench.Suite.time_sort(16, 'b')", 4.195999281364493e-06, "s", None),
        ("bench.Suite.time_sort(64, 'a')", 4.065999746671878e-06, "s", None),
        ("bench.Suite.time_sort(64, 'b')", 4.015999365947209e-06, "s", None),
        ("bench.Suite.track_bytes(16, 'a')", 128.0, "bytes", None),
        ("bench.Suite.track_bytes(16, 'b')", 128.0, "bytes", None),
        ("bench.Suite.track_bytes(64, 'a')", 512.0, "bytes", None),
        ("bench.mem_list", 2104.0, "bytes", None),
        ("bench.time_sum", 2.3630000214325264e-06, "s", None),
    ]
    assert found.without_value == ("bench.Suite.track_bytes(64, 'b')",)


def test_asv_in_two_environments_is_ambiguous(tmp_path: Path) -> None:
    source = shutil.copytree(DATA / "asv" / "results", tmp_path / "results")
    file = next(source.glob("machine/*existing*"))
    shutil.copy(file, file.with_name("another.json"))
    pack(tmp_path, source)
    fault = read_benchmarks(tmp_path, "bench").fault
    assert fault == (
        "duplicate benchmark \"bench.Suite.time_sort(16, 'a')\": expected each name once"
    )


def test_our_own_report(tmp_path: Path) -> None:
    machine = Machine(
        cpu_model="a CPU",
        cores=2,
        memory_mb=1,
        load_average=(0.0, 0.0, 0.0),
        system="Linux",
        python="3.11",
        torch="",
        compiler="",
        cmake="",
    )
    conditions = Conditions(
        started_at="2026-01-01T00:00:00+00:00", commit="", dirty=False, machine=machine
    )
    first, second = list(GOALS)[:2]
    measured = (Measurement(key=first, value=1.5), Measurement(key=second, error="no compiler"))
    found = read(tmp_path, as_json(BenchReport(conditions=conditions, measurements=measured)))
    unit = GOALS[first].unit.replace(" ", "_")
    assert figures(found) == [(first, 1.5, unit, None)]
    assert found.without_value == (second,)


def test_the_minimal_form(tmp_path: Path) -> None:
    rows = (
        {"name": "load  model\n--big", "value": 12, "repetitions": 7, "other": [1]},
        {"name": "images", "value": 1520.5, "unit": "images/s", "direction": "higher"},
        {"name": "ratio", "unit": ""},
    )
    assert read(tmp_path, minimal(*rows)).results == (
        BenchmarkResult(
            stage="bench",
            name="load model --big",
            value=12.0,
            unit="s",
            direction=LOWER,
            repetitions=7,
        ),
        BenchmarkResult(
            stage="bench", name="images", value=1520.5, unit="images/s", direction=HIGHER
        ),
        BenchmarkResult(stage="bench", name="ratio", value=1.0, unit="", direction=LOWER),
    )


def test_names_lose_what_a_terminal_obeys_and_the_folders_of_the_run(tmp_path: Path) -> None:
    row = {"name": "\x1b[31mred\x1b[0m /run/a"}
    (tmp_path / benchmark_file("bench")).write_text(json.dumps(minimal(row)))
    found = read_benchmarks(tmp_path, "bench", lambda name: name.replace("/run/", "/"))
    assert [it.name for it in found.results] == ["red /a"]


# What does not fit


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("", "the file is no JSON: Expecting value"),
        ("[1]", "the file: got a list, expected an object of pytest-benchmark, Google"),
        ("[" * 100_000, "the file is no JSON: nested"),
        (
            '{"benchmarks": [{"name": "a", "value": 1' + "0" * 5000,
            "the file is no JSON: got an int",
        ),
        ('{"benchmarks": [', "the file is no JSON"),
        ("\0\0\0", "the file is no JSON"),
        ({}, "the file: unknown format, expected pytest-benchmark, Google Benchmark, asv"),
        ({"rows": [{"key": 1}]}, "the file: unknown format"),
        ({"benchmarks": {}}, "the file: unknown format"),
        ({"benchmarks": []}, "no benchmark has a value"),
        ({"benchmarks": [7]}, "the file is damaged: 'benchmarks' is not a list of objects"),
        ({"benchmarks": [{"name": "a"}]}, "the file is damaged: missing 'direction'"),
        ({"machine_info": 1, "benchmarks": [{"stats": 3}]}, "the file is damaged: "),
        ({"machine_info": 1, "benchmarks": 3}, "the file is damaged: 'benchmarks' is not a list"),
        ({"context": 1, "benchmarks": [{"name": "a"}]}, "the file is damaged: missing 'real_time'"),
        ({"results": [{"command": "a"}]}, "the file is damaged: missing 'mean'"),
        (
            minimal({"direction": "up"}),
            "benchmark 'a': got direction 'up', expected lower or higher",
        ),
        (minimal({"direction": []}), "benchmark 'a': got direction [], expected"),
        (minimal({"name": ["a"]}), "the file is damaged: the name ['a'] is no text"),
        (minimal({"value": True}), "got value True, expected a number"),
        (minimal({"value": "1"}), "got value '1', expected a number"),
        (minimal({"value": -1}), "benchmark 'a': value: got -1: Input should be greater than"),
        (minimal({"value": 1e300}), "benchmark 'a': value: got 1e+300: Input should be less"),
        (minimal({"value": None}), "no benchmark has a value: 1 benchmark failed"),
        (minimal({"unit": "a b"}), "benchmark 'a': unit: got 'a b': String should match"),
        (minimal({"unit": "s" * 17}), "benchmark 'a': unit: got "),
        (minimal({"repetitions": -1}), "benchmark 'a': repetitions: got -1: Input should be"),
        (minimal({"repetitions": {}}), "benchmark 'a': repetitions: got {}: Input should be"),
        (minimal({"name": ""}), "benchmark '': name: got '': "),
        (minimal({"name": "n" * (LONGEST_BENCHMARK + 1)}), "got 301 characters, expected at most"),
        (minimal({}, {}), "duplicate benchmark 'a': expected each name once"),
    ],
)
def test_a_damaged_file_is_a_fault(tmp_path: Path, content: object, fault: str) -> None:
    found = read(tmp_path, content)
    assert found.results == ()
    assert found.fault is not None
    assert fault in found.fault
    assert len(found.fault) < 1000


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ([[1.0], [["x"] * 1000] * 50], "a: got 1 values for its parameters"),
        ([[1.0, 2.0], []], "a: got 2 values for its parameters"),
        ([[1.0], [3]], "is damaged: object of type 'int' has no len()"),
        ([], "is damaged: missing 'result'"),
    ],
)
def test_a_damaged_file_of_asv_is_a_fault(tmp_path: Path, row: list[Any], fault: str) -> None:
    content = {"result_columns": ["result", "params"], "results": {"a": row}}
    assert fault in (read(tmp_path, content).fault or "")


def test_a_missing_file_is_a_fault(tmp_path: Path) -> None:
    assert read_benchmarks(tmp_path, "bench").fault == "the stage wrote no such file"


def test_a_file_above_the_limit_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ci.facts.benchmarks.LARGEST_FILE", 10)
    fault = read(tmp_path, minimal({})).fault
    assert fault == "got a file of 78 bytes, expected at most 10"


def test_the_files_of_a_folder_have_one_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "results"
    source.mkdir()
    for name in ("a", "b"):
        (source / f"{name}.json").write_text(json.dumps(minimal({"name": name})), encoding="utf-8")
    pack(tmp_path, source)
    assert len(read_benchmarks(tmp_path, "bench").results) == 2
    size = tmp_path.joinpath(f"{benchmark_file('bench')}.tar.gz").stat().st_size
    monkeypatch.setattr("ci.facts.benchmarks.LARGEST_FILE", 155)
    monkeypatch.setattr("ci.facts.files.LARGEST_FILE", size)
    fault = read_benchmarks(tmp_path, "bench").fault
    assert fault == "got JSON files of 156 bytes, expected at most 155"


@pytest.mark.parametrize("content", [b"", b"no archive"])
def test_a_damaged_archive_is_a_fault(tmp_path: Path, content: bytes) -> None:
    (tmp_path / f"{benchmark_file('bench')}.tar.gz").write_bytes(content)
    fault = read_benchmarks(tmp_path, "bench").fault
    assert fault == "the folder has no readable JSON file"


def test_a_result_has_a_limited_number_of_benchmarks() -> None:
    def results(count: int, name: str) -> list[BenchmarkResult]:
        fields = {"stage": "bench", "value": 1.0, "unit": "s", "direction": LOWER}
        rows = ({**fields, "name": f"{name}{n}"} for n in range(count))
        return [*map(BenchmarkResult.model_validate, rows)]

    assert len(within_limits(results(MOST_BENCHMARKS + 7, "a"))) == MOST_BENCHMARKS
    long = within_limits(results(MOST_BENCHMARKS, "a" * 290))
    size = sum(len(it.model_dump_json()) for it in long)
    assert LARGEST_BENCHMARKS - 1000 < size <= LARGEST_BENCHMARKS


# Their measures


@pytest.mark.parametrize("name", ["a.b: c[1.wall_s]", "test.wall_s", "lower:s:x", "é\nb"])
def test_the_name_of_a_measure_is_read_back(name: str) -> None:
    for stage in ("bench", "bench.all"):
        benchmark = Benchmark(HIGHER, "images/s", name)
        key = measure_key(stage, benchmark)
        assert stage_and_quantity(key) == (stage, benchmark)
        assert is_benchmark(key)
    assert stage_and_quantity("a:b.wall_s") == ("a:b", Quantity.WALL)  # results from elsewhere


def test_the_direction_decides_what_is_worse() -> None:
    for direction, is_rise_worse in ((LOWER, True), (HIGHER, False)):
        key = measure_key("bench", Benchmark(direction, "s", "a"))
        assert is_worse(key, 1.0, 2.0) is is_rise_worse
        assert is_worse(key, 2.0, 1.0) is not is_rise_worse
        assert not is_worse(key, 1.0, 1.0)
    assert is_worse("install.wall_s", 1.0, 2.0)


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (3.06e-07, "s", "306 ns"),
        (0.0123, "ms", "12.3 us"),
        (99.6, "s", "100 s"),
        (1234.5, "images/s", "1,234 images/s"),
        (1.25, "", "1.25"),
        (0.0, "s", "0 s"),
        (1e-12, "s", "0.001 ns"),
    ],
)
def test_a_value_is_shown_with_three_digits(value: float, unit: str, shown: str) -> None:
    assert amount(value, Benchmark(LOWER, unit, "a")) == shown


def test_a_change_is_named_with_its_stage() -> None:
    key = measure_key("bench", Benchmark(HIGHER, "images/s", "load"))
    assert measure_name(key) == "bench: load"
    assert headline(key, 100.0, 80.0) == "bench: load -20 images/s (-20 %)"
