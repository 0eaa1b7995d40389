"""Write tables to files run by run: 2,000 runs have 238 million tests.

A file gets its final name only when it is complete.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, fields
from datetime import datetime
from enum import StrEnum
from functools import partial
from itertools import product
from operator import attrgetter
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeAlias, get_args

from pydantic import BaseModel

from ci.errors import InfrastructureError
from ci.facts.acceptance import Acceptance
from ci.facts.environment_key import EnvironmentKey, environment_key
from ci.facts.measures import measures_of
from ci.model.outcomes import TestOutcome
from ci.model.results import BenchmarkResult, BuildResult, Lineage, RunResult, StageResult

if TYPE_CHECKING:  # it imports SQLAlchemy
    from ci.store.store import Store


# Rows in a row group of a Parquet file, about pyarrow's default. A run of seven platforms has
# 119,000 tests: with a group per platform, readers would get many small groups.
ROWS_AT_ONCE = 1_000_000
PARQUET_REMEDY = (
    "Install it: pip install 'pyarrow~=26.0' (the dependency group `parquet` of pyproject.toml)."
    " Or use --format csv."
)


Row: TypeAlias = tuple[object, ...]
Tests: TypeAlias = Callable[[str], Sequence[TestOutcome]]  # by platform of the run


class ColumnKind(StrEnum):
    """The type of a column's values; any value can be missing."""

    WORD = "word"  # one of a few repeated texts
    TEXT = "text"
    INTEGER = "integer"
    NUMBER = "number"
    FLAG = "flag"
    TIME = "time"  # with a zone


@dataclass(frozen=True, kw_only=True)
class ExportTable:
    """One table: its columns in order, and the rows that a run or a project adds to it."""

    columns: Mapping[str, ColumnKind]
    rows: Callable[[RunResult, Tests], Iterator[Row]] = lambda _run, _tests: iter(())
    project_rows: Callable[[Store, str, Sequence[str]], Iterator[Row]] | None = None
    """Of the store, for a project and the chosen platforms; none chosen means all."""


def _columns(model: type[BaseModel]) -> dict[str, ColumnKind]:
    """A column for each field of a model that holds a single value."""
    kinds = {bool: ColumnKind.FLAG, int: ColumnKind.INTEGER, float: ColumnKind.NUMBER}
    kinds |= {str: ColumnKind.WORD, datetime: ColumnKind.TIME}
    found = {}
    for name, field in model.model_fields.items():
        # A type with bounds, ``Annotated[float, ...]``, has the plain one as its origin.
        named = get_args(field.annotation) or [field.annotation]
        types: set[Any] = {getattr(it, "__origin__", it) for it in named} - {NoneType}
        if len(types) == 1 and (kind := kinds.get(types.pop())):
            found[name] = kind
    return found


_PLATFORM = {"run_id": ColumnKind.WORD, "platform": ColumnKind.WORD}
_RUNS = {**_columns(RunResult), "run_id": ColumnKind.TEXT, "commit": ColumnKind.TEXT}
del _RUNS["schema_version"]
_LINEAGE = _columns(Lineage)
_COUNTS = ("passed", "failed", "errors", "skipped", "xfailed", "xpassed", "warnings")
_PLATFORMS = {
    **_PLATFORM,
    "label": ColumnKind.WORD,
    **dict.fromkeys(("simulated", "built"), ColumnKind.FLAG),
    **dict.fromkeys(("product", "harness"), ColumnKind.WORD),
    **dict.fromkeys(_COUNTS, ColumnKind.INTEGER),
    "pytest_summary": ColumnKind.TEXT,
    **dict.fromkeys(("build_install_s", "pytest_s", "total_s"), ColumnKind.NUMBER),
    **_columns(BuildResult),
    "environment_key": ColumnKind.WORD,
    **{part.name: ColumnKind.WORD for part in fields(EnvironmentKey) if part.name != "platform"},
    **dict.fromkeys(("evidence", "notes"), ColumnKind.TEXT),
}
_STAGES = _columns(StageResult)
_BENCHMARKS = {**_columns(BenchmarkResult), "direction": ColumnKind.WORD}
_ALARMS = {
    **dict.fromkeys(("alarm_id", "kind", "state", "who"), ColumnKind.WORD),
    "note": ColumnKind.TEXT,
    "commit": ColumnKind.WORD,  # that fixes it
    "stated_at": ColumnKind.TIME,
    **dict.fromkeys(("link", "seen_run_id"), ColumnKind.WORD),
}
_RISES = {
    **dict.fromkeys(("platform", "measure", "before_run_id", "run_id"), ColumnKind.WORD),
    **dict.fromkeys(("before", "level"), ColumnKind.NUMBER),
}
# Columns that are not named as their fields: with a unit, and clear beside those of other tables.
_NAMED_AS = {"name": "stage", "seconds": "wall_s", "peak_rss_bytes": "peak_memory_bytes"}


def _run_rows(run: RunResult, _tests: Tests) -> Iterator[Row]:
    yield (*attrgetter(*_RUNS)(run), *attrgetter(*_LINEAGE)(run.lineage))


def _platform_rows(run: RunResult, _tests: Tests) -> Iterator[Row]:
    for result in run.platforms:
        key = environment_key(result)
        # Later values win: the environment key has another name for a simulated platform.
        values = {
            **vars(key),
            **(vars(result.pytest) if result.pytest else {}),
            **(vars(result.build) if result.build else {}),
            **vars(result),
            "run_id": run.run_id,
            "product": result.verdict.product.value,
            "harness": result.verdict.harness.value,
            "pytest_summary": result.pytest and result.pytest.summary,
            "environment_key": key.digest,
            "shards": key.shards,  # of the same name as the shards themselves
            "evidence": "\n".join(evidence.text for evidence in result.verdict.evidence),
            "notes": "\n".join(result.notes),
        }
        yield tuple(map(values.get, _PLATFORMS))


def _stage_rows(run: RunResult, _tests: Tests) -> Iterator[Row]:
    values_of = attrgetter(*_STAGES)
    for result in run.platforms:
        for position, stage in enumerate(result.stages):
            yield (run.run_id, result.platform, position, *values_of(stage))


def _measure_rows(run: RunResult, _tests: Tests) -> Iterator[Row]:
    for result in run.platforms:
        key = environment_key(result).digest
        for name, value in measures_of(result).items():
            yield (run.run_id, result.platform, key, name, value)


def _benchmark_rows(run: RunResult, _tests: Tests) -> Iterator[Row]:
    values_of = attrgetter(*_BENCHMARKS)
    for result in run.platforms:
        key = environment_key(result).digest
        for benchmark in result.benchmarks:
            yield (run.run_id, result.platform, key, *values_of(benchmark))


def _test_rows(run: RunResult, tests: Tests) -> Iterator[Row]:
    values_of = attrgetter("node_id", "outcome.value", "seconds", "reason", "skip_reason")
    for result in run.platforms:
        for test in tests(result.platform):
            yield (run.run_id, result.platform, *values_of(test))


def _accepted_rows(store: Store, project: str, platforms: Sequence[str]) -> Iterator[Row]:
    for accepted in store.accepted(project):
        if not platforms or accepted.platform in platforms:
            # Days as 2026-12-31: a time of a day would need a zone.
            yield (project, *accepted.model_dump(mode="json").values())


def _alarm_rows(store: Store, project: str, platforms: Sequence[str]) -> Iterator[Row]:
    for record in store.alarm_records(project):
        for rise in record.rises:
            if not platforms or rise.platform in platforms:
                own = (getattr(record, name) for name in _ALARMS)
                yield (project, *own, *(getattr(rise, name) for name in _RISES))


TABLES: Mapping[str, ExportTable] = {
    "runs": ExportTable(columns={**_RUNS, **_LINEAGE}, rows=_run_rows),
    "platforms": ExportTable(columns=_PLATFORMS, rows=_platform_rows),
    "stages": ExportTable(
        columns={
            **_PLATFORM,
            "position": ColumnKind.INTEGER,
            **{_NAMED_AS.get(name, name): kind for name, kind in _STAGES.items()},
        },
        rows=_stage_rows,
    ),
    "measures": ExportTable(
        columns={
            **_PLATFORM,
            **dict.fromkeys(("environment_key", "measure"), ColumnKind.WORD),
            "value": ColumnKind.NUMBER,
        },
        rows=_measure_rows,
    ),
    "benchmarks": ExportTable(
        columns={
            **_PLATFORM,
            "environment_key": ColumnKind.WORD,
            **{"benchmark" if name == "name" else name: kind for name, kind in _BENCHMARKS.items()},
        },
        rows=_benchmark_rows,
    ),
    "tests": ExportTable(
        columns={
            **_PLATFORM,
            **dict.fromkeys(("test", "outcome"), ColumnKind.WORD),
            "duration_s": ColumnKind.NUMBER,
            **dict.fromkeys(("reason", "skip_reason"), ColumnKind.WORD),
        },
        rows=_test_rows,
    ),
    "accepted": ExportTable(
        columns={
            "project": ColumnKind.WORD,
            **{
                name: ColumnKind.NUMBER if name == "level" else ColumnKind.WORD
                for name in Acceptance.model_fields
            },
        },
        project_rows=_accepted_rows,
    ),
    "alarms": ExportTable(
        columns={"project": ColumnKind.WORD, **_ALARMS, **_RISES}, project_rows=_alarm_rows
    ),
}


class CsvWriter:
    """Writes CSV: times as ISO 8601, flags as ``true`` and ``false``, missing values as nothing."""

    def __init__(self, path: Path, columns: Mapping[str, ColumnKind]) -> None:
        self._file = path.open("w", encoding="utf-8", newline="")
        self._writer = csv.writer(self._file)
        self._writer.writerow(columns)
        self._plain = not {ColumnKind.FLAG, ColumnKind.TIME} & {*columns.values()}

    def write(self, rows: Sequence[Row]) -> None:
        # Checking every value would take longer than writing.
        self._writer.writerows(rows if self._plain else (map(_text, row) for row in rows))

    def close(self) -> None:
        self._file.close()


def _text(value: object) -> object:
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat() if isinstance(value, datetime) else value


class ParquetWriter:
    """Writes Parquet: repeated words become dictionaries, which pandas reads as categories."""

    def __init__(self, path: Path, columns: Mapping[str, ColumnKind]) -> None:
        try:
            import pyarrow  # optional: it takes 26 MB, and only this class needs it
            import pyarrow.parquet
        except ModuleNotFoundError as error:
            message = f"export: --format parquet: the package {error.name} is not installed"
            raise InfrastructureError(message, remedy=PARQUET_REMEDY) from None
        self._arrow = pyarrow
        types = {
            ColumnKind.WORD: pyarrow.dictionary(pyarrow.int32(), pyarrow.string()),
            ColumnKind.TEXT: pyarrow.string(),
            ColumnKind.INTEGER: pyarrow.int64(),
            ColumnKind.NUMBER: pyarrow.float64(),
            ColumnKind.FLAG: pyarrow.bool_(),
            ColumnKind.TIME: pyarrow.timestamp("us", tz="UTC"),
        }
        self._schema = pyarrow.schema([(name, types[kind]) for name, kind in columns.items()])
        self._writer = pyarrow.parquet.ParquetWriter(path, self._schema, compression="zstd")
        self._waiting: list[Any] = []

    def write(self, rows: Sequence[Row]) -> None:
        columns = [list(column) for column in zip(*rows, strict=True)]
        if columns:
            self._waiting.append(self._arrow.table(columns, schema=self._schema))
        if sum(table.num_rows for table in self._waiting) >= ROWS_AT_ONCE:
            self._flush()

    def _flush(self) -> None:
        if self._waiting:
            together = self._arrow.concat_tables(self._waiting).unify_dictionaries()
            self._writer.write_table(together)
            self._waiting.clear()

    def close(self) -> None:
        self._flush()
        self._writer.close()


Writer: TypeAlias = CsvWriter | ParquetWriter
WRITERS: Mapping[str, Callable[[Path, Mapping[str, ColumnKind]], Writer]] = {
    "parquet": ParquetWriter,
    "csv": CsvWriter,
}


@contextmanager
def _writer(path: Path, table: ExportTable) -> Iterator[Writer]:
    """Write to a temporary file, renamed on success and removed on an error."""
    temporary = path.with_name(f".{path.name}.part")
    try:
        with closing(WRITERS[path.suffix[1:]](temporary, table.columns)) as writer:
            yield writer
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def export(
    store: Store,
    run_ids: Iterable[str],
    files: Mapping[Path, ExportTable],
    platforms: Sequence[str] = (),
) -> Counter[Path]:
    """Write each table to its file, in the format of the file's suffix; return the rows of each.

    With ``platforms``, write only the results of these. Runs that cannot be read are left out.
    """
    written = Counter(dict.fromkeys(files, 0))
    projects: dict[str, None] = {}  # of the runs, in their order
    with ExitStack() as stack:
        writers = {path: stack.enter_context(_writer(path, table)) for path, table in files.items()}
        for run_id in run_ids:
            run = store.load_or_skip(run_id)
            if run is None:
                continue
            if platforms:  # as if the run had only these platforms
                chosen = [result for result in run.platforms if result.platform in platforms]
                run = run.model_copy(update={"platforms": tuple(chosen)})
            rows = {
                path: [*table.rows(run, partial(store.tests, run_id))]
                for path, table in files.items()
            }
            for path, writer in writers.items():  # all tables of a run, or none
                writer.write(rows[path])
                written[path] += len(rows[path])
            projects[run.project] = None
        for path, project in product(files, projects):
            if rows_of := files[path].project_rows:
                found = [*rows_of(store, project, platforms)]
                writers[path].write(found)
                written[path] += len(found)
    return written
