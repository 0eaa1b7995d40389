"""A run's rows, in one transaction."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from sqlalchemy import Connection, Row, Table, delete, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite

from ci.facts.environment_key import EnvironmentKey, environment_key
from ci.facts.measures import measures_of
from ci.model.details import Details
from ci.model.results import (
    BuildResult,
    Evidence,
    Harness,
    OverloadCount,
    PlatformResult,
    Product,
    PytestResult,
    RunResult,
    StageResult,
    Verdict,
)
from ci.store.blobs import SuiteBlobs, build_blob, reruns_blob, suite_blobs
from ci.store.tables import BLOBS, DETAILS, ENVIRONMENT_KEYS, MEASURED, PLATFORMS, RUNS, STAGES


def save(connection: Connection, run: RunResult, details: Mapping[str, Details]) -> None:
    """Save a run in place of an earlier save of it."""
    put(connection, RUNS, run_values(run))  # locks the run: whoever saves it too has to wait
    keys = {result.platform: environment_key(result) for result in run.platforms}
    suites = {name: suite_blobs(found.tests) for name, found in details.items() if found.tests}
    _add_keys(connection, keys.values())
    _add_blobs(connection, suites.values())
    fresh = _save_platforms(connection, run, keys, kept_unless=details)
    results = [result for result in run.platforms if result.platform in fresh]
    _add_measures(connection, results, fresh)
    _add_details(connection, details, suites, fresh)


def put(connection: Connection, table: Table, values: Mapping[str, Any]) -> None:
    """Insert a row, or give the one of the same primary key other values."""
    keys = [column.name for column in table.primary_key]
    others = {name: value for name, value in values.items() if name not in keys}
    statement = _insert(connection, table).values(values)
    connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=others))


def _insert(connection: Connection, table: Table) -> Any:
    """An insert that knows what to do about a row that is there; they spell it alike."""
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    return dialect.insert(table)


def _add_keys(connection: Connection, keys: Iterable[EnvironmentKey]) -> None:
    rows = {key.digest: asdict(key) for key in keys}
    _add_missing(connection, ENVIRONMENT_KEYS, "components", rows)


def _add_blobs(connection: Connection, suites: Iterable[SuiteBlobs]) -> None:
    lists = {blob.digest: blob for suite in suites for blob in (suite.node_ids, suite.outcomes)}
    found = connection.scalars(select(BLOBS.c.digest).where(BLOBS.c.digest.in_(lists)))
    for digest in found:
        del lists[digest]  # compressing it would take longer than all the rest
    rows = {digest: blob.content for digest, blob in lists.items()}
    _add_missing(connection, BLOBS, "content", rows)


def _add_missing(
    connection: Connection, table: Table, column: str, rows: Mapping[str, Any]
) -> None:
    """Add what nobody else has added meanwhile.

    In order of the digests: of two that add some of the same, PostgreSQL lets the second wait for
    the first, and so never each for the other.
    """
    for digest, value in sorted(rows.items()):
        statement = _insert(connection, table).values({"digest": digest, column: value})
        connection.execute(statement.on_conflict_do_nothing())


def _save_platforms(
    connection: Connection,
    run: RunResult,
    keys: Mapping[str, EnvironmentKey],
    *,
    kept_unless: Collection[str],
) -> dict[str, int]:
    """Leave what is stored as it is, and replace the rest; returns the new rows' ids."""
    kept = {
        stored.platform: platform_id
        for platform_id, stored in stored_platforms(connection, run.run_id)
        if stored.platform not in kept_unless and stored in run.platforms
    }
    of_run = PLATFORMS.c.run_id == run.run_id
    connection.execute(delete(PLATFORMS).where(of_run, PLATFORMS.c.id.not_in(kept.values())))
    fresh: dict[str, int] = {}
    for position, result in enumerate(run.platforms):
        name = result.platform
        place = {"run_id": run.run_id, "position": position}
        if name in kept:
            moved = update(PLATFORMS).where(PLATFORMS.c.id == kept[name])
            connection.execute(moved.values(place))
        else:
            place["environment_key"] = keys[name].digest
            fresh[name] = _add_platform(connection, result, place)
    return fresh


def _add_platform(connection: Connection, result: PlatformResult, place: Mapping[str, Any]) -> int:
    row = insert(PLATFORMS).values(**place, **platform_values(result))
    platform_id = int(connection.execute(row.returning(PLATFORMS.c.id)).scalar_one())
    stages = [{"platform_id": platform_id, **stage} for stage in stage_values(result)]
    if stages:
        connection.execute(insert(STAGES), stages)
    return platform_id


def _add_measures(
    connection: Connection, results: Iterable[PlatformResult], ids: Mapping[str, int]
) -> None:
    rows = [
        {"platform_id": ids[result.platform], "measures": measures_of(result)} for result in results
    ]
    if rows:
        connection.execute(insert(MEASURED), rows)


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
        connection.execute(insert(DETAILS), rows)


def _details_values(details: Details, suite: SuiteBlobs | None) -> dict[str, Any]:
    return {
        "node_ids": suite and suite.node_ids.digest,
        "outcomes": suite and suite.outcomes.digest,
        "durations": suite and suite.durations,
        "reruns": reruns_blob(details.reruns) if details.reruns else None,
        "build": build_blob(details.build) if details.build else None,
    }


def stored_platforms(
    connection: Connection, run_id: str, platform: str | None = None
) -> Iterator[tuple[int, PlatformResult]]:
    """The platforms of a run, or one of them, each with the key of its row."""
    chosen = PLATFORMS.c.run_id == run_id
    if platform is not None:
        chosen &= PLATFORMS.c.platform == platform
    rows = connection.execute(select(PLATFORMS).where(chosen).order_by(PLATFORMS.c.position)).all()
    query = select(STAGES).join(PLATFORMS, STAGES.c.platform_id == PLATFORMS.c.id).where(chosen)
    stages: dict[int, list[Row[Any]]] = {row.id: [] for row in rows}
    for stage in connection.execute(query.order_by(STAGES.c.position)):
        stages[stage.platform_id].append(stage)
    for row in rows:
        yield row.id, platform_result(row, stages[row.id])


_RUN = ("run_id", "project", "commit", "dirty", "started_at", "finished_at", "engine")
_PLATFORM = ("platform", "label", "simulated", "built", "build_install_s", "pytest_s", "total_s")
_COUNTS = ("passed", "failed", "errors", "skipped", "xfailed", "xpassed", "warnings", "deselected")
_STAGE = tuple(StageResult.model_fields)


def run_values(run: RunResult) -> dict[str, Any]:
    """What a run says of itself, its platforms apart."""
    return {name: getattr(run, name) for name in _RUN}


def platform_values(result: PlatformResult) -> dict[str, Any]:
    """What a platform's result says, its stages apart."""
    pytest, verdict = result.pytest, result.verdict
    return dict(
        **{name: getattr(result, name) for name in _PLATFORM},
        **{name: getattr(pytest, name) if pytest else None for name in _COUNTS},
        pytest_seconds=pytest and pytest.seconds,
        pytest_summary=pytest and pytest.summary,
        product=verdict.product,
        harness=verdict.harness,
        evidence=[evidence.model_dump(mode="json") for evidence in verdict.evidence],
        notes=list(result.notes),
        overloads=[count.model_dump() for count in result.overloads],
        environment=result.environment,
        artifacts=result.artifacts,
        build=result.build and result.build.model_dump(),
    )


def stage_values(result: PlatformResult) -> list[dict[str, Any]]:
    """The stages of a platform, in their order."""
    return [{"position": n, **stage.model_dump()} for n, stage in enumerate(result.stages)]


def run_result(row: Row[Any], platforms: Iterable[PlatformResult]) -> RunResult:
    """The run that these rows were made of."""
    fields = {name: getattr(row, name) for name in _RUN}
    return RunResult(**fields, platforms=tuple(platforms))


def platform_result(row: Row[Any], stages: Iterable[Row[Any]]) -> PlatformResult:
    """The result that ``platform_values`` and ``stage_values`` were given."""
    return PlatformResult(
        **{name: getattr(row, name) for name in _PLATFORM},
        pytest=_pytest_result(row),
        overloads=tuple(map(OverloadCount.model_validate, row.overloads or ())),
        stages=tuple(
            StageResult(**{name: getattr(stage, name) for name in _STAGE}) for stage in stages
        ),
        build=None if row.build is None else BuildResult.model_validate(row.build),
        verdict=Verdict(
            product=Product(row.product),
            harness=Harness(row.harness),
            evidence=tuple(Evidence.model_validate(evidence) for evidence in row.evidence),
        ),
        notes=tuple(row.notes),
        environment=row.environment,
        artifacts=row.artifacts,
    )


def _pytest_result(row: Row[Any]) -> PytestResult | None:
    if row.passed is None:
        return None
    counts = {name: getattr(row, name) for name in _COUNTS}
    return PytestResult(**counts, seconds=row.pytest_seconds, summary=row.pytest_summary)
