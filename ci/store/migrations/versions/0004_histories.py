"""What histories are made of: measures, environment keys, builds; tests as shared lists.

The rows of tests, 17,000 a platform, become three lists a platform. Durations are kept to the
microsecond. The way back is the copy that is made before.
"""

from __future__ import annotations

import hashlib
import json
import sys
import zlib
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql, sqlite

from ci.facts.environment_key import environment_key
from ci.facts.measures import measures_of
from ci.facts.operators import skip_reason
from ci.model.results import Harness, PlatformResult, Product, PytestResult, StageResult, Verdict

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_COUNTS = ("passed", "failed", "errors", "skipped", "xfailed", "xpassed", "warnings", "deselected")
# As they are at this revision; the tables of the program will change.
_PLATFORMS = sa.table(
    "platforms",
    *map(
        sa.column,
        ("id", "platform", "label", "simulated", "built", "build_install_s", "pytest_s", "total_s"),
    ),
    *map(sa.column, (*_COUNTS, "pytest_seconds", "pytest_summary", "environment_key")),
    sa.column("environment", sa.JSON()),
)
_STAGES = sa.table(
    "stages",
    *map(sa.column, ("id", "platform_id", "position", "name", "seconds")),
    *map(sa.column, ("cpu_user_s", "cpu_system_s", "peak_rss_bytes", "exit_code", "in_total")),
)
_TESTS = sa.table(
    "tests",
    *map(
        sa.column,
        ("platform_id", "node_id", "outcome", "seconds", "reason", "skip_reason"),
    ),
)


def upgrade() -> None:
    keys, blobs, details, measured = _create_tables()
    _extend_platforms()
    connection = op.get_bind()
    for platform in connection.execute(sa.select(_PLATFORMS)).all():
        result = _result(connection, platform)
        _add_key(connection, keys, platform.id, result)
        connection.execute(
            sa.insert(measured).values(platform_id=platform.id, measures=measures_of(result))
        )
        _add_details(connection, blobs, details, platform.id)
    op.drop_table("tests")


def _create_tables() -> tuple[sa.Table, sa.Table, sa.Table, sa.Table]:
    keys = op.create_table(
        "environment_keys",
        sa.Column("digest", sa.String(length=16), nullable=False),
        sa.Column("components", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_environment_keys"),
    )
    blobs = op.create_table(
        "blobs",
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_blobs"),
    )
    op.create_table(
        "accepted",
        sa.Column("project", sa.String(length=64), nullable=False),
        sa.Column("platform", sa.String(length=64), nullable=False),
        sa.Column("measure", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("commit", sa.String(length=64), nullable=True),
        sa.Column("level", sa.Double(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("accepted_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("project", "platform", "measure", "run_id", name="pk_accepted"),
    )
    return keys, blobs, *_create_tables_of_platforms()


def _create_tables_of_platforms() -> tuple[sa.Table, sa.Table]:
    details = op.create_table(
        "details",
        sa.Column("platform_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("node_ids", sa.String(length=64), nullable=True),
        sa.Column("outcomes", sa.String(length=64), nullable=True),
        sa.Column("durations", sa.LargeBinary(), nullable=True),
        sa.Column("reruns", sa.LargeBinary(), nullable=True),
        sa.Column("build", sa.LargeBinary(), nullable=True),
        sa.ForeignKeyConstraint(
            ["platform_id"], ["platforms.id"], name="fk_details_platform_id", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["node_ids"], ["blobs.digest"], name="fk_details_node_ids"),
        sa.ForeignKeyConstraint(["outcomes"], ["blobs.digest"], name="fk_details_outcomes"),
        sa.PrimaryKeyConstraint("platform_id", name="pk_details"),
    )
    measured = op.create_table(
        "measured",
        sa.Column("platform_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("measures", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["platform_id"], ["platforms.id"], name="fk_measured_platform_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("platform_id", name="pk_measured"),
    )
    return details, measured


def _extend_platforms() -> None:
    op.add_column("platforms", sa.Column("build", sa.JSON(), nullable=True))
    # Both databases take this; Alembic believes that SQLite cannot.
    op.execute(
        "ALTER TABLE platforms ADD COLUMN environment_key VARCHAR(16)"
        " CONSTRAINT fk_platforms_environment_key REFERENCES environment_keys (digest)"
    )
    op.create_index("ix_platforms_platform", "platforms", ["platform", "environment_key", "run_id"])
    op.create_index("ix_platforms_product", "platforms", ["run_id", "platform", "product"])
    with_reruns = sa.text("reruns IS NOT NULL")
    op.create_index(
        "ix_details_reruns",
        "details",
        ["platform_id"],
        sqlite_where=with_reruns,
        postgresql_where=with_reruns,
    )


def _result(connection: sa.Connection, row: sa.Row[Any]) -> PlatformResult:
    """As much of a result as its measures and its environment key are made of."""
    stages = connection.execute(
        sa.select(_STAGES).where(_STAGES.c.platform_id == row.id).order_by(_STAGES.c.position)
    )
    return PlatformResult(
        platform=row.platform,
        label=row.label,
        simulated=row.simulated,
        built=row.built,
        pytest=None if row.passed is None else _pytest(row),
        stages=tuple(
            StageResult(**{name: getattr(stage, name) for name in StageResult.model_fields})
            for stage in stages
        ),
        build_install_s=row.build_install_s,
        pytest_s=row.pytest_s,
        total_s=row.total_s,
        verdict=Verdict(product=Product.NOT_RUN, harness=Harness.CLEAN, evidence=()),
        notes=(),
        environment=row.environment,
        artifacts={},
    )


def _pytest(row: sa.Row[Any]) -> PytestResult:
    counts = {name: getattr(row, name) for name in _COUNTS}
    return PytestResult(**counts, seconds=row.pytest_seconds, summary=row.pytest_summary)


def _add_key(
    connection: sa.Connection, keys: sa.Table, platform_id: int, result: PlatformResult
) -> None:
    key = environment_key(result)
    _add_missing(connection, keys, digest=key.digest, components=asdict(key))
    connection.execute(
        sa.update(_PLATFORMS)
        .where(_PLATFORMS.c.id == platform_id)
        .values(environment_key=key.digest)
    )


def _add_details(
    connection: sa.Connection, blobs: sa.Table, details: sa.Table, platform_id: int
) -> None:
    tests = connection.execute(sa.select(_TESTS).where(_TESTS.c.platform_id == platform_id)).all()
    if not tests:
        return
    tests = sorted(tests, key=lambda test: test.node_id)
    digests = [
        _add_blob(connection, blobs, value)
        for value in ([test.node_id for test in tests], _states(tests))
    ]
    values = {"node_ids": digests[0], "outcomes": digests[1], "durations": _durations(tests)}
    connection.execute(sa.insert(details).values(platform_id=platform_id, **values))


def _add_blob(connection: sa.Connection, blobs: sa.Table, value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    digest = hashlib.sha256(text).hexdigest()
    _add_missing(connection, blobs, digest=digest, content=zlib.compress(text))
    return digest


def _add_missing(connection: sa.Connection, table: sa.Table, **values: Any) -> None:
    dialect: Any = postgresql if connection.dialect.name == "postgresql" else sqlite
    connection.execute(dialect.insert(table).values(**values).on_conflict_do_nothing())


def _states(tests: Iterable[sa.Row[Any]]) -> list[Any]:
    known: dict[tuple[str, str | None, str | None], int] = {}
    indices = [
        known.setdefault((test.outcome, test.reason, _skip_reason(test)), len(known))
        for test in tests
    ]
    return [list(known), indices]


def _skip_reason(test: sa.Row[Any]) -> str | None:
    """A run before 0002 kept none but in its message."""
    if test.skip_reason is None and test.outcome == "skipped":
        return skip_reason(None, test.reason)
    return test.skip_reason  # type: ignore[no-any-return]


def _durations(tests: Sequence[sa.Row[Any]]) -> bytes:
    numbers = array("q", [round(test.seconds * 1_000_000) for test in tests])
    if sys.byteorder == "big":
        numbers.byteswap()
    plain = numbers.tobytes()
    return zlib.compress(b"".join(plain[place::8] for place in range(8)))
