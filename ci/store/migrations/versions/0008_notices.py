"""The rises that were sent to an address, so that each alarm is sent once.

Do not change this file: later versions add their own migration.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "notices",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("project", sa.String(64), nullable=False),
        sa.Column("address", sa.String(16), nullable=False),
        sa.Column("platform", sa.String(64), nullable=False),
        sa.Column("measure", sa.String(), nullable=False),
        sa.Column("run_id", sa.String(64), nullable=False),
        sa.Column("level", sa.Double(), nullable=False),
        sa.Column("sent_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_notices"),
    )
    op.create_index("ix_notices_project", "notices", ["project"])
