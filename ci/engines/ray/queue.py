"""The order in which platforms get hosts of the pool: Ray itself has no priorities.

For each kind of host, only the first platform in the queue is in Ray's own. A platform of a
higher priority takes its place, until Ray has a host for it. Ray sends the class itself, so this
module imports the standard library only.
"""

from __future__ import annotations

import time

GONE_S = 20.0  # after its last question, the caller of a platform has died


class Queue:
    """An actor with the waiting platforms of all runs.

    It keeps nothing that its callers do not repeat: a new one goes on where a lost one was.
    """

    def __init__(self) -> None:
        # By ticket: its kind of host, its rank, its arrival and its last question.
        self._waiting: dict[str, tuple[str, tuple[int, float], float]] = {}

    def ask(self, ticket: str, kind: str, priority: int, arrival: float) -> int:
        """Return how many platforms are before one that needs a host of this kind.

        ``priority`` is smaller for the more urgent; ``arrival`` orders those that are equal.
        """
        now = time.monotonic()
        self._waiting = {
            name: (other, rank, asked)
            for name, (other, rank, asked) in self._waiting.items()
            if now - asked < GONE_S
        }
        mine = (priority, arrival)
        self._waiting[ticket] = (kind, mine, now)
        return sum(other == kind and rank < mine for other, rank, _ in self._waiting.values())

    def leave(self, ticket: str) -> None:
        """Forget a platform that has a host, or needs none."""
        self._waiting.pop(ticket, None)
