"""The tables, as the newest migration leaves them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    DateTime,
    Dialect,
    ForeignKey,
    Index,
    MetaData,
    String,
    UniqueConstraint,
    false,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship
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


class Base(DeclarativeBase):
    metadata = MetaData(naming_convention=NAMING)


class RunRow(Base):
    """One invocation of ``ci run``."""

    __tablename__ = "runs"

    run_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    project: Mapped[str] = mapped_column(String(64), index=True)
    commit: Mapped[str | None] = mapped_column(String(64))
    dirty: Mapped[bool]
    started_at: Mapped[datetime] = mapped_column(UtcDateTime, index=True)
    finished_at: Mapped[datetime] = mapped_column(UtcDateTime)
    engine: Mapped[str] = mapped_column(String(32))
    platforms: Mapped[list[PlatformRow]] = relationship(
        order_by="PlatformRow.position", cascade="all, delete-orphan", passive_deletes=True
    )


class PlatformRow(Base):
    """One platform of a run: a row of the results table."""

    __tablename__ = "platforms"
    __table_args__ = (
        UniqueConstraint("run_id", "platform"),
        # All that a series needs of these rows, which are long.
        Index("ix_platforms_platform", "platform", "environment_key", "run_id"),
    )

    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[str] = mapped_column(ForeignKey("runs.run_id", ondelete="CASCADE"))
    position: Mapped[int]
    platform: Mapped[str] = mapped_column(String(64))
    label: Mapped[str]
    simulated: Mapped[bool] = mapped_column(server_default=false())
    built: Mapped[bool | None]
    passed: Mapped[int | None]
    failed: Mapped[int | None]
    errors: Mapped[int | None]
    skipped: Mapped[int | None]
    xfailed: Mapped[int | None]
    xpassed: Mapped[int | None]
    warnings: Mapped[int | None]
    deselected: Mapped[int | None]
    pytest_seconds: Mapped[float | None]
    pytest_summary: Mapped[str | None]
    build_install_s: Mapped[float | None]
    pytest_s: Mapped[float | None]
    total_s: Mapped[float | None]
    product: Mapped[str] = mapped_column(String(16))
    harness: Mapped[str] = mapped_column(String(32))
    evidence: Mapped[list[Any]] = mapped_column(JSON)
    notes: Mapped[list[Any]] = mapped_column(JSON)
    overloads: Mapped[list[Any] | None] = mapped_column(JSON)
    environment: Mapped[dict[str, Any]] = mapped_column(JSON)
    artifacts: Mapped[dict[str, Any]] = mapped_column(JSON)
    build: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    # Never empty; SQLite cannot add a column that refers to another table and says so.
    environment_key: Mapped[str | None] = mapped_column(ForeignKey("environment_keys.digest"))
    stages: Mapped[list[StageRow]] = relationship(
        order_by="StageRow.position", cascade="all, delete-orphan", passive_deletes=True
    )


class StageRow(Base):
    """One stage of a platform's run."""

    __tablename__ = "stages"

    id: Mapped[int] = mapped_column(primary_key=True)
    platform_id: Mapped[int] = mapped_column(
        ForeignKey("platforms.id", ondelete="CASCADE"), index=True
    )
    position: Mapped[int]
    name: Mapped[str] = mapped_column(String(64))
    seconds: Mapped[float | None]
    cpu_user_s: Mapped[float | None]
    cpu_system_s: Mapped[float | None]
    peak_rss_bytes: Mapped[int | None] = mapped_column(BigInteger)
    exit_code: Mapped[int | None]
    in_total: Mapped[bool]


class DetailsRow(Base):
    """What is kept beside a platform's row, as ``ci.store.blobs`` encodes it."""

    __tablename__ = "details"

    platform_id: Mapped[int] = mapped_column(
        ForeignKey("platforms.id", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    node_ids: Mapped[str | None] = mapped_column(ForeignKey("blobs.digest"))
    outcomes: Mapped[str | None] = mapped_column(ForeignKey("blobs.digest"))
    durations: Mapped[bytes | None]
    reruns: Mapped[bytes | None]
    build: Mapped[bytes | None]


class BlobRow(Base):
    """A list that runs share; ``digest`` is the SHA-256 of its text."""

    __tablename__ = "blobs"

    digest: Mapped[str] = mapped_column(String(64), primary_key=True)
    content: Mapped[bytes]


class EnvironmentKeyRow(Base):
    """An environment that platforms ran in."""

    __tablename__ = "environment_keys"

    digest: Mapped[str] = mapped_column(String(16), primary_key=True)
    components: Mapped[dict[str, Any]] = mapped_column(JSON)


class MeasuredRow(Base):
    """The measures of a platform's run, by name; rows of their own are read in twice the time."""

    __tablename__ = "measured"

    platform_id: Mapped[int] = mapped_column(
        ForeignKey("platforms.id", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    measures: Mapped[dict[str, float]] = mapped_column(JSON)


class AcceptedRow(Base):
    """A change of a measure that somebody has accepted; it outlives its run."""

    __tablename__ = "accepted"

    project: Mapped[str] = mapped_column(String(64), primary_key=True)
    platform: Mapped[str] = mapped_column(String(64), primary_key=True)
    measure: Mapped[str] = mapped_column(primary_key=True)
    run_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    commit: Mapped[str | None] = mapped_column(String(64))
    level: Mapped[float]
    reason: Mapped[str]
    accepted_at: Mapped[datetime] = mapped_column(UtcDateTime)
