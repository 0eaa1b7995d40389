"""``python -m ci.engines.ray.service FOLDER PARENT``: carries out the steps of one platform.

It runs on a host of the pool, beside the actor that serves the platform, and reads the names of
steps from its standard input. Each step has a request in ``FOLDER`` and gets an answer there. It
ends with its actor. The agent does not: a later service adopts it, as a later caller adopts the
run of one that died.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import signal
import sys
import tarfile
import traceback
from contextlib import suppress
from pathlib import Path
from time import monotonic, time
from typing import cast

from ci.engines import Engine
from ci.engines.ray.actor import ARCHIVE, INTERRUPTS, RESULTS, feed_name
from ci.engines.ray.messages import Archive, HostStep, Request, StepOutcome, plan_on_host
from ci.engines.select import select_engine
from ci.errors import CiError, InfrastructureError
from ci.model.execution import ExecutionFacts, ImageFacts
from ci.model.plan import RunPlan
from ci.model.results import HOST_LOCK
from ci.protocol.agent_files import ENGINE_EVENTS
from ci.protocol.events import Event
from ci.util.files import open_for_replacement
from ci.util.process import end_with_parent, handle_interrupts

DONE = "done"  # the outcome of the stages


class Feed:
    """Writes the events of a step to the file that the caller reads."""

    def __init__(self, path: Path) -> None:
        # An event may have half of a surrogate pair, which JSON can escape and UTF-8 cannot.
        self._file = path.open("a", encoding="utf-8", errors="replace")

    def event(self, event: Event) -> None:
        """Append an event, in one write.

        It stays as short as it was for the agent: escapes would make it up to 6 times as long.
        """
        fields = {"event": event.event, "time": time(), "monotonic": monotonic(), **vars(event)}
        line = json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
        self._file.write(line + "\n")
        self._file.flush()


class Service:
    """The steps of one platform."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._trees = folder.parent.parent / "trees"
        self._engine: Engine | None = None
        self._interrupted = False

    def note_interrupt(self, *_: object) -> None:
        """Handle an interrupt that comes before its step begins."""
        self._interrupted = True

    def carry_out(self, step: str, token: str) -> None:
        """Carry out a step, and write its answer."""
        request: Request = pickle.loads((self._folder / f"{step}.request").read_bytes())  # noqa: S301
        try:
            with handle_interrupts(signal.default_int_handler):
                if self._interrupted:
                    raise KeyboardInterrupt
                feed = Feed(self._folder / feed_name(token))
                answer = self._answer(HostStep(step), request, feed)
        except KeyboardInterrupt:
            answer = StepOutcome(interrupted=True)
        except CiError as error:
            answer = StepOutcome(error=self._at_caller(error, request.plan))
        except Exception as error:
            traceback.print_exc()
            why = f"the program on the host failed: {type(error).__name__}: {error}"
            answer = StepOutcome(error=InfrastructureError(why))
        with open_for_replacement(self._folder / f"{step}.answer") as file:
            file.write(pickle.dumps(answer))
        self._interrupted = False

    def _answer(self, step: HostStep, request: Request, observer: Feed) -> StepOutcome:
        for name, content in request.files.items():
            (self._folder / name).write_bytes(content)
        plan = plan_on_host(request, self._folder, self._trees, sys.executable)
        self._engine = engine = self._engine or select_engine(plan.engine)
        match step:
            case HostStep.PREPARE:
                engine.check(plan)
                return StepOutcome(value=engine.prepare(plan, observer))
            case HostStep.SETTLE:
                return StepOutcome(value=engine.settle(plan, keep=request.keep))
            case HostStep.EXECUTE:
                image = cast(ImageFacts, request.image)
                return self._finished(engine.execute(plan, image, observer))
            case HostStep.RESUME:
                return self._resume(plan, engine, observer)

    def _resume(self, plan: RunPlan, engine: Engine, observer: Feed) -> StepOutcome:
        """Return the outcome that an earlier service left, or adopt what it left running."""
        if (done := self._folder / DONE).exists():
            answer: StepOutcome = pickle.loads(done.read_bytes())  # noqa: S301
            return answer
        facts = engine.resume(plan, observer)
        return StepOutcome() if facts is None else self._finished(facts)

    def _finished(self, facts: ExecutionFacts) -> StepOutcome:
        """Pack the results, and keep the outcome for a caller that comes later."""
        with handle_interrupts(signal.SIG_IGN):  # what is here is wanted, whole
            answer = StepOutcome(value=facts, archive=self._pack())
            if not facts.lost:
                with open_for_replacement(self._folder / DONE) as file:
                    file.write(pickle.dumps(answer))
        return answer

    def _at_caller(self, error: CiError, plan: RunPlan) -> CiError:
        """Return an error with the paths of the caller, who gets copies of all logs."""
        here, there = str(self._folder / RESULTS), str(plan.results)
        remedy = error.remedy and error.remedy.replace(here, there)
        return type(error)(str(error).replace(here, there), remedy=remedy)

    def _pack(self) -> Archive:
        path, results = self._folder / ARCHIVE, self._folder / RESULTS
        with open_for_replacement(path) as file, tarfile.open(fileobj=file, mode="w") as archive:
            # The record comes last: with it, the results count as complete.
            for entry in sorted(results.iterdir(), key=lambda it: (it.name == ENGINE_EVENTS, it)):
                if entry.name != HOST_LOCK:
                    archive.add(entry, entry.name)
        with path.open("rb") as packed:
            digest = hashlib.file_digest(packed, "sha256").hexdigest()
        return Archive(size=path.stat().st_size, digest=digest)


def main() -> None:
    """Carry out the steps that the standard input names, until it ends."""
    folder, parent = Path(sys.argv[1]), int(sys.argv[2])
    end_with_parent()
    with suppress(PermissionError):  # Ray gives its actors a low priority: stages would inherit it
        os.setpriority(os.PRIO_PROCESS, 0, 0)
    service = Service(folder)
    signal.signal(signal.SIGINT, service.note_interrupt)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, INTERRUPTS)
    if os.getppid() == parent:
        for line in sys.stdin:
            service.carry_out(*line.split())


if __name__ == "__main__":
    main()
