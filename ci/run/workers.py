"""One forked process per platform: a crash or a slow engine stops only its own platform.

All are forked before this process starts a thread or opens a database. Each waits until the parent
starts it. Workers send messages through a pipe; only the parent shows, writes and stores them.
Forking also saves memory: imported modules and loaded files are shared.
"""

from __future__ import annotations

import gc
import math
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from threading import Lock
from time import monotonic
from types import FrameType

from ci.errors import CiError
from ci.model.plan import RunPlan
from ci.protocol.events import Event
from ci.run.platform import PlatformOutcome
from ci.util.process import SIGNALS, end_with_parent, handle_interrupts

NOT_STARTED = 130  # exit code of a worker that was interrupted before its start
FORWARDED_INTERRUPTS = 3  # an engine reacts to each of them; one more kills the workers
# After the last of them: for requests of 3 s to an engine that does not answer, and the verdict.
LAST_GRACE_S = 15.0
POLL_S = 1.0  # between looks at the clock, while there is no message
END_GRACE_S = 10.0  # for a worker that has sent its last message, and closes its connections


@dataclass(frozen=True, kw_only=True)
class Readiness:
    """The engine answers and accepts the plan; ``engine`` is the one that `auto` selected."""

    engine: str
    identity: str  # the same for an engine that has several names
    capacity: int  # platforms at once


@dataclass(frozen=True, kw_only=True)
class WorkerFailure:
    """The worker has ended without a result; ``details`` are for the maintainers."""

    reason: str
    details: str = ""


# A ``CiError``: the platform cannot start, and nothing was done for it.
Message = Readiness | CiError | PlatformOutcome | WorkerFailure | Event


@dataclass(frozen=True)
class Caller:
    """The worker's side of the pipe; an observer of its platform's run, for all its threads."""

    connection: Connection
    lock: Lock = field(default_factory=Lock)

    def send(self, message: Message) -> None:
        """Send a message; interrupts wait until it is complete."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            with self.lock:
                self.connection.send(message)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    event = send  # of an observer


Work = Callable[[RunPlan, Caller], Message]


@dataclass(kw_only=True, eq=False)
class WorkerProcess:
    """The parent's side of a worker."""

    plan: RunPlan
    process: BaseProcess
    connection: Connection
    ready: Readiness | None = None
    running: bool = False

    def signal(self, number: signal.Signals) -> None:
        if self.process.pid is not None:
            os.kill(self.process.pid, number)

    def end(self) -> int | None:
        """Wait for the process, which is about to end, and return its exit code."""
        self.connection.close()
        self.process.join(END_GRACE_S)
        self.process.kill()
        self.process.join()
        return self.process.exitcode


class Workers:
    """The workers of a run that have not ended yet."""

    def __init__(self, *, jobs: int | None) -> None:
        self.interrupts = 0
        self._deadline = math.inf
        self._jobs = jobs
        self._workers: list[WorkerProcess] = []

    def messages(self) -> Iterator[tuple[RunPlan, Message]]:
        """Yield the workers' messages until all have ended; start each one when there is room."""
        while self._workers:
            ready = wait([worker.connection for worker in self._workers], POLL_S)
            if monotonic() > self._deadline:
                self._signal(signal.SIGKILL)
            for worker in [it for it in self._workers if it.connection in ready]:
                message = self._receive(worker)
                if message is not None:
                    yield worker.plan, message
                self._start_ready()

    def has_room(self, ready: Readiness) -> bool:
        """Tell whether one more platform may start on an engine."""
        running = [worker.ready for worker in self._workers if worker.running]
        on_engine = [other for other in running if other and other.identity == ready.identity]
        return len(on_engine) < ready.capacity and (self._jobs is None or len(running) < self._jobs)

    def interrupt(self, _signal: int, _frame: FrameType | None) -> None:
        """Pass a Ctrl-C on; workers that wait for their start end at once."""
        self.interrupts += 1
        if self.interrupts == FORWARDED_INTERRUPTS:
            self._deadline = monotonic() + LAST_GRACE_S
        forwarded = self.interrupts <= FORWARDED_INTERRUPTS
        self._signal(signal.SIGINT if forwarded else signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        for worker in self._workers:
            worker.signal(number)

    def fork(self, plan: RunPlan, work: Work) -> None:
        """Add a worker."""
        context = get_context("fork")
        ours, theirs = context.Pipe()
        others = [worker.connection for worker in self._workers]
        process = context.Process(target=_run_worker, args=(plan, work, theirs, [*others, ours]))
        process.start()
        theirs.close()
        self._workers.append(WorkerProcess(plan=plan, process=process, connection=ours))

    def end(self) -> None:
        """End the remaining workers."""
        for worker in self._workers:
            worker.signal(signal.SIGKILL)
            worker.end()
        self._workers.clear()

    def _receive(self, worker: WorkerProcess) -> Message | None:
        """Return a message of a worker; ``None`` if it was interrupted before its start."""
        message: Message
        try:
            message = worker.connection.recv()
        except (EOFError, OSError):
            self._workers.remove(worker)
            code = worker.end()
            if code == NOT_STARTED:
                return None
            how = f"exit code {code}" if code is None or code >= 0 else signal.Signals(-code).name
            return WorkerFailure(reason=f"the worker process of this platform died: {how}")
        except Exception as error:  # nothing after this message can be read, either
            worker.signal(signal.SIGKILL)
            what = "a message of its worker process cannot be read"
            reason = f"{what}: {type(error).__name__}: {error}"
            message = WorkerFailure(reason=reason, details=traceback.format_exc())
        if isinstance(message, Readiness):
            worker.ready = message
            worker.running = False  # on its next engine it has to wait for room again
        elif isinstance(message, CiError | PlatformOutcome | WorkerFailure):
            self._workers.remove(worker)
            worker.end()
        return message

    def _start_ready(self) -> None:
        for worker in self._workers:
            if self.interrupts or worker.running or worker.ready is None:
                continue
            if self.has_room(worker.ready):
                worker.running = True
                with suppress(OSError):  # it has died: its last message comes next
                    worker.connection.send(None)


@contextmanager
def forked_workers(plans: Sequence[RunPlan], work: Work, *, jobs: int | None) -> Iterator[Workers]:
    """Fork a worker for each plan; interrupts go to the workers until the block ends."""
    workers = Workers(jobs=jobs)
    gc.freeze()  # else the first collection in each worker copies every page with an object
    # Interrupts are blocked until every process has its handlers.
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        for plan in plans:
            workers.fork(plan, work)
        with handle_interrupts(workers.interrupt):
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
            yield workers
    finally:
        workers.end()
        gc.unfreeze()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


def _run_worker(
    plan: RunPlan, work: Work, connection: Connection, foreign: Sequence[Connection]
) -> None:
    """Carry out the work in the worker's process, and send its outcome."""
    for other in foreign:  # the parent's: kept open here, they would hide its end
        other.close()
    # The parent passes Ctrl-C on. No program started here may wait for input.
    os.setpgid(0, 0)
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    # The worker ends with its parent. Its container lives on, and `--resume` finds it. On other
    # systems than Linux the worker notices the closed pipe.
    end_with_parent()
    for number in SIGNALS:
        signal.signal(number, signal.default_int_handler)
    caller = Caller(connection)
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)  # raises for one that has arrived
        caller.send(work(plan, caller))
    except (KeyboardInterrupt, EOFError):
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # a second one must not change the code
        sys.exit(NOT_STARTED)
    except Exception as error:  # an internal error must not end the other platforms
        reason = f"{type(error).__name__}: {error}"
        caller.send(WorkerFailure(reason=reason, details=traceback.format_exc()))
