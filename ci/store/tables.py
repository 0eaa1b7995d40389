"""The tables, as the newest migration defines them.

A run and a platform's result are JSON documents, as in ``results.json``. Other columns exist only
where queries filter, sort or aggregate by them. There are no mapped classes: SQLAlchemy's mapper
takes 0.1 s to import and set up, which every query of the store would pay.
"""

from __future__ import annotations

from datetime import UTC, datetime

import sqlalchemy as sa
from sqlalchemy.types import TypeDecorator

# Constraints have names, so that a later migration can refer to them on every database.
NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_name)s",
    "uq": "uq_%(table_name)s_%(column_0_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s",
    "pk": "pk_%(table_name)s",
}


class UtcDateTime(TypeDecorator[datetime]):
    """Timestamps with a zone: SQLite drops the zone, so all are stored as UTC."""

    impl = sa.DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, _: sa.Dialect) -> datetime | None:
        return value and value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, _: sa.Dialect) -> datetime | None:
        if value is None or value.tzinfo is not None:  # PostgreSQL returns the zone of its session
            return value and value.astimezone(UTC)
        return value.replace(tzinfo=UTC)


METADATA = sa.MetaData(naming_convention=NAMING)

# One invocation of ``ci run``.
RUNS = sa.Table(
    "runs",
    METADATA,
    sa.Column("run_id", sa.String(64), primary_key=True),
    sa.Column("project", sa.String(64), index=True, nullable=False),
    sa.Column("commit", sa.String(64)),
    sa.Column("dirty", sa.Boolean, nullable=False),
    sa.Column("started_at", UtcDateTime, index=True, nullable=False),
    sa.Column("finished_at", UtcDateTime, nullable=False),
    # A ``RunResult`` without its platforms; its schema version is also that of their documents.
    sa.Column("document", sa.JSON, nullable=False),
)

# The lineage of a run, without the ancestors, which only its document has. Not in ``runs``: SQLite
# would read the long documents to reach columns behind them.
LINEAGES = sa.Table(
    "lineages",
    METADATA,
    sa.Column("run_id", sa.ForeignKey("runs.run_id", ondelete="CASCADE"), primary_key=True),
    *(sa.Column(name, sa.String(255)) for name in ("branch", "main_branch", "target")),
    sa.Column("tip", sa.String(64)),
    sa.Column("depth", sa.BigInteger),
    sa.Column("merge_base", sa.String(64)),
    sa.Column("asked_by", sa.String(64)),  # the command of a run that searches a commit
)

# One platform of a run: a row of the results table.
PLATFORMS = sa.Table(
    "platforms",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("run_id", sa.ForeignKey("runs.run_id", ondelete="CASCADE"), nullable=False),
    sa.Column("position", sa.Integer, nullable=False),
    sa.Column("platform", sa.String(64), nullable=False),
    sa.Column("product", sa.String(16), nullable=False),
    sa.Column("tested", sa.Boolean, nullable=False),  # whether it has test counts
    sa.Column("environment_key", sa.ForeignKey("environment_keys.digest"), nullable=False),
    sa.Column("document", sa.JSON, nullable=False),  # a ``PlatformResult``
    sa.UniqueConstraint("run_id", "platform"),
    # Covering indexes for series and for lists of runs, since the rows themselves are long.
    sa.Index("ix_platforms_platform", "platform", "environment_key", "run_id"),
    sa.Index("ix_platforms_product", "run_id", "platform", "product"),
)


def _platform_id() -> sa.Column[int]:
    """The key of a table with one row per row of ``platforms``."""
    of_platform = sa.ForeignKey("platforms.id", ondelete="CASCADE")
    return sa.Column("platform_id", of_platform, primary_key=True, autoincrement=False)


# Tests, reruns and the build of a platform's run, as ``ci.store.blobs`` encodes them.
DETAILS = sa.Table(
    "details",
    METADATA,
    _platform_id(),
    sa.Column("node_ids", sa.ForeignKey("blobs.digest")),
    sa.Column("outcomes", sa.ForeignKey("blobs.digest")),
    sa.Column("durations", sa.LargeBinary),
    sa.Column("reruns", sa.LargeBinary),
    sa.Column("build", sa.LargeBinary),
)
# In the database only rows with reruns are in it. To say so here would import the dialect of
# PostgreSQL, which takes 0.03 s.
sa.Index("ix_details_reruns", DETAILS.c.platform_id)

# Lists that runs share; ``digest`` is the SHA-256 of a list's text.
BLOBS = sa.Table(
    "blobs",
    METADATA,
    sa.Column("digest", sa.String(64), primary_key=True),
    sa.Column("content", sa.LargeBinary, nullable=False),
)

# The environments that platforms ran in.
ENVIRONMENT_KEYS = sa.Table(
    "environment_keys",
    METADATA,
    sa.Column("digest", sa.String(16), primary_key=True),
    sa.Column("components", sa.JSON, nullable=False),
)

# The measures of a platform's run, by name. A row per measure would take twice as long to read.
MEASURED = sa.Table(
    "measured", METADATA, _platform_id(), sa.Column("measures", sa.JSON, nullable=False)
)

# A copy of the project's ci-accepted.yaml, for readers that do not have the file.
ACCEPTED = sa.Table(
    "accepted",
    METADATA,
    sa.Column("project", sa.String(64), primary_key=True),
    sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("platform", sa.String(64), nullable=False),
    sa.Column("stage", sa.String(64), nullable=False),
    sa.Column("quantity", sa.String, nullable=False),
    sa.Column("level", sa.Double, nullable=False),
    sa.Column("commit", sa.String(64)),
    sa.Column("run", sa.String(64)),
    sa.Column("reason", sa.String, nullable=False),
    sa.Column("who", sa.String, nullable=False),
    sa.Column("date", sa.Date, nullable=False),
    sa.Column("until", sa.Date),
)

# Alarms, and what people said of them. An alarm keeps its id while its rises move.
ALARMS = sa.Table(
    "alarms",
    METADATA,
    sa.Column("project", sa.String(64), primary_key=True),
    sa.Column("alarm_id", sa.String(16), primary_key=True),
    sa.Column("position", sa.Integer, nullable=False),  # among the alarms of the project
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("seen_run_id", sa.String(64)),
    sa.Column("state", sa.String(16), nullable=False),
    *(sa.Column(name, sa.String) for name in ("who", "note")),
    sa.Column("commit", sa.String(64)),
    sa.Column("stated_at", UtcDateTime),
    sa.Column("link", sa.String),
)

# The rises of alarms, where they were last found.
ALARM_RISES = sa.Table(
    "alarm_rises",
    METADATA,
    sa.Column("project", sa.String(64), primary_key=True),
    sa.Column("alarm_id", sa.String(16), primary_key=True),
    sa.Column("platform", sa.String(64), primary_key=True),
    sa.Column("measure", sa.String, primary_key=True),
    sa.Column("before_run_id", sa.String(64)),
    sa.Column("run_id", sa.String(64), nullable=False),
    sa.Column("before", sa.Double),
    sa.Column("level", sa.Double, nullable=False),
)

# The last message of each alarm to an address, of which only a digest is stored: it is a secret.
ALARM_MESSAGES = sa.Table(
    "alarm_messages",
    METADATA,
    sa.Column("project", sa.String(64), primary_key=True),
    sa.Column("address", sa.String(16), primary_key=True),
    sa.Column("alarm_id", sa.String(16), primary_key=True),
    sa.Column("event", sa.String(16), nullable=False),
    sa.Column("before_run_id", sa.String(64)),
    sa.Column("run_id", sa.String(64), nullable=False),
    sa.Column("latest_run_id", sa.String(64)),
    sa.Column("decided", sa.Boolean, nullable=False),
    sa.Column("sent_at", UtcDateTime, nullable=False),
    sa.Column("measure", sa.String),
    sa.Column("size", sa.Double),
)
