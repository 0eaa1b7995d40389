"""Accepted quantities of any length: that of a benchmark has its name.

Do not change this file: later versions add their own migration.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.batch_alter_table("accepted") as table:  # SQLite copies the table
        table.alter_column(
            "quantity",
            existing_type=sa.String(64),
            existing_nullable=False,
            type_=sa.String(),
        )
