"""Acceptances with all that ``ci-accepted.yaml`` has, of which the table is a copy.

Do not change this file: later versions add their own migration. Acceptances from before have no
author. They keep their place, the first run with the rise, and its commit.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

UNKNOWN = "unknown"


def upgrade() -> None:
    old = sa.table(
        "accepted",
        *(sa.column(name) for name in ("project", "platform", "measure", "run_id", "commit")),
        *(sa.column(name) for name in ("level", "reason")),
        sa.column("accepted_at", sa.DateTime(timezone=True)),
    )
    rows = op.get_bind().execute(sa.select(old).order_by(old.c.accepted_at)).all()
    op.drop_table("accepted")
    new = op.create_table(
        "accepted",
        sa.Column("project", sa.String(64), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("platform", sa.String(64), nullable=False),
        sa.Column("stage", sa.String(64), nullable=False),
        sa.Column("quantity", sa.String(64), nullable=False),
        sa.Column("level", sa.Double(), nullable=False),
        sa.Column("commit", sa.String(64)),
        sa.Column("run", sa.String(64)),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("who", sa.String(), nullable=False),
        sa.Column("date", sa.Date(), nullable=False),
        sa.Column("until", sa.Date()),
        sa.PrimaryKeyConstraint("project", "position", name="pk_accepted"),
    )
    for position, row in enumerate(rows):
        stage, _, quantity = row.measure.rpartition(".")
        values = {
            "project": row.project,
            "position": position,
            "platform": row.platform,
            "stage": stage,
            "quantity": quantity,
            "level": row.level,
            "commit": row.commit,
            "run": row.run_id,
            "reason": row.reason,
            "who": UNKNOWN,
            "date": row.accepted_at.date(),
        }
        op.execute(sa.insert(new).values(values))
