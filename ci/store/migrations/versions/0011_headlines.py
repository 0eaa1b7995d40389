"""Messages with the measure and the size that they named, and runs with the command of a search.

Do not change this file: later versions add their own migration.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("alarm_messages", sa.Column("measure", sa.String()))
    op.add_column("alarm_messages", sa.Column("size", sa.Double()))
    op.add_column("lineages", sa.Column("asked_by", sa.String(64)))
