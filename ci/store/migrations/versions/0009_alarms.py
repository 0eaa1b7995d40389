"""Alarms with an identity and a state, in place of the rises that were sent.

Do not change this file: later versions add their own migration. Rises that were sent at one time
become one alarm, so that no alarm is sent again. The run before each of them is not known.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    columns = ("project", "address", "platform", "measure", "run_id")
    old = sa.table(
        "notices",
        sa.column("id", sa.Integer),
        *(sa.column(name, sa.String) for name in columns),
        sa.column("level", sa.Double),
        sa.column("sent_at", sa.DateTime(timezone=True)),
    )
    rows = op.get_bind().execute(sa.select(old).order_by(old.c.id)).all()
    op.drop_table("notices")
    alarms = op.create_table(
        "alarms",
        sa.Column("project", sa.String(64), nullable=False),
        sa.Column("alarm_id", sa.String(16), nullable=False),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("seen_run_id", sa.String(64)),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("who", sa.String()),
        sa.Column("note", sa.String()),
        sa.Column("commit", sa.String(64)),
        sa.Column("stated_at", sa.DateTime(timezone=True)),
        sa.Column("link", sa.String()),
        sa.PrimaryKeyConstraint("project", "alarm_id", name="pk_alarms"),
    )
    rises = op.create_table(
        "alarm_rises",
        sa.Column("project", sa.String(64), nullable=False),
        sa.Column("alarm_id", sa.String(16), nullable=False),
        sa.Column("platform", sa.String(64), nullable=False),
        sa.Column("measure", sa.String(), nullable=False),
        sa.Column("before_run_id", sa.String(64)),
        sa.Column("run_id", sa.String(64), nullable=False),
        sa.Column("before", sa.Double()),
        sa.Column("level", sa.Double(), nullable=False),
        sa.PrimaryKeyConstraint(
            "project", "alarm_id", "platform", "measure", name="pk_alarm_rises"
        ),
    )
    messages = op.create_table(
        "alarm_messages",
        sa.Column("project", sa.String(64), nullable=False),
        sa.Column("address", sa.String(16), nullable=False),
        sa.Column("alarm_id", sa.String(16), nullable=False),
        sa.Column("event", sa.String(16), nullable=False),
        sa.Column("before_run_id", sa.String(64)),
        sa.Column("run_id", sa.String(64), nullable=False),
        sa.Column("latest_run_id", sa.String(64)),
        sa.Column("decided", sa.Boolean(), nullable=False),
        sa.Column("sent_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("project", "address", "alarm_id", name="pk_alarm_messages"),
    )
    names: dict[tuple[str, str, str], str] = {}  # by project and rise
    written: set[tuple[str, ...]] = set()
    for group in _group(rows):
        first = group[0]
        known = (names.get((it.project, it.platform, it.measure + it.run_id)) for it in group)
        alarm_id = next(filter(None, known), None)
        if alarm_id is None:
            place = (first.project, first.platform, first.measure, first.run_id)
            alarm_id = hashlib.sha256("\0".join(place).encode()).hexdigest()[:8]
        own = {"project": first.project, "alarm_id": alarm_id}
        if tuple(own.values()) not in written:
            written.add(tuple(own.values()))
            alarm = {**own, "position": len(written), "kind": "regression", "state": "open"}
            op.execute(sa.insert(alarms).values(alarm))
        for it in group:
            names[it.project, it.platform, it.measure + it.run_id] = alarm_id
            if (*own.values(), it.platform, it.measure) not in written:
                written.add((*own.values(), it.platform, it.measure))
                rise = {"platform": it.platform, "measure": it.measure, "run_id": it.run_id}
                op.execute(sa.insert(rises).values({**own, **rise, "level": it.level}))
        if (*own.values(), first.address) not in written:
            written.add((*own.values(), first.address))
            sent = {"run_id": first.run_id, "sent_at": first.sent_at, "event": "new"}
            sent["decided"] = False
            op.execute(sa.insert(messages).values({**own, "address": first.address, **sent}))


def _group(rows: Sequence[sa.Row[Any]]) -> list[list[sa.Row[Any]]]:
    """The rises of each message: those to one address at one time."""
    groups: dict[tuple[object, ...], list[sa.Row[Any]]] = {}
    for row in rows:
        groups.setdefault((row.project, row.address, row.sent_at), []).append(row)
    return [*groups.values()]
