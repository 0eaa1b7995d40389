"""The initial tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "runs",
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("project", sa.String(length=64), nullable=False),
        sa.Column("commit", sa.String(length=64), nullable=True),
        sa.Column("dirty", sa.Boolean(), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("engine", sa.String(length=32), nullable=False),
        sa.PrimaryKeyConstraint("run_id", name="pk_runs"),
    )

    op.create_table(
        "platforms",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.String(length=64), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("platform", sa.String(length=64), nullable=False),
        sa.Column("label", sa.String(), nullable=False),
        sa.Column("built", sa.Boolean(), nullable=True),
        sa.Column("passed", sa.Integer(), nullable=True),
        sa.Column("failed", sa.Integer(), nullable=True),
        sa.Column("errors", sa.Integer(), nullable=True),
        sa.Column("skipped", sa.Integer(), nullable=True),
        sa.Column("xfailed", sa.Integer(), nullable=True),
        sa.Column("xpassed", sa.Integer(), nullable=True),
        sa.Column("warnings", sa.Integer(), nullable=True),
        sa.Column("deselected", sa.Integer(), nullable=True),
        sa.Column("pytest_seconds", sa.Double(), nullable=True),
        sa.Column("pytest_summary", sa.String(), nullable=True),
        sa.Column("build_install_s", sa.Double(), nullable=True),
        sa.Column("pytest_s", sa.Double(), nullable=True),
        sa.Column("total_s", sa.Double(), nullable=True),
        sa.Column("product", sa.String(length=16), nullable=False),
        sa.Column("harness", sa.String(length=32), nullable=False),
        sa.Column("evidence", sa.JSON(), nullable=False),
        sa.Column("notes", sa.JSON(), nullable=False),
        sa.Column("environment", sa.JSON(), nullable=False),
        sa.Column("artifacts", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.run_id"], name="fk_platforms_run_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_platforms"),
        sa.UniqueConstraint("run_id", "platform", name="uq_platforms_run_id"),
    )
    op.create_table(
        "stages",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("platform_id", sa.Integer(), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=True),
        sa.Column("cpu_user_s", sa.Double(), nullable=True),
        sa.Column("cpu_system_s", sa.Double(), nullable=True),
        sa.Column("peak_rss_bytes", sa.BigInteger(), nullable=True),
        sa.Column("exit_code", sa.Integer(), nullable=True),
        sa.Column("in_total", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["platform_id"], ["platforms.id"], name="fk_stages_platform_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_stages"),
    )

    op.create_table(
        "tests",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("platform_id", sa.Integer(), nullable=False),
        sa.Column("node_id", sa.String(), nullable=False),
        sa.Column("outcome", sa.String(length=16), nullable=False),
        sa.Column("seconds", sa.Double(), nullable=False),
        sa.Column("reason", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(
            ["platform_id"], ["platforms.id"], name="fk_tests_platform_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_tests"),
        sa.UniqueConstraint("platform_id", "node_id", name="uq_tests_platform_id"),
    )
    op.create_index("ix_runs_project", "runs", ["project"])
    op.create_index("ix_runs_started_at", "runs", ["started_at"])
    op.create_index("ix_stages_platform_id", "stages", ["platform_id"])


def downgrade() -> None:
    for table in ("tests", "stages", "platforms", "runs"):
        op.drop_table(table)
