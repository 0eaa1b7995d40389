"""A run's rows, in one transaction."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, insert, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from ci.analysis.environment_key import EnvironmentKey, environment_key
from ci.analysis.measures import measures_of
from ci.details import Details
from ci.results import PlatformResult, RunResult
from ci.store.blobs import SuiteBlobs, build_blob, reruns_blob, suite_blobs
from ci.store.convert import platform_result, platform_row, run_values
from ci.store.tables import (
    Base,
    BlobRow,
    DetailsRow,
    EnvironmentKeyRow,
    MeasuredRow,
    PlatformRow,
    RunRow,
)


def save(connection: Connection, run: RunResult, details: Mapping[str, Details]) -> None:
    """Save a run in place of an earlier save of it."""
    put(connection, RunRow, run_values(run))  # locks the run: whoever saves it too has to wait
    keys = {result.platform: environment_key(result) for result in run.platforms}
    suites = {name: suite_blobs(found.tests) for name, found in details.items() if found.tests}
    _add_keys(connection, keys.values())
    _add_blobs(connection, suites.values())
    with Session(connection) as session:
        fresh = _save_platforms(session, run, keys, kept_unless=details)
    results = [result for result in run.platforms if result.platform in fresh]
    _add_measures(connection, results, fresh)
    _add_details(connection, details, suites, fresh)


def put(connection: Connection, table: type[Base], values: Mapping[str, Any]) -> None:
    """Insert a row, or give the one of the same primary key other values."""
    keys = [column.name for column in table.__table__.primary_key]
    others = {name: value for name, value in values.items() if name not in keys}
    statement = _insert(connection, table).values(values)
    connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=others))


def _insert(connection: Connection, table: type[Base]) -> Any:
    """An insert that knows what to do about a row that is there; they spell it alike."""
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    return dialect.insert(table)


def _add_keys(connection: Connection, keys: Iterable[EnvironmentKey]) -> None:
    rows = {key.digest: asdict(key) for key in keys}
    _add_missing(connection, EnvironmentKeyRow, "components", rows)


def _add_blobs(connection: Connection, suites: Iterable[SuiteBlobs]) -> None:
    lists = {blob.digest: blob for suite in suites for blob in (suite.node_ids, suite.outcomes)}
    found = connection.scalars(select(BlobRow.digest).where(BlobRow.digest.in_(lists)))
    for digest in found:
        del lists[digest]  # compressing it would take longer than all the rest
    rows = {digest: blob.content for digest, blob in lists.items()}
    _add_missing(connection, BlobRow, "content", rows)


def _add_missing(
    connection: Connection, table: type[Base], column: str, rows: Mapping[str, Any]
) -> None:
    """Add what nobody else has added meanwhile.

    In order of the digests: of two that add some of the same, PostgreSQL lets the second wait for
    the first, and so never each for the other.
    """
    for digest, value in sorted(rows.items()):
        statement = _insert(connection, table).values({"digest": digest, column: value})
        connection.execute(statement.on_conflict_do_nothing())


def _save_platforms(
    session: Session,
    run: RunResult,
    keys: Mapping[str, EnvironmentKey],
    *,
    kept_unless: Collection[str],
) -> dict[str, int]:
    """Leave what is stored as it is, and replace the rest; returns the new rows' ids."""
    row = session.get_one(RunRow, run.run_id)
    kept = {
        platform.platform: platform
        for platform in row.platforms
        if platform.platform not in kept_unless and platform_result(platform) in run.platforms
    }
    row.platforms = list(kept.values())
    session.flush()  # the others are gone before new rows take their names
    fresh: list[PlatformRow] = []
    for position, result in enumerate(run.platforms):
        if result.platform in kept:
            kept[result.platform].position = position
        else:
            fresh.append(platform_row(result, position, keys[result.platform].digest))
    row.platforms.extend(fresh)
    session.flush()  # gives the platforms their keys
    return {platform.platform: platform.id for platform in fresh}


def _add_measures(
    connection: Connection, results: Iterable[PlatformResult], ids: Mapping[str, int]
) -> None:
    rows = [
        {"platform_id": ids[result.platform], "measures": measures_of(result)} for result in results
    ]
    if rows:
        connection.execute(insert(MeasuredRow), rows)


def _add_details(
    connection: Connection,
    details: Mapping[str, Details],
    suites: Mapping[str, SuiteBlobs],
    ids: Mapping[str, int],
) -> None:
    rows = [
        {"platform_id": ids[name], **_details_values(found, suites.get(name))}
        for name, found in details.items()
        if name in ids and (found.tests or found.reruns or found.build)
    ]
    if rows:
        connection.execute(insert(DetailsRow), rows)


def _details_values(details: Details, suite: SuiteBlobs | None) -> dict[str, Any]:
    return {
        "node_ids": suite and suite.node_ids.digest,
        "outcomes": suite and suite.outcomes.digest,
        "durations": suite and suite.durations,
        "reruns": reruns_blob(details.reruns) if details.reruns else None,
        "build": build_blob(details.build) if details.build else None,
    }
