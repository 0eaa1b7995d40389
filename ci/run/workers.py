"""One forked process per platform, so that neither a crash nor a slow engine of one stops another.

All are forked before this process starts a thread or opens a database, and each waits for its go.
What they have to say comes through a pipe; the parent alone shows, writes and stores it. Forking
also keeps the memory low: what was read and imported is there once.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from time import monotonic
from types import FrameType

from ci.engines.base import Engine
from ci.errors import CiError
from ci.model.plan import EnginePlan, RunPlan
from ci.plan.request import RunRequest
from ci.run.platform import Finished, PlatformRun
from ci.util.process import SIGNALS, interrupts_go_to

Connect = Callable[[EnginePlan], Engine]

NEVER_BEGAN = 130  # exit code of a worker that was interrupted before its go
HEEDED_INTERRUPTS = 3  # an engine makes something of each; one more ends whatever hangs
END_GRACE_S = 10.0  # for a worker that has said its last
WINDOW_S = 0.1
LINES_PER_WINDOW = 30
PR_SET_PDEATHSIG = 1  # linux/prctl.h


@dataclass(frozen=True, kw_only=True)
class Ready:
    """The engine answers and accepts the plan; ``engine`` is the one that `auto` has become."""

    engine: str
    identity: str  # the same for an engine that has several names
    capacity: int  # platforms at once


@dataclass(frozen=True, kw_only=True)
class Refused:
    """The platform cannot begin, and nothing was done for it."""

    error: CiError


@dataclass(frozen=True, kw_only=True)
class Broken:
    """The worker has ended without a result; ``details`` for whoever mends this program."""

    reason: str
    details: str = ""


@dataclass(frozen=True, kw_only=True)
class NeverBegan:
    """An interrupt came before the platform's turn."""


Event = Mapping[str, object]
Message = Ready | Refused | Finished | Broken | NeverBegan | Event


class Relay:
    """A worker's observer: passes events on, and of a flood of output no more than is shown."""

    def __init__(self, send: Callable[[Event], None]) -> None:
        self._send = send
        self._window = 0.0
        self._sent = 0
        self._held: deque[Event] = deque(maxlen=LINES_PER_WINDOW)

    def event(self, event: Event) -> None:
        """Take an event of the agent, a line of output or an engine's message."""
        if event.get("event") not in ("output", "engine"):
            self._release()
            self._send(event)
            return
        if monotonic() - self._window > WINDOW_S:
            self._release()
            self._window, self._sent = monotonic(), 0
        if self._sent < LINES_PER_WINDOW:
            self._sent += 1
            self._send(event)
        else:
            self._held.append(event)

    def _release(self) -> None:
        while self._held:
            self._send(self._held.popleft())


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """What one worker has to do."""

    plan: RunPlan
    request: RunRequest
    connect: Connect
    resumed: bool


@dataclass(kw_only=True, eq=False)
class _Worker:
    """The parent's side of a worker."""

    plan: RunPlan
    process: BaseProcess
    connection: Connection
    ready: Ready | None = None
    running: bool = False

    def signal(self, number: signal.Signals) -> None:
        if self.process.pid is not None:
            os.kill(self.process.pid, number)

    def end(self) -> int | None:
        """Wait for its end, which is near, and return its exit code."""
        self.connection.close()
        self.process.join(END_GRACE_S)
        self.process.kill()
        self.process.join()
        return self.process.exitcode


class Workers:
    """The workers of a run that have not ended yet."""

    def __init__(self, *, jobs: int | None) -> None:
        self.interrupted = False
        self._jobs = jobs
        self._interrupts = 0
        self._workers: list[_Worker] = []

    def messages(self) -> Iterator[tuple[RunPlan, Message]]:
        """Pass on what the workers say, until all have ended; each begins when there is room."""
        while self._workers:
            by_connection = {worker.connection: worker for worker in self._workers}
            for connection in wait(list(by_connection)):
                worker = by_connection[connection]  # type: ignore[index]
                yield worker.plan, self._receive(worker)
                self._give_way()

    def has_room(self, ready: Ready) -> bool:
        """Tell whether one more platform may begin on an engine."""
        running = [worker.ready for worker in self._workers if worker.running]
        on_engine = [other for other in running if other and other.identity == ready.identity]
        return len(on_engine) < ready.capacity and (self._jobs is None or len(running) < self._jobs)

    def interrupt(self, _signal: int, _frame: FrameType | None) -> None:
        """Pass a Ctrl-C on; those that wait for their turn end at once."""
        self.interrupted = True
        self._interrupts += 1
        heeded = self._interrupts <= HEEDED_INTERRUPTS
        for worker in self._workers:
            worker.signal(signal.SIGINT if heeded else signal.SIGKILL)

    def fork(self, assignment: Assignment) -> None:
        """Add a worker."""
        context = get_context("fork")
        ours, theirs = context.Pipe()
        others = [worker.connection for worker in self._workers]
        process = context.Process(target=_main, args=(assignment, theirs, [*others, ours]))
        process.start()
        theirs.close()
        worker = _Worker(plan=assignment.plan, process=process, connection=ours)
        self._workers.append(worker)

    def end(self) -> None:
        """End all that are left."""
        for worker in self._workers:
            worker.signal(signal.SIGKILL)
            worker.end()
        self._workers.clear()

    def _receive(self, worker: _Worker) -> Message:
        try:
            message: Message = worker.connection.recv()
        except (EOFError, OSError):
            self._workers.remove(worker)
            return _death(worker.end())
        except Exception as error:  # what it said cannot be read, and nothing after it
            self._workers.remove(worker)
            worker.signal(signal.SIGKILL)
            worker.end()
            reason = f"what its process said cannot be read: {type(error).__name__}: {error}"
            return Broken(reason=reason, details=traceback.format_exc())
        if isinstance(message, Ready):
            worker.ready = message
        elif isinstance(message, Refused | Finished | Broken):
            self._workers.remove(worker)
            worker.end()
        return message

    def _give_way(self) -> None:
        for worker in self._workers:
            if self.interrupted or worker.running or worker.ready is None:
                continue
            if self.has_room(worker.ready):
                worker.running = True
                with suppress(OSError):  # it has died: what it said last comes next
                    worker.connection.send(None)


@contextmanager
def started(assignments: Sequence[Assignment], *, jobs: int | None) -> Iterator[Workers]:
    """Fork a worker for each assignment; interrupts go to them, until the block ends."""
    workers = Workers(jobs=jobs)
    gc.collect()
    gc.freeze()  # else the first collection in each worker copies every page with an object
    # Held back until every process knows what to do about them.
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        for assignment in assignments:
            workers.fork(assignment)
        with interrupts_go_to(workers.interrupt):
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
            yield workers
    finally:
        workers.end()
        gc.unfreeze()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


def _death(code: int | None) -> Broken | NeverBegan:
    if code == NEVER_BEGAN:
        return NeverBegan()
    how = f"exit code {code}" if code is None or code >= 0 else signal.Signals(-code).name
    return Broken(reason=f"the process that attended to this platform died: {how}")


def _main(assignment: Assignment, connection: Connection, foreign: Sequence[Connection]) -> None:
    """A worker's life."""
    for other in foreign:  # the parent's: held open here, they would hide its end
        other.close()
    _leave_the_terminal()
    _die_with_parent()
    for number in SIGNALS:
        signal.signal(number, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    try:
        _send(connection, _carried_out(assignment, connection))
    except (KeyboardInterrupt, EOFError):
        sys.exit(NEVER_BEGAN)
    except Exception as error:  # a fault of this program must not cost the other platforms
        reason = f"{type(error).__name__}: {error}"
        _send(connection, Broken(reason=reason, details=traceback.format_exc()))


def _carried_out(assignment: Assignment, connection: Connection) -> Message:
    plan = assignment.plan
    try:
        with closing(assignment.connect(plan.engine)) as engine:
            engine.check(plan)
            name = engine.name if plan.engine.name == "auto" else plan.engine.name
            machine = engine.machine()
            capacity = plan.engine.capacity or machine.processors
            _send(connection, Ready(engine=name, identity=machine.identity, capacity=capacity))
            connection.recv()
            return PlatformRun(
                request=assignment.request,
                plan=plan,
                engine=engine,
                observer=Relay(lambda event: _send(connection, event)),
                resumed=assignment.resumed,
            ).execute()
    except CiError as error:
        return Refused(error=error)


def _send(connection: Connection, message: Message) -> None:
    """Send a message as a whole, whatever interrupt comes meanwhile."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        connection.send(message)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


def _leave_the_terminal() -> None:
    """Ctrl-C is for the parent to pass on, and no program started here may wait for input."""
    os.setpgid(0, 0)
    with open(os.devnull, "rb") as nothing:  # noqa: PTH123
        os.dup2(nothing.fileno(), 0)


def _die_with_parent() -> None:
    """Containers live on, and `--resume` finds them. Elsewhere than on Linux the pipe tells."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
