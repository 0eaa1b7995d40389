"""A run from its rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlalchemy import Connection, Row, select

from ci.results import PlatformResult
from ci.store.convert import platform_result
from ci.store.tables import PLATFORMS, STAGES


def stored_platforms(
    connection: Connection, run_id: str, platform: str | None = None
) -> Iterator[tuple[int, PlatformResult]]:
    """The platforms of a run, or one of them, each with the key of its row."""
    chosen = PLATFORMS.c.run_id == run_id
    if platform is not None:
        chosen &= PLATFORMS.c.platform == platform
    rows = connection.execute(select(PLATFORMS).where(chosen).order_by(PLATFORMS.c.position)).all()
    query = select(STAGES).join(PLATFORMS, STAGES.c.platform_id == PLATFORMS.c.id).where(chosen)
    stages: dict[int, list[Row[Any]]] = {row.id: [] for row in rows}
    for stage in connection.execute(query.order_by(STAGES.c.position)):
        stages[stage.platform_id].append(stage)
    for row in rows:
        yield row.id, platform_result(row, stages[row.id])
