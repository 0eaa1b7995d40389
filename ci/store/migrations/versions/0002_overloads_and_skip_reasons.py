"""Counts of overloads by platform, and why a test skipped. Runs before have neither."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("platforms", sa.Column("overloads", sa.JSON(), nullable=True))
    op.add_column("tests", sa.Column("skip_reason", sa.String(), nullable=True))


def downgrade() -> None:
    op.drop_column("tests", "skip_reason")
    op.drop_column("platforms", "overloads")
