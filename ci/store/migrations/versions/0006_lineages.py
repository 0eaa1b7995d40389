"""The branch of every run, and where its commit is on its line.

Do not change this file: later versions add their own migration. Documents from before have no
lineage, so the new table starts empty.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "lineages",
        sa.Column("run_id", sa.String(64), nullable=False),
        sa.Column("branch", sa.String(255)),
        sa.Column("main_branch", sa.String(255)),
        sa.Column("target", sa.String(255)),
        sa.Column("tip", sa.String(64)),
        sa.Column("depth", sa.BigInteger()),
        sa.Column("merge_base", sa.String(64)),
        sa.ForeignKeyConstraint(
            ["run_id"], ["runs.run_id"], name="fk_lineages_run_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("run_id", name="pk_lineages"),
    )
