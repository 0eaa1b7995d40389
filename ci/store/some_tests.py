"""How a few tests ended in many runs: a tenth of the time that all of their tests would take."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence

from sqlalchemy import Connection, select

from ci.analysis.outcomes import Columns, Outcomes
from ci.store import blobs
from ci.store.tables import BLOBS, DETAILS, PLATFORMS


def outcomes_of_some(
    connection: Connection, tests: Collection[str], run_ids: Collection[str], platform: str
) -> dict[str, Outcomes]:
    """By run, those of the tests that it has, without their times."""
    query = (
        select(PLATFORMS.c.run_id, DETAILS.c.node_ids, DETAILS.c.outcomes)
        .join(PLATFORMS, DETAILS.c.platform_id == PLATFORMS.c.id)
        .where(
            PLATFORMS.c.platform == platform,
            PLATFORMS.c.run_id.in_(run_ids),
            DETAILS.c.outcomes.is_not(None),
        )
    )
    rows = connection.execute(query).all()
    digests = {digest for row in rows for digest in (row.node_ids, row.outcomes)}
    contents = _contents(connection, digests)
    places = {
        digest: _places(blobs.names(contents[digest]), tests)
        for digest in {row.node_ids for row in rows}
    }
    return {row.run_id: _outcomes(places[row.node_ids], contents[row.outcomes]) for row in rows}


def _contents(connection: Connection, digests: Collection[str]) -> dict[str, bytes]:
    query = select(BLOBS.c.digest, BLOBS.c.content).where(BLOBS.c.digest.in_(digests))
    return {row.digest: row.content for row in connection.execute(query)}


def _places(names: Sequence[str], tests: Iterable[str]) -> dict[str, int]:
    """Names are stored in their order."""
    found = {test: bisect_left(names, test) for test in tests}
    return {test: n for test, n in found.items() if n < len(names) and names[n] == test}


def _outcomes(places: dict[str, int], content: bytes) -> Outcomes:
    endings = blobs.endings(content, places.values())
    return Outcomes(Columns(names=lambda: [*places], endings=lambda: endings, seconds=_unknown))


def _unknown() -> Sequence[float]:
    raise NotImplementedError("the times of some tests alone are not loaded")
