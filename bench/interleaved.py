"""Times variants of one call in turns, so that other load on the machine affects all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping


class Interleaved:
    """The seconds of every variant, one value per round.

    A timer gets a number of calls and returns their duration in seconds. ``least_loops`` calls
    are doubled until a round takes ``least_seconds``, which also warms up.
    """

    def __init__(
        self, timers: Mapping[str, Callable[[int], float]], least_seconds: float, least_loops: int
    ) -> None:
        self._timers = timers
        self._loops = dict.fromkeys(timers, least_loops)
        self.seconds: dict[str, list[float]] = {name: [] for name in timers}
        for name, timer in timers.items():
            while timer(self._loops[name]) < least_seconds:
                self._loops[name] *= 2

    def time_round(self, index: int) -> None:
        """Time every variant once; every other round begins with the last one."""
        for name in list(self._timers)[:: 1 if index % 2 else -1]:
            self.seconds[name].append(self._timers[name](self._loops[name]) / self._loops[name])
