"""Writing tables to files, a few runs at a time: 2,000 runs have 238 million tests.

A file has its name only when it is complete.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, fields
from datetime import datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from ci.errors import UsageError
from ci.facts.environment_key import EnvironmentKey, environment_key
from ci.facts.measures import measures_of
from ci.model.results import BuildResult, PlatformResult, PytestResult, RunResult
from ci.model.tests import TestOutcome

if TYPE_CHECKING:
    from ci.store.store import Store


ROWS_AT_ONCE = 1_000_000  # of a group of rows in a Parquet file
PARQUET_REMEDY = (
    "Install it: pip install 'pyarrow~=26.0', the dependency group `parquet` of pyproject.toml; or"
    " take --format csv."
)


class Format(StrEnum):
    """A kind of file."""

    PARQUET = "parquet"
    CSV = "csv"


class Writer(Protocol):
    """Writes one table to one file."""

    def write(self, rows: Sequence[Row]) -> None:
        """Add the rows of a run."""

    def close(self) -> None:
        """Write what is left."""


class CsvWriter:
    """Times as ISO 8601, flags as ``true`` and ``false``, what is missing as nothing."""

    def __init__(self, path: Path, columns: Mapping[str, Kind]) -> None:
        self._file = path.open("w", encoding="utf-8", newline="")
        self._writer = csv.writer(self._file)
        self._writer.writerow(columns)
        self._plain = not {Kind.FLAG, Kind.TIME} & {*columns.values()}

    def write(self, rows: Sequence[Row]) -> None:
        # Looking at every value takes longer than all the rest.
        self._writer.writerows(rows if self._plain else (map(_text, row) for row in rows))

    def close(self) -> None:
        self._file.close()


def _text(value: object) -> object:
    if isinstance(value, bool):
        return str(value).lower()
    return value.isoformat() if isinstance(value, datetime) else value


class ParquetWriter:
    """Repeated words are dictionaries, which pandas reads as categories."""

    def __init__(self, path: Path, columns: Mapping[str, Kind]) -> None:
        try:
            import pyarrow  # 26 MB, and nothing else needs it
            import pyarrow.parquet
        except ModuleNotFoundError as error:
            message = f"export: {error.name} is not installed, which writes Parquet"
            raise UsageError(message, remedy=PARQUET_REMEDY) from None
        self._arrow = pyarrow
        word = pyarrow.dictionary(pyarrow.int32(), pyarrow.string())
        types = {
            Kind.WORD: word,
            Kind.TEXT: pyarrow.string(),
            Kind.INTEGER: pyarrow.int64(),
            Kind.NUMBER: pyarrow.float64(),
            Kind.FLAG: pyarrow.bool_(),
            Kind.TIME: pyarrow.timestamp("us", tz="UTC"),
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


WRITERS: Mapping[Format, Callable[[Path, Mapping[str, Kind]], Writer]] = {
    Format.PARQUET: ParquetWriter,
    Format.CSV: CsvWriter,
}


class _File:
    """A file that takes its name where all went well, and is gone where not."""

    def __init__(self, path: Path, table: Table, format: Format) -> None:
        self.path = path
        self._table = table
        self._temporary = path.with_name(f".{path.name}.part")
        self._writer: Writer = WRITERS[format](self._temporary, table.columns)
        self.rows = 0

    def __enter__(self) -> _File:
        return self

    def add(self, rows: Iterable[Row]) -> None:
        found = list(rows)
        self._writer.write(found)
        self.rows += len(found)

    def __exit__(
        self, kind: type[BaseException] | None, _: object, __: TracebackType | None
    ) -> None:
        try:
            self._writer.close()
            if kind is None:
                self._temporary.replace(self.path)
        finally:
            with suppress(FileNotFoundError):
                self._temporary.unlink()


def export(
    store: Store,
    run_ids: Iterable[str],
    *,
    folder: Path,
    format: Format,
    tables: Sequence[str],
    platforms: Sequence[str] = (),
) -> dict[Path, int]:
    """Write the tables, each to a file of its own; returns how many rows each has."""
    with ExitStack() as stack:
        files = {
            name: stack.enter_context(_File(folder / f"{name}.{format}", TABLES[name], format))
            for name in tables
        }
        for run_id in run_ids:
            run = store.load(run_id)
            if platforms:
                run = of_platforms(run, platforms)
            for name, file in files.items():
                file.add(TABLES[name].rows(run, partial(store.tests, run_id)))
    return {file.path: file.rows for file in files.values()}


Row: TypeAlias = tuple[object, ...]
Tests: TypeAlias = Callable[[str], Sequence[TestOutcome]]  # of a platform of the run


class Kind(StrEnum):
    """What a column holds; any of it can be missing."""

    WORD = "word"  # one of few texts
    TEXT = "text"
    INTEGER = "integer"
    NUMBER = "number"
    FLAG = "flag"
    TIME = "time"  # with a zone


@dataclass(frozen=True, kw_only=True)
class Table:
    """One table: its columns in order, and the rows that a run adds to it."""

    columns: Mapping[str, Kind]
    rows: Callable[[RunResult, Tests], Iterator[Row]]


_PLATFORM = {"run_id": Kind.WORD, "platform": Kind.WORD}
_COUNTS = ("passed", "failed", "errors", "skipped", "xfailed", "xpassed", "warnings")
_BUILD = {
    name: Kind.NUMBER if name.endswith("_s") else Kind.INTEGER for name in BuildResult.model_fields
}
_KEY = [part.name for part in fields(EnvironmentKey) if part.name != "platform"]
_NO_COUNTS = dict.fromkeys(PytestResult.model_fields)


def _run_rows(run: RunResult, _tests: Tests) -> Iterator[Row]:
    yield (
        run.run_id,
        run.project,
        run.commit,
        run.dirty,
        run.started_at,
        run.finished_at,
        run.engine,
    )


def _platform_rows(run: RunResult, _tests: Tests) -> Iterator[Row]:
    for result in run.platforms:
        key = environment_key(result)
        counts = result.pytest.model_dump() if result.pytest else _NO_COUNTS
        build = result.build or BuildResult()
        yield (
            run.run_id,
            result.platform,
            result.label,
            result.simulated,
            result.built,
            result.verdict.product.value,
            result.verdict.harness.value,
            *(counts[name] for name in _COUNTS),
            counts["summary"],
            result.build_install_s,
            result.pytest_s,
            result.total_s,
            *(getattr(build, name) for name in _BUILD),
            key.digest,
            *(getattr(key, name) for name in _KEY),
            "\n".join(evidence.text for evidence in result.verdict.evidence),
            "\n".join(result.notes),
        )


def _stage_rows(run: RunResult, _tests: Tests) -> Iterator[Row]:
    for result in run.platforms:
        for position, stage in enumerate(result.stages):
            yield (
                run.run_id,
                result.platform,
                position,
                stage.name,
                stage.seconds,
                stage.cpu_user_s,
                stage.cpu_system_s,
                stage.peak_rss_bytes,
                stage.exit_code,
                stage.in_total,
            )


def _measure_rows(run: RunResult, _tests: Tests) -> Iterator[Row]:
    for result in run.platforms:
        key = environment_key(result).digest
        for name, value in measures_of(result).items():
            yield (run.run_id, result.platform, key, name, value)


def _test_rows(run: RunResult, tests: Tests) -> Iterator[Row]:
    for result in run.platforms:
        for test in tests(result.platform):
            yield (
                run.run_id,
                result.platform,
                test.node_id,
                test.outcome.value,
                test.seconds,
                test.reason,
                test.skip_reason,
            )


TABLES: Mapping[str, Table] = {
    "runs": Table(
        columns={
            "run_id": Kind.TEXT,
            "project": Kind.WORD,
            "commit": Kind.TEXT,
            "dirty": Kind.FLAG,
            "started_at": Kind.TIME,
            "finished_at": Kind.TIME,
            "engine": Kind.WORD,
        },
        rows=_run_rows,
    ),
    "platforms": Table(
        columns={
            **_PLATFORM,
            "label": Kind.WORD,
            "simulated": Kind.FLAG,
            "built": Kind.FLAG,
            "product": Kind.WORD,
            "harness": Kind.WORD,
            **dict.fromkeys(_COUNTS, Kind.INTEGER),
            "pytest_summary": Kind.TEXT,
            "build_install_s": Kind.NUMBER,
            "pytest_s": Kind.NUMBER,
            "total_s": Kind.NUMBER,
            **_BUILD,
            "environment_key": Kind.WORD,
            **dict.fromkeys(_KEY, Kind.WORD),
            "evidence": Kind.TEXT,
            "notes": Kind.TEXT,
        },
        rows=_platform_rows,
    ),
    "stages": Table(
        columns={
            **_PLATFORM,
            "position": Kind.INTEGER,
            "stage": Kind.WORD,
            "wall_s": Kind.NUMBER,
            "cpu_user_s": Kind.NUMBER,
            "cpu_system_s": Kind.NUMBER,
            "peak_memory_bytes": Kind.INTEGER,
            "exit_code": Kind.INTEGER,
            "in_total": Kind.FLAG,
        },
        rows=_stage_rows,
    ),
    "measures": Table(
        columns={
            **_PLATFORM,
            "environment_key": Kind.WORD,
            "measure": Kind.WORD,
            "value": Kind.NUMBER,
        },
        rows=_measure_rows,
    ),
    "tests": Table(
        columns={
            **_PLATFORM,
            "test": Kind.WORD,
            "outcome": Kind.WORD,
            "duration_s": Kind.NUMBER,
            "reason": Kind.WORD,
            "skip_reason": Kind.WORD,
        },
        rows=_test_rows,
    ),
}


def of_platforms(run: RunResult, wanted: Sequence[str]) -> RunResult:
    """The run as if it had been of these platforms alone."""
    kept: tuple[PlatformResult, ...] = tuple(
        result for result in run.platforms if result.platform in wanted
    )
    return run.model_copy(update={"platforms": kept})
