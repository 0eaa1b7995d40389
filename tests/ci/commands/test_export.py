"""Exported tables hold what the store holds, and a file is there only as a whole."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from ci import cli
from ci.errors import ExitCode
from ci.facts.environment_key import environment_key
from ci.facts.measures import measures_of
from ci.model.details import Details
from ci.model.outcomes import Outcome, TestOutcome
from ci.model.results import (
    BenchmarkResult,
    BuildResult,
    Direction,
    Lineage,
    RunResult,
    ShardResult,
)
from ci.store import exporting
from ci.store.exporting import TABLES, ColumnKind
from ci.store.folder import default_url
from ci.store.rows import AlarmRecord, AlarmRise, AlarmState
from ci.store.store import Store
from tests.ci.foreign_runs import RUN_ID, small

Output = pytest.CaptureFixture[str]
Rows = list[dict[str, Any]]
LATER = "20270101T120000Z-nogit-0000"
REASON = "assert \"a\" == 'b'\n, and ünïcode"


def outcome(name: str, ended: Outcome = Outcome.PASSED, reason: str | None = None) -> TestOutcome:
    return TestOutcome(node_id=name, outcome=ended, seconds=0.123457, reason=reason)


TESTS = (outcome("t::a"), outcome("t::b[,]", Outcome.FAILED, REASON))


@pytest.fixture
def run(published: RunResult) -> RunResult:
    run = small(published)
    shards = tuple(ShardResult(shard=n, tests=1, seconds=1.0, exit_code=0) for n in (1, 2))
    benchmark = BenchmarkResult(
        stage="bench", name="add", value=1.5, unit="s", direction=Direction.LOWER
    )
    build = BuildResult(compile_s=9.5)
    changes = {"build": build, "shards": shards, "benchmarks": (benchmark,)}
    first = run.platforms[0].model_copy(update=changes)
    return run.model_copy(update={"platforms": (first, *run.platforms[1:])})


@pytest.fixture
def results(run: RunResult, tmp_path: Path) -> Path:
    """Two runs; the later one of one platform, and of no commit."""
    later = {
        "run_id": LATER,
        "started_at": run.started_at.replace(year=2027),
        "platforms": run.platforms[1:],
        "commit": None,
        "lineage": Lineage(branch="topic", merge_commit=True, depth=7),
    }
    with Store(default_url(tmp_path)) as store:
        store.save(run, {"nvidia": Details(tests=TESTS)})
        store.save(run.model_copy(update=later), {"iluvatar": Details(tests=TESTS[:1])})
    return tmp_path


def exported(results: Path, kind: str, *options: str) -> int:
    output = ("--output", str(results / "out"), "--format", kind)
    return cli.main(["export", "--results", str(results), *output, *options])


def needs(kind: str) -> None:
    if kind == "parquet":
        pytest.importorskip("pyarrow")  # of the dependency group `parquet`


def read_parquet(results: Path, table: str) -> Rows:
    parquet = pytest.importorskip("pyarrow.parquet")
    rows: Rows = parquet.read_table(results / "out" / f"{table}.parquet").to_pylist()
    return rows


PARSED: dict[ColumnKind, Callable[[str], object]] = {
    ColumnKind.INTEGER: int,
    ColumnKind.NUMBER: float,
    ColumnKind.FLAG: {"true": True, "false": False}.__getitem__,
    ColumnKind.TIME: datetime.fromisoformat,
}


def read_csv(results: Path, table: str) -> Rows:
    columns = TABLES[table].columns
    with (results / "out" / f"{table}.csv").open(newline="", encoding="utf-8") as file:
        return [
            {
                name: PARSED.get(columns[name], str)(text) if text else None
                for name, text in row.items()
            }
            for row in csv.DictReader(file)
        ]


READERS = {"csv": read_csv, "parquet": read_parquet}


@pytest.mark.parametrize("kind", READERS)
def test_what_is_exported_is_what_the_store_holds(
    run: RunResult, results: Path, kind: str, capsys: Output
) -> None:
    needs(kind)
    assert exported(results, kind) == ExitCode.PASSED
    assert f"{results}/out/tests.{kind}: 3 rows of 2 runs\n" in capsys.readouterr().out
    tables = {name: READERS[kind](results, name) for name in TABLES}
    assert [row["run_id"] for row in tables["runs"]] == [RUN_ID, LATER]
    assert tables["runs"][1] == {
        "run_id": LATER,
        "project": run.project,
        "commit": None,
        "dirty": False,
        "started_at": run.started_at.replace(year=2027),
        "finished_at": run.finished_at,
        "engine": "docker",
        "branch": "topic",
        "main_branch": None,
        "target": None,
        "merge_commit": True,
        "depth": 7,
        "merge_base": None,
    }
    nvidia, iluvatar, _ = tables["platforms"]
    [first, _] = run.platforms
    assert first.pytest is not None
    assert (nvidia["platform"], nvidia["passed"]) == ("nvidia", first.pytest.passed)
    assert (nvidia["built"], nvidia["total_s"]) == (True, first.total_s)
    assert (nvidia["compile_s"], nvidia["link_s"]) == (9.5, None)
    assert nvidia["environment_key"] == environment_key(first).digest
    assert (nvidia["shards"], iluvatar["shards"]) == ("2 shards", "none")
    assert nvidia["pytest_summary"] == first.pytest.summary
    assert (iluvatar["product"], iluvatar["passed"]) == ("incomplete", None)
    [install] = [
        row
        for row in tables["stages"]
        if (row["run_id"], row["platform"], row["stage"]) == (RUN_ID, "nvidia", "install")
    ]
    assert install["wall_s"] == first.stages[1].seconds
    assert install["peak_memory_bytes"] == first.stages[1].peak_rss_bytes
    measures = [row for row in tables["measures"] if row["platform"] == "nvidia"]
    assert {row["measure"]: row["value"] for row in measures} == measures_of(first)
    of_tests = [
        (row["run_id"], row["test"], row["outcome"], row["duration_s"], row["reason"])
        for row in tables["tests"]
    ]
    assert of_tests == [
        (RUN_ID, "t::a", "passed", 0.123457, None),
        (RUN_ID, "t::b[,]", "failed", 0.123457, REASON),
        (LATER, "t::a", "passed", 0.123457, None),
    ]


@pytest.mark.parametrize("kind", READERS)
def test_alarms_have_what_people_said_of_them(run: RunResult, results: Path, kind: str) -> None:
    needs(kind)
    rise = AlarmRise(
        platform="nvidia",
        measure="install.wall_s",
        before_run_id="before",
        run_id=RUN_ID,
        before=100.0,
        level=120.0,
    )
    record = AlarmRecord(
        alarm_id="1a2b3c4d",
        kind="regression",
        rises=(replace(rise, platform="iluvatar"), rise),
        seen_run_id=LATER,
        state=AlarmState.FIXED,
        who="A. Developer",
        note=REASON,
        commit="0123456",
        stated_at=run.started_at,
    )
    with Store(default_url(results)) as store:
        store.save_alarms(run.project, [record])
    assert exported(results, kind, "--platform", "nvidia") == ExitCode.PASSED
    expected = {"project": run.project, **asdict(record), **asdict(rise)}
    del expected["rises"]
    assert READERS[kind](results, "alarms") == [expected]


def test_parquet_has_types(results: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    exported(results, "parquet")
    runs = parquet.read_schema(results / "out" / "runs.parquet")
    assert runs.field("started_at").type == pyarrow.timestamp("us", tz="UTC")
    tests = parquet.read_schema(results / "out" / "tests.parquet")
    words = pyarrow.dictionary(pyarrow.int32(), pyarrow.string())
    assert tests.field("outcome").type == tests.field("platform").type == words
    assert tests.field("duration_s").type == pyarrow.float64()


@pytest.mark.parametrize(
    ("options", "runs", "platforms"),
    [
        (("--run", "latest"), [LATER], ["iluvatar"]),
        (("--since", "2026-06-01"), [LATER], ["iluvatar"]),
        (("--since", "2027-01-01T20:00+08:00"), [LATER], ["iluvatar"]),
        (("--platform", "nvidia"), [RUN_ID], ["nvidia"]),
        (("--platform", "NVIDIA"), [RUN_ID], ["nvidia"]),
        (("--platform", "iluvatar", "--run", RUN_ID), [RUN_ID], ["iluvatar"]),
    ],
)
def test_a_part_of_it(
    results: Path, options: tuple[str, ...], runs: list[str], platforms: list[str]
) -> None:
    assert exported(results, "csv", "--table", "runs", "--table", "platforms", *options) == 0
    assert sorted(path.name for path in (results / "out").iterdir()) == [
        "platforms.csv",
        "runs.csv",
    ]
    assert [row["run_id"] for row in read_csv(results, "runs")] == runs
    assert [row["platform"] for row in read_csv(results, "platforms")] == platforms


def test_nothing_is_no_table(results: Path, capsys: Output) -> None:
    assert exported(results, "csv", "--since", "2028-01-01T00:00Z") == ExitCode.USAGE
    assert "export: no run matches --run, --since and --platform" in capsys.readouterr().err
    assert exported(results, "csv", "--run", "x") == ExitCode.USAGE
    assert "the store holds no run 'x'" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        exported(results, "csv", "--since", "yesterday")
    assert "got 'yesterday', expected a date or time such as 2026-01-31" in capsys.readouterr().err
    assert not (results / "out").exists()


def test_without_pyarrow_the_remedy_is_named(
    results: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert exported(results, "parquet") == ExitCode.INFRASTRUCTURE
    error = capsys.readouterr().err
    message = "error: export: --format parquet: the package pyarrow is not installed\n"
    assert error.startswith(message)
    assert "pip install 'pyarrow~=26.0'" in error
    assert list((results / "out").iterdir()) == []


@pytest.mark.parametrize("kind", READERS)
def test_an_export_that_fails_leaves_the_old_files(results: Path, kind: str) -> None:
    needs(kind)
    exported(results, kind, "--run", RUN_ID)
    before = {path.name: path.read_bytes() for path in (results / "out").iterdir()}
    files = {results / "out" / f"{name}.{kind}": table for name, table in TABLES.items()}
    with Store(default_url(results)) as store, pytest.raises(KeyError, match="gone"):
        exporting.export(store, run_ids_that_end_in_an_error(), files)
    assert {path.name: path.read_bytes() for path in (results / "out").iterdir()} == before


def run_ids_that_end_in_an_error() -> Any:
    yield LATER
    raise KeyError("gone")


def test_large_tables_are_written_in_groups(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(exporting, "ROWS_AT_ONCE", 2)
    exported(results, "parquet", "--table", "tests")
    file = parquet.ParquetFile(results / "out" / "tests.parquet")
    assert [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)] == [2, 1]
    assert [row["test"] for row in read_parquet(results, "tests")] == ["t::a", "t::b[,]", "t::a"]


def test_rows_have_all_their_columns(run: RunResult) -> None:
    for table in TABLES.values():
        if table.project_rows:  # of a project, not of a run
            continue
        rows = list(table.rows(run, lambda _: TESTS))
        assert rows
        assert {len(row) for row in rows} == {len(table.columns)}
