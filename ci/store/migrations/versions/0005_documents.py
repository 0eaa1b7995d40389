"""The first tables with an upgrade path: a run and its platforms are JSON documents.

Do not change this file: later versions add their own migration. Stores of revisions 0001 to 0004
had a column for every field. They are refused with the command that fills a new store.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "runs",
        sa.Column("run_id", sa.String(64), nullable=False),
        sa.Column("project", sa.String(64), nullable=False),
        sa.Column("commit", sa.String(64)),
        sa.Column("dirty", sa.Boolean(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("run_id", name="pk_runs"),
    )
    op.create_index("ix_runs_project", "runs", ["project"])
    op.create_index("ix_runs_started_at", "runs", ["started_at"])
    op.create_table(
        "environment_keys",
        sa.Column("digest", sa.String(16), nullable=False),
        sa.Column("components", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_environment_keys"),
    )
    _create_platforms()
    op.create_table(
        "blobs",
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("digest", name="pk_blobs"),
    )
    _create_details()
    op.create_table(
        "measured",
        sa.Column("platform_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("measures", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["platform_id"], ["platforms.id"], name="fk_measured_platform_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("platform_id", name="pk_measured"),
    )
    op.create_table(
        "accepted",
        sa.Column("project", sa.String(64), nullable=False),
        sa.Column("platform", sa.String(64), nullable=False),
        sa.Column("measure", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(64), nullable=False),
        sa.Column("commit", sa.String(64)),
        sa.Column("level", sa.Double(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("accepted_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("project", "platform", "measure", "run_id", name="pk_accepted"),
    )


def _create_platforms() -> None:
    op.create_table(
        "platforms",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.String(64), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("platform", sa.String(64), nullable=False),
        sa.Column("product", sa.String(16), nullable=False),
        sa.Column("tested", sa.Boolean(), nullable=False),
        sa.Column("environment_key", sa.String(16), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.run_id"], name="fk_platforms_run_id", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["environment_key"], ["environment_keys.digest"], name="fk_platforms_environment_key"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_platforms"),
        sa.UniqueConstraint("run_id", "platform", name="uq_platforms_run_id"),
    )
    op.create_index("ix_platforms_platform", "platforms", ["platform", "environment_key", "run_id"])
    op.create_index("ix_platforms_product", "platforms", ["run_id", "platform", "product"])


def _create_details() -> None:
    op.create_table(
        "details",
        sa.Column("platform_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("node_ids", sa.String(64)),
        sa.Column("outcomes", sa.String(64)),
        sa.Column("durations", sa.LargeBinary()),
        sa.Column("reruns", sa.LargeBinary()),
        sa.Column("build", sa.LargeBinary()),
        sa.ForeignKeyConstraint(
            ["platform_id"], ["platforms.id"], name="fk_details_platform_id", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["node_ids"], ["blobs.digest"], name="fk_details_node_ids"),
        sa.ForeignKeyConstraint(["outcomes"], ["blobs.digest"], name="fk_details_outcomes"),
        sa.PrimaryKeyConstraint("platform_id", name="pk_details"),
    )
    with_reruns = sa.text("reruns IS NOT NULL")
    op.create_index(
        "ix_details_reruns",
        "details",
        ["platform_id"],
        sqlite_where=with_reruns,
        postgresql_where=with_reruns,
    )
