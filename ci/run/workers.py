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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType

from ci.engines import Engine
from ci.errors import CiError
from ci.model.plan import EnginePlan, RunPlan
from ci.plan.request import RunRequest
from ci.run.platform import PlatformOutcome, PlatformRun
from ci.util.process import SIGNALS, handle_interrupts

Connect = Callable[[EnginePlan], Engine]

NEVER_BEGAN = 130  # exit code of a worker that was interrupted before its go
HEEDED_INTERRUPTS = 3  # an engine makes something of each; one more ends whatever hangs
END_GRACE_S = 10.0  # for a worker that has said its last: it only closes connections then
PR_SET_PDEATHSIG = 1  # linux/prctl.h


@dataclass(frozen=True, kw_only=True)
class Readiness:
    """The engine answers and accepts the plan; ``engine`` is the one that `auto` has become."""

    engine: str
    identity: str  # the same for an engine that has several names
    capacity: int  # platforms at once


@dataclass(frozen=True, kw_only=True)
class WorkerFailure:
    """The worker has ended without a result; ``details`` are for the maintainers."""

    reason: str
    details: str = ""


Event = Mapping[str, object]
# A ``CiError``: the platform cannot begin, and nothing was done for it.
Message = Readiness | CiError | PlatformOutcome | WorkerFailure | Event


@dataclass(frozen=True)
class Caller:
    """The worker's side of the pipe; an observer of its platform's run."""

    connection: Connection

    def send(self, message: Message) -> None:
        """Send a message as a whole, whatever interrupt comes meanwhile."""
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            self.connection.send(message)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)

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
        """Wait for its end, which is near, and return its exit code."""
        self.connection.close()
        self.process.join(END_GRACE_S)
        self.process.kill()
        self.process.join()
        return self.process.exitcode


class Workers:
    """The workers of a run that have not ended yet."""

    def __init__(self, *, jobs: int | None) -> None:
        self.interrupts = 0
        self._jobs = jobs
        self._workers: list[WorkerProcess] = []

    def messages(self) -> Iterator[tuple[RunPlan, Message]]:
        """Pass on what the workers say, until all have ended; each begins when there is room."""
        while self._workers:
            ready = wait([worker.connection for worker in self._workers])
            for worker in [it for it in self._workers if it.connection in ready]:
                message = self._receive(worker)
                if message is not None:
                    yield worker.plan, message
                self._give_way()

    def has_room(self, ready: Readiness) -> bool:
        """Tell whether one more platform may begin on an engine."""
        running = [worker.ready for worker in self._workers if worker.running]
        on_engine = [other for other in running if other and other.identity == ready.identity]
        return len(on_engine) < ready.capacity and (self._jobs is None or len(running) < self._jobs)

    def interrupt(self, _signal: int, _frame: FrameType | None) -> None:
        """Pass a Ctrl-C on; those that wait for their turn end at once."""
        self.interrupts += 1
        heeded = self.interrupts <= HEEDED_INTERRUPTS
        for worker in self._workers:
            worker.signal(signal.SIGINT if heeded else signal.SIGKILL)

    def fork(self, plan: RunPlan, work: Work) -> None:
        """Add a worker."""
        context = get_context("fork")
        ours, theirs = context.Pipe()
        others = [worker.connection for worker in self._workers]
        process = context.Process(target=_main, args=(plan, work, theirs, [*others, ours]))
        process.start()
        theirs.close()
        self._workers.append(WorkerProcess(plan=plan, process=process, connection=ours))

    def end(self) -> None:
        """End all that are left."""
        for worker in self._workers:
            worker.signal(signal.SIGKILL)
            worker.end()
        self._workers.clear()

    def _receive(self, worker: WorkerProcess) -> Message | None:
        """Return what a worker says; ``None``: it was interrupted before its turn."""
        message: Message
        try:
            message = worker.connection.recv()
        except (EOFError, OSError):
            self._workers.remove(worker)
            code = worker.end()
            if code == NEVER_BEGAN:
                return None
            how = f"exit code {code}" if code is None or code >= 0 else signal.Signals(-code).name
            return WorkerFailure(reason=f"the process that attended to this platform died: {how}")
        except Exception as error:  # what it said cannot be read, and nothing after it
            worker.signal(signal.SIGKILL)
            reason = f"what its process said cannot be read: {type(error).__name__}: {error}"
            message = WorkerFailure(reason=reason, details=traceback.format_exc())
        if isinstance(message, Readiness):
            worker.ready = message
        elif isinstance(message, CiError | PlatformOutcome | WorkerFailure):
            self._workers.remove(worker)
            worker.end()
        return message

    def _give_way(self) -> None:
        for worker in self._workers:
            if self.interrupts or worker.running or worker.ready is None:
                continue
            if self.has_room(worker.ready):
                worker.running = True
                with suppress(OSError):  # it has died: what it said last comes next
                    worker.connection.send(None)


@contextmanager
def started(plans: Sequence[RunPlan], work: Work, *, jobs: int | None) -> Iterator[Workers]:
    """Fork a worker for each plan; interrupts go to them, until the block ends."""
    workers = Workers(jobs=jobs)
    gc.collect()
    gc.freeze()  # else the first collection in each worker copies every page with an object
    # Held back until every process knows what to do about them.
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


def _main(plan: RunPlan, work: Work, connection: Connection, foreign: Sequence[Connection]) -> None:
    """A worker's life."""
    for other in foreign:  # the parent's: held open here, they would hide its end
        other.close()
    # Ctrl-C is for the parent to pass on, and no program started here may wait for input.
    os.setpgid(0, 0)
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    # Containers live on, and `--resume` finds them. Elsewhere than on Linux the pipe tells.
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    for number in SIGNALS:
        signal.signal(number, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    caller = Caller(connection)
    try:
        caller.send(work(plan, caller))
    except (KeyboardInterrupt, EOFError):
        sys.exit(NEVER_BEGAN)
    except Exception as error:  # a fault of this program must not cost the other platforms
        reason = f"{type(error).__name__}: {error}"
        caller.send(WorkerFailure(reason=reason, details=traceback.format_exc()))


def carry_out(
    plan: RunPlan, caller: Caller, *, request: RunRequest, connect: Connect, resumed: bool
) -> Message:
    """Carry a plan out in its worker, when the engine has answered and the caller says go."""
    try:
        with closing(connect(plan.engine)) as engine:
            engine.check(plan)
            name = engine.name if plan.engine.name == "auto" else plan.engine.name
            machine = engine.machine()
            capacity = plan.engine.capacity or machine.processors
            caller.send(Readiness(engine=name, identity=machine.identity, capacity=capacity))
            caller.connection.recv()
            return PlatformRun(
                request=request, plan=plan, engine=engine, observer=caller, resumed=resumed
            ).execute()
    except CiError as error:
        return error
