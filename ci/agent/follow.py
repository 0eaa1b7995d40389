"""Follow running stages: pass on their output, and read how their supervisors say they ended."""

from __future__ import annotations

import os
import select
from collections.abc import Container, Sequence
from contextlib import suppress

from ci.agent.output import QUIET_S, StageOutput
from ci.agent.stage import Stage
from ci.agent.user import LARGEST_PIPE, LogPipe
from ci.protocol.events import CommandEnd
from ci.util.lines import parse_object


class FollowedStage:
    """A running stage whose output is passed on, and what its supervisor has written so far.

    What the stage writes into the pipe ``log`` is copied too.
    """

    def __init__(self, stage: Stage, output: StageOutput, log: LogPipe | None = None) -> None:
        self.stage = stage
        self.output = output
        self._log = log
        self._written = b""
        self.reading = {stage.output, stage.result, *([log.descriptor] if log else [])}
        self.status: int | None = None
        """Wait status of the supervisor; ``None``: the stage runs."""
        self.end: CommandEnd | None = None
        """``None``: the stage runs, or its supervisor died."""

    def pass_on(self, ready: Container[int]) -> None:
        """Pass on what can be read.

        Do not wait for the end of the output: a process that the supervisor cannot reach may hold
        it open.
        """
        for pipe in [it for it in self.reading if it in ready]:
            if self._log is not None and pipe == self._log.descriptor:
                self._log.copy()
                continue
            chunk = os.read(pipe, LARGEST_PIPE)
            if not chunk:
                self.reading.remove(pipe)
            elif pipe == self.stage.output:
                self.output.write(chunk)
            elif len(self._written) < LARGEST_PIPE:  # more is not from the supervisor
                self._written += chunk
        if self.stage.result not in self.reading:
            self._finish()

    def _finish(self) -> None:
        os.set_blocking(self.stage.output, False)
        with suppress(BlockingIOError):
            self.output.write(os.read(self.stage.output, LARGEST_PIPE))
        self.status = self.stage.wait()
        # The stage's processes may be able to write into the pipe of the supervisor.
        self.end = read_end(self._written)


def follow_stages(stages: Sequence[FollowedStage]) -> list[CommandEnd]:
    """Pass on the output of stages that run side by side until all have ended; return their ends.

    A supervisor that dies ends all of them: what it leaves behind cannot be distinguished
    from the processes of the others. Raises ``SupervisorError`` if one was killed. The stages'
    processes are then ended too, if the agent has adopted them (``adopt_orphans``).
    """
    turn = 0
    while running := [it for it in stages if it.status is None]:
        for followed in running:
            followed.stage.wake_supervisor()
        conditions = [it.output.wait_conditions() for it in stages]
        printing = [it.output for it, (wanted, _) in zip(stages, conditions) if wanted]
        patience_s = min(seconds for _, seconds in conditions)
        ready, printable, _ = select.select(
            set().union(*(it.reading for it in running)),
            [it.printer.descriptor for it in printing[:1]],
            [],
            patience_s,
        )
        for followed in running:
            followed.pass_on(ready)
            if followed.status is not None and followed.end is None:
                for other in stages:
                    other.stage.end()
        if printable:  # they share the printer, which may be in the middle of a line of any
            turn += 1
            printing[turn % len(printing)].print_some()
        elif not ready and patience_s == QUIET_S:
            for followed in running:
                followed.output.release_partial_line()
    for followed in stages:
        if followed.end is None:
            followed.end = followed.stage.end_leftovers(followed.status or 0)
    return [it.end for it in stages if it.end is not None]


def read_end(written: bytes) -> CommandEnd | None:
    """Read what a supervisor wrote; ``None``: it was killed, or another process wrote too."""
    with suppress(ValueError, TypeError):
        end = CommandEnd(**parse_object(written.decode(errors="replace")))
        if type(end.exit_code) is int and type(end.seconds) is float:
            return end
    return None
