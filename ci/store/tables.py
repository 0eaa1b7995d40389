"""The tables, as the newest migration leaves them.

A run and a platform's result are JSON documents, as in ``results.json``; beside them are only the
columns that queries filter, sort or aggregate by. Without classes of rows: SQLAlchemy's
mapper takes 0.1 s to import and to set up, which every question to the store would pay.
"""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    DateTime,
    Dialect,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    UniqueConstraint,
)
from sqlalchemy.types import TypeDecorator

# Named constraints, so that a later migration can refer to them on every database.
NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_name)s",
    "uq": "uq_%(table_name)s_%(column_0_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s",
    "pk": "pk_%(table_name)s",
}


class UtcDateTime(TypeDecorator[datetime]):
    """Aware timestamps: SQLite drops the zone, so all are stored as UTC."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, _: Dialect) -> datetime | None:
        return value and value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, _: Dialect) -> datetime | None:
        if value is None or value.tzinfo is not None:  # PostgreSQL keeps a zone, its session's
            return value and value.astimezone(UTC)
        return value.replace(tzinfo=UTC)


METADATA = MetaData(naming_convention=NAMING)

# One invocation of ``ci run``.
RUNS = Table(
    "runs",
    METADATA,
    Column("run_id", String(64), primary_key=True),
    Column("project", String(64), index=True, nullable=False),
    Column("commit", String(64)),
    Column("dirty", Boolean, nullable=False),
    Column("started_at", UtcDateTime, index=True, nullable=False),
    Column("finished_at", UtcDateTime, nullable=False),
    # A ``RunResult`` without its platforms; it has the version of their documents, too.
    Column("document", JSON, nullable=False),
)

# One platform of a run: a row of the results table.
PLATFORMS = Table(
    "platforms",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("run_id", ForeignKey("runs.run_id", ondelete="CASCADE"), nullable=False),
    Column("position", Integer, nullable=False),
    Column("platform", String(64), nullable=False),
    Column("product", String(16), nullable=False),
    Column("tested", Boolean, nullable=False),  # whether it has counts of tests
    Column("environment_key", ForeignKey("environment_keys.digest"), nullable=False),
    Column("document", JSON, nullable=False),  # a ``PlatformResult``
    UniqueConstraint("run_id", "platform"),
    # All that a series needs of these rows, which are long, and all that a list of runs does.
    Index("ix_platforms_platform", "platform", "environment_key", "run_id"),
    Index("ix_platforms_product", "run_id", "platform", "product"),
)


def _platform_id() -> Column[int]:
    """The key of what is kept beside a platform's row."""
    of_platform = ForeignKey("platforms.id", ondelete="CASCADE")
    return Column("platform_id", of_platform, primary_key=True, autoincrement=False)


# Tests, reruns and the build of a platform's run, as ``ci.store.blobs`` encodes them.
DETAILS = Table(
    "details",
    METADATA,
    _platform_id(),
    Column("node_ids", ForeignKey("blobs.digest")),
    Column("outcomes", ForeignKey("blobs.digest")),
    Column("durations", LargeBinary),
    Column("reruns", LargeBinary),
    Column("build", LargeBinary),
)
WITH_RERUNS = DETAILS.c.reruns.is_not(None)
Index(
    "ix_details_reruns",
    DETAILS.c.platform_id,
    sqlite_where=WITH_RERUNS,
    postgresql_where=WITH_RERUNS,
)

# Lists that runs share; ``digest`` is the SHA-256 of a list's text.
BLOBS = Table(
    "blobs",
    METADATA,
    Column("digest", String(64), primary_key=True),
    Column("content", LargeBinary, nullable=False),
)

# The environments that platforms ran in.
ENVIRONMENT_KEYS = Table(
    "environment_keys",
    METADATA,
    Column("digest", String(16), primary_key=True),
    Column("components", JSON, nullable=False),
)

# The measures of a platform's run, by name; rows of their own are read in twice the time.
MEASURED = Table("measured", METADATA, _platform_id(), Column("measures", JSON, nullable=False))

# Changes of measures that somebody has accepted; they outlive their runs.
ACCEPTED = Table(
    "accepted",
    METADATA,
    Column("project", String(64), primary_key=True),
    Column("platform", String(64), primary_key=True),
    Column("measure", String, primary_key=True),
    Column("run_id", String(64), primary_key=True),
    Column("commit", String(64)),
    Column("level", Double, nullable=False),
    Column("reason", String, nullable=False),
    Column("accepted_at", UtcDateTime, nullable=False),
)
